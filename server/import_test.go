package server_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/xlapb"
)

// exported is a disk as an export of it would be: what comes later does not change it.
func exported(t *testing.T, disk *shareddisk.Disk) *shareddisk.Disk {
	t.Helper()
	copied := shareddisk.New(shareddisk.Config{})
	r, err := copied.Open().Campaign(t.Context(), store.Candidate{})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := server.Import(t.Context(), r, disk.Journal(), nil); err != nil || !done {
		t.Fatalf("Import() = %v, %v", done, err)
	}
	return copied
}

// C-LOG-3: a service goes on from an export, in another store. Its tasks find the incarnation they know,
// their keys, large ones too, and the barrier that they have arrived at.
func TestImportedHistoryGoesOn(t *testing.T) {
	lab.Clause(t, "C-LOG-3", "C-LOG-5", "NEW-46")
	synctest.Test(t, func(t *testing.T) {
		lost, fresh := shareddisk.New(shareddisk.Config{}), shareddisk.New(shareddisk.Config{})
		cfg := cluster(2)
		l, seat := serveOn(t, lost, cfg)
		tasks := fleet(t, l, 2, 100)
		large := bytes.Repeat([]byte("abcdefgh"), 64<<10)
		for _, key := range []string{"large", "same"} {
			if _, err := tasks[0].InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
				Incarnations: tasks[0].who(), Kv: &xlapb.KeyValueEntry{Key: key, Value: large},
			}); err != nil {
				t.Fatal(err)
			}
		}
		arrived := async(func() error { return tasks[0].barrier(t.Context(), "b", 0) })
		synctest.Wait()
		before := l.View()
		seat.Kill()
		l = l.Crash(t, func() server.Config {
			time.Sleep(time.Minute) // until a person has come
			onFresh, _ := lead(t, fresh, cfg)
			if done, err := server.Import(t.Context(), onFresh.Journal, lost.Journal(), nil); err != nil || !done {
				t.Fatalf("Import() = %v, %v", done, err)
			}
			return onFresh
		})
		<-arrived // of a server that died
		after := l.View()
		if after.Service != before.Service || after.Epoch != before.Epoch || after.Keys != before.Keys {
			t.Errorf("service %d, epoch %d, %d keys after Import(); want %d, %d, %d", after.Service, after.Epoch, after.Keys, before.Service, before.Epoch, before.Keys)
		}
		for _, v := range after.Tasks {
			if v.State != serry.Connected {
				t.Errorf("%v is %v; want connected", v.Task, v.State)
			}
		}
		r, err := tasks[1].TryGetKeyValue(t.Context(), &xlapb.TryGetKeyValueRequest{Incarnations: tasks[1].who(), Key: "same"})
		if err != nil || !bytes.Equal(r.GetKv().GetValue(), large) {
			t.Errorf("TryGetKeyValue() = %d bytes, %v; want the large value", len(r.GetKv().GetValue()), err)
		}
		if err := tasks[1].barrier(t.Context(), "b", 0); err != nil {
			t.Errorf("Barrier() of the second task = %v; want that of the first to count", err)
		}
	})
}

// Import is harmless when it is repeated, also after the service has gone on; it refuses a store that has
// another history, or is behind the one to be imported.
func TestImportRefusesAnotherHistory(t *testing.T) {
	lab.Clause(t, "C-LOG-3")
	synctest.Test(t, func(t *testing.T) {
		disk, other := shareddisk.New(shareddisk.Config{}), shareddisk.New(shareddisk.Config{})
		l, seat := serveOn(t, disk, cluster(1))
		tasks := fleet(t, l, 1, 100)
		early := exported(t, disk)
		time.Sleep(time.Second)
		if err := tasks[0].insert(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		late := exported(t, disk)
		serveOn(t, other, cluster(1))

		into := func(disk *shareddisk.Disk, from *shareddisk.Disk) error {
			t.Helper()
			before := readJournal(t, disk)
			disk.Expire()
			r, err := disk.Open().Campaign(t.Context(), store.Candidate{})
			if err != nil {
				t.Fatal(err)
			}
			done, err := server.Import(t.Context(), r, from.Journal(), nil)
			if diff := cmp.Diff(before, readJournal(t, disk), cmp.AllowUnexported(journal{})); diff != "" || done {
				t.Errorf("Import() = %v, %v has changed the journal:\n%s", done, err, diff)
			}
			return err
		}
		seat.Kill()
		for what, err := range map[string]error{
			"its own history":             into(disk, late),
			"an earlier state of its own": into(disk, early),
		} {
			if err != nil {
				t.Errorf("Import() of %s = %v; want nothing to do", what, err)
			}
		}
		for what, err := range map[string]error{
			"another history": into(other, late),
			"a later state":   into(early, late),
		} {
			if !errors.Is(err, server.ErrHistory) {
				t.Errorf("Import() of %s = %v; want %v", what, err, server.ErrHistory)
			}
		}
	})
}
