package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// bigJob is a job of n ranks at work, in which rank 7 has failed, rank 8 waits for a key and rank 9 is two steps behind.
func bigJob(n int) Report {
	r := Report{Status: coord.Status{View: coord.View{Now: coord.Time(time.Minute)}}}
	for i := range n {
		r.View.Tasks = append(r.View.Tasks, coord.TaskView{TaskInfo: coord.TaskInfo{Task: worker(i), State: serry.Connected, Incarnation: 7}})
		r.Calls = append(r.Calls, LastCall{Kind: coord.KindBarrier, Of: "save-100", Ago: coord.Time(i)})
		r.Steps = append(r.Steps, 100)
	}
	r.View.Tasks[7].State, r.View.Tasks[7].Err = serry.Failed, &serry.TaskError{Task: worker(7), Evidence: "process exited: signal 9", Err: serry.ErrTaskDead}
	r.Calls[8] = LastCall{Kind: coord.KindGetKeyValue, Of: "data/1", Ago: coord.Time(3 * time.Second), Waits: true}
	r.Steps[9] = 98
	r.Sight = func(task serry.TaskID) (time.Duration, string) {
		return time.Duration(task.Index) * time.Millisecond, fmt.Sprintf("10.0.%d.1:5000", task.Index/8)
	}
	return r
}

// Of ten thousand ranks an answer has those that fit a screen, in the order and with the filter that were asked for; it says how many there
// are, and what a verdict needs of the others.
func TestPick(t *testing.T) {
	clause.Cite(t, "D-CLI-3", "TD-CLI-2")
	const ranks = 10_000
	ask := func(p Pick) Status {
		return asked(t, StatusQuery{Tasks: true, Sight: true, Calls: true, Pick: &p}, bigJob(ranks))
	}
	names := func(s Status) string {
		var all []string
		for _, task := range s.Tasks {
			all = append(all, strings.TrimPrefix(task.Task, "worker/"))
		}
		return strings.Join(all, " ")
	}
	for _, c := range []struct {
		name     string
		pick     Pick
		want     string
		from     int
		matching int
	}{
		{"those in trouble first, then those behind", Pick{Limit: 5, Order: ByTrouble, Blamed: []string{"worker/9000"}}, "7 9000 9 0 1", 0, ranks},
		{"by number", Pick{Limit: 3, From: 5, Order: ByRank}, "5 6 7", 5, ranks},
		{"by an order of a later version", Pick{Limit: 3, Order: "colour"}, "0 1 2", 0, ranks},
		{"by step", Pick{Limit: 2, Order: ByStep}, "9 0", 0, ranks},
		{"by silence", Pick{Limit: 2, Order: BySilence}, "9999 9998", 0, ranks},
		{"the last ones", Pick{Limit: 3, From: 1 << 30}, "9997 9998 9999", ranks - 3, ranks},
		{"of a host", Pick{Limit: 9, Filter: "10.0.1249.1"}, "9992 9993 9994 9995 9996 9997 9998 9999", 0, 8},
		{"with an error", Pick{Limit: 9, Filter: "signal 9"}, "7", 0, 1},
		{"with a call", Pick{Limit: 9, Filter: "GetKeyValue data"}, "8", 0, 1},
		{"none", Pick{Limit: 9, From: 3, Filter: "no such"}, "", 0, 0},
		{"no limit", Pick{}, "", 0, ranks},
	} {
		s := ask(c.pick)
		if s.Picked == nil || names(s) != c.want || s.Picked.Matching != c.matching || c.want != "" && s.Picked.From != c.from || len(s.Steps) != len(s.Tasks) {
			t.Errorf("%s: ranks %s with %d steps, %+v; want %s of %d, from %d on", c.name, names(s), len(s.Steps), s.Picked, c.want, c.matching, c.from)
		}
		if p := s.Picked; p != nil && (p.MostStep != 100 || p.Readers != 1 || p.Quietest == nil || p.Quietest.Task != "worker/9999" || s.Size != ranks) {
			t.Errorf("%s: %+v of %d; want step 100, one reader, and rank 9999, which has been quiet longest", c.name, p, s.Size)
		}
	}
	if n := len(ask(Pick{Limit: 1 << 30}).Tasks); n != MaxPicked {
		t.Errorf("an answer has %d ranks; want %d at most", n, MaxPicked)
	}
}

// An answer with the ranks of a screen takes a screen's bytes, however many there are; one that picks none has all, as ever.
func TestPickedBytes(t *testing.T) {
	clause.Cite(t, "D-CLI-3", "TD-CLI-2")
	bytes := func(q StatusQuery) (int, int) {
		t.Helper()
		q.rows = true
		p, err := Shape{query: q}.serryReply(coord.Reply{Result: bigJob(10_000)})
		if err != nil {
			t.Fatal(err)
		}
		body, err := proto.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return len(body), len(p.GetStatus().GetTasks())
	}
	all, rows := bytes(StatusQuery{Tasks: true, Sight: true, Calls: true})
	if rows != 10_000 {
		t.Errorf("an answer has %d ranks; want all 10,000", rows)
	}
	some, picked := bytes(StatusQuery{Tasks: true, Sight: true, Calls: true, Pick: &Pick{Limit: 64, Order: ByTrouble}})
	if picked != 64 || some > 16<<10 || all < 20*some {
		t.Errorf("an answer has %d ranks in %d bytes, and all are %d; want 64 ranks in 16 KiB", picked, some, all)
	}
	t.Logf("64 of 10,000 ranks take %d bytes, all of them %d", some, all)
}

// A status of a server that does not know the question has all tasks, and the caller picks from them: the result is the same.
func TestPickFromAll(t *testing.T) {
	clause.Cite(t, "D-CLI-3")
	p := Pick{Limit: 20, From: 3, Order: ByTrouble, Filter: "10.0."}
	theirs := asked(t, StatusQuery{Tasks: true, Sight: true, Calls: true, Pick: &p}, bigJob(100))
	old := asked(t, StatusQuery{Tasks: true, Sight: true, Calls: true}, bigJob(100))
	if old.Picked != nil || len(old.Tasks) != 100 {
		t.Fatalf("an older server answers with %d ranks, %+v", len(old.Tasks), old.Picked)
	}
	ours := old
	ours.Picks(p)
	if !slices.EqualFunc(ours.Tasks, theirs.Tasks, func(a, b TaskStatus) bool { return a.Task == b.Task }) || ours.Picked.Matching != theirs.Picked.Matching || len(old.Tasks) != 100 {
		t.Errorf("Picks() = %d ranks, %+v; the server picks %d, %+v", len(ours.Tasks), ours.Picked, len(theirs.Tasks), theirs.Picked)
	}
	ours.Picks(Pick{Limit: 1})
	if len(ours.Tasks) != 20 {
		t.Errorf("Picks() of what was picked = %d ranks; want the same 20", len(ours.Tasks))
	}
}
