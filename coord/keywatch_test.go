package coord_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// watching is a machine with a short history, and the calls that tests of watchers make.
type watching struct {
	*crowd
	t *testing.T
}

func newWatching(t *testing.T) watching {
	t.Helper()
	return watching{t: t, crowd: &crowd{Machine: coord.New(coord.Config{
		Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100, Limits: coord.Limits{Changes: 4},
	})}}
}

func (w watching) put(key string) []coord.Reply {
	return replies(w.Step(0, coord.InsertKeyValue{Call: w.call(0), Key: key, Value: []byte("v"), Overwrite: true}))
}

// watch begins to watch a directory from a revision on, which must leave the call waiting.
func (w watching) watch(dir string, after int64) coord.Req {
	w.t.Helper()
	call := w.call(0)
	if got := replies(w.Step(0, coord.WatchKeys{Call: call, Dir: dir, After: after})); len(got) > 0 {
		w.t.Fatalf("WatchKeys(%q, %d) was answered at once: %+v", dir, after, got)
	}
	return call.Req
}

// told are the keys that a watcher hears of, if it is among the replies.
func (w watching) told(all []coord.Reply, req coord.Req) (keys []string, c coord.Changes) {
	w.t.Helper()
	i := slices.IndexFunc(all, func(r coord.Reply) bool { return r.Req == req })
	if i < 0 {
		return nil, c
	}
	c, ok := all[i].Result.(coord.Changes)
	if !ok || c.Reset {
		w.t.Errorf("watcher #%d got %+v; want changes, and not all that is there", req, all[i])
	}
	for _, ch := range c.Changes {
		keys = append(keys, ch.Key)
	}
	return keys, c
}

// TestWatcherMissesNothing: a watcher that waits hears of the first change below its directory, and of
// nothing else, however much has been written elsewhere meanwhile.
func TestWatcherMissesNothing(t *testing.T) {
	lab.Clause(t, "C-KV-10", "C-LIM-1")
	w := newWatching(t)
	for i := range 3 {
		w.put(fmt.Sprint("config/", i))
	}
	req := w.watch("config", 3)
	for i := range 100 {
		if keys, _ := w.told(w.put(fmt.Sprint("other/", i)), req); keys != nil {
			t.Fatalf("a write elsewhere was told to a watcher: %v", keys)
		}
	}
	root := w.watch("", 103)
	got := w.put("config/1")
	keys, c := w.told(got, req)
	if diff := gocmp.Diff([]string{"config/1"}, keys); diff != "" || c.Revision != 104 {
		t.Errorf("the watcher was told of %v at revision %d; want config/1 at 104", keys, c.Revision)
	}
	if keys, _ := w.told(got, root); len(keys) != 1 {
		t.Errorf("the watcher of everything was told of %v; want config/1", keys)
	}
	if diff := gocmp.Diff(coord.Kept{}, w.Kept()); diff != "" {
		t.Errorf("what is kept afterwards (-want +got):\n%s", diff)
	}
}

// TestWatchersShareResults: what one call has changed is one result for all who watch the same directory,
// so that it is encoded once. A directory that goes is told as a whole.
func TestWatchersShareResults(t *testing.T) {
	lab.Clause(t, "C-KV-8", "C-WATCH-9")
	w := newWatching(t)
	for i := range 3 {
		w.put(fmt.Sprint("d/e/", i))
	}
	first, second, above := w.watch("d/e", 3), w.watch("d/e", 3), w.watch("d", 3)
	got := replies(w.Step(0, coord.DeleteKeyValue{Call: w.call(0), Key: "d"}))
	var shared []*coord.Change
	for _, req := range []coord.Req{first, second, above} {
		keys, c := w.told(got, req)
		if diff := gocmp.Diff([]string{"d/e/0", "d/e/1", "d/e/2"}, keys); diff != "" {
			t.Fatalf("watcher #%d was told of (-want +got):\n%s", req, diff)
		}
		shared = append(shared, &c.Changes[0])
	}
	if shared[0] != shared[1] {
		t.Error("two watchers of one directory got a list each; want one for both")
	}
}

// TestDeepDirectories: watchers are told apart by their whole directory, however deep it is.
func TestDeepDirectories(t *testing.T) {
	lab.Clause(t, "C-KV-1")
	w := newWatching(t)
	for _, depth := range []int{1, 31, 32, 33, 40, 500} {
		dir := strings.TrimSuffix(strings.Repeat("p/", depth), "/")
		here, there := w.watch(dir+"/here", w.revision()), w.watch(dir+"/there", w.revision())
		got := w.put(dir + "/here/k")
		if keys, _ := w.told(got, here); len(keys) != 1 {
			t.Errorf("depth %d: the watcher of the directory was told of %v; want one key", depth, keys)
		}
		if keys, _ := w.told(got, there); keys != nil {
			t.Errorf("depth %d: the watcher beside it was told of %v; want nothing", depth, keys)
		}
		w.Step(0, coord.Cancel{Req: there})
		if diff := gocmp.Diff(coord.Kept{}, w.Kept()); diff != "" {
			t.Errorf("depth %d: what is kept afterwards (-want +got):\n%s", depth, diff)
		}
	}
}

// revision is the one that a watcher which knows everything knows.
func (w watching) revision() int64 {
	w.t.Helper()
	got := replies(w.Step(0, coord.WatchKeys{Call: w.call(0), After: -1}))
	return got[0].Result.(coord.Changes).Revision
}

// TestStartAnew: who is too far behind gets what is below its directory, once for all who ask at one
// revision, and what was found then is not told after a change.
func TestStartAnew(t *testing.T) {
	lab.Clause(t, "C-KV-10")
	w := newWatching(t)
	anew := func() coord.Changes {
		return replies(w.Step(0, coord.WatchKeys{Call: w.call(0), Dir: "d", After: 1}))[0].Result.(coord.Changes)
	}
	for i := range 10 {
		w.put(fmt.Sprint([]string{"d/", "e/"}[i%2], i))
	}
	first, second := anew(), anew()
	if !first.Reset || len(first.Changes) != 5 || &first.Changes[0] != &second.Changes[0] {
		t.Errorf("WatchKeys(d) from long ago = %+v, then %+v; want one list of 5 keys for both", first, second)
	}
	w.put("d/new")
	if got := anew(); len(got.Changes) != 6 {
		t.Errorf("WatchKeys(d) after another change = %+v; want 6 keys", got)
	}
}
