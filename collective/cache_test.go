package collective_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// tagged forms the clique of all processes with a traffic.
func (w *world) tagged(traffic uint64) []*collective.Comm {
	w.t.Helper()
	comms := make([]*collective.Comm, len(w.procs))
	errs := each(w.procs, func(i int, p *process) (err error) {
		comms[i], err = p.Clique(w.t.Context(), devices(len(w.procs)), collective.CliqueOptions{Traffic: traffic})
		return err
	})
	if err := errors.Join(errs...); err != nil {
		w.t.Fatalf("Clique() of traffic %d = %v", traffic, err)
	}
	return comms
}

// giveBack closes what a caller got.
func giveBack(t *testing.T, comms []*collective.Comm) {
	t.Helper()
	if err := errors.Join(each(comms, func(_ int, c *collective.Comm) error { return c.Close(t.Context()) })...); err != nil {
		t.Errorf("Close() = %v", err)
	}
}

// Cliques that are idle for the time of the options are closed, one that is in use is not, and what is asked for later is
// formed anew.
func TestIdleCliquesAreClosed(t *testing.T) {
	clause.Cite(t, "CL-CCH-4")
	inBubble(t, func(t *testing.T, w *world) {
		w.group.IdleTime = time.Minute
		w.startAll(2)
		first, second, used := w.tagged(1), w.tagged(2), w.tagged(3)
		giveBack(t, first)
		time.Sleep(30 * time.Second)
		giveBack(t, second)
		closed := func(comms []*collective.Comm) bool {
			synctest.Wait()
			return errors.Is(comms[0].Err(), collective.ErrClosed) && errors.Is(comms[1].Err(), collective.ErrClosed)
		}
		time.Sleep(29 * time.Second)
		if closed(first) {
			t.Error("a clique was closed before its time")
		}
		time.Sleep(2 * time.Second)
		if !closed(first) || closed(second) {
			t.Errorf("after a minute: the first is %v, the second %v", first[0].Err(), second[0].Err())
		}
		again := w.tagged(2)
		time.Sleep(time.Hour)
		if closed(second) || closed(used) || again[0] != second[0] {
			t.Error("a clique that is in use was closed")
		}
		works(t, second, 100)
		works(t, w.tagged(1), 100)
	})
}

// The group counts what becomes of its cliques.
func TestCounters(t *testing.T) {
	clause.Cite(t, "CL-CCH-4")
	inBubble(t, func(t *testing.T, w *world) {
		w.group.Idle = 1
		procs := w.startAll(2)
		giveBack(t, w.tagged(1))
		giveBack(t, w.tagged(1))
		kept := w.tagged(2)
		giveBack(t, w.tagged(3)) // one too many is idle
		synctest.Wait()
		parts := make([]*collective.Comm, 2)
		errs := each(kept, func(i int, c *collective.Comm) (err error) {
			parts[i], err = c.Split(t.Context(), 0, 0)
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("Split() = %v", err)
		}
		parts[0].Revoke(nil)
		time.Sleep(time.Second)
		for i, p := range procs {
			got := p.Counters()
			evicted := got.Evicted
			got.Evicted = 0 // by this process or by the other one
			if want := (collective.Counters{Hits: 1, Misses: 4, Created: 4, Splits: 1, Aborted: 1}); got != want || evicted > 1 {
				t.Errorf("task %d: Counters() = %+v and %d evicted; want %+v", i, got, evicted, want)
			}
		}
		if procs[0].Counters().Evicted+procs[1].Counters().Evicted == 0 {
			t.Error("no process has evicted a clique")
		}
	})
}
