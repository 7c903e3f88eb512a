package collective_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// List returns the keys below a directory.
func (j *job) List(_ context.Context, dir string) (list []serry.Entry, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(j.keys)) {
		if strings.HasPrefix(key, dir+"/") {
			list = append(list, serry.Entry{Key: key, Value: []byte(j.keys[key])})
		}
	}
	return list, nil
}

// Barrier meets all tasks of a list. It fails when one of them is not connected.
func (m member) Barrier(ctx context.Context, id string, o serry.BarrierOptions) error {
	a, err := m.Agree(ctx, nil, append(slices.Clone(o.Among), serry.TaskID{Job: id})...)
	if err == nil && len(a.Alive) < len(o.Among) {
		err = serry.ErrTaskDead
	}
	return err
}

// stocked is a world with a stock service.
func stocked(w *world) []*collective.Comm {
	w.blind, w.group.Keys = true, w.job
	return w.clique(w.startAll(3), devices(3))
}

// wordsLeft lists the votes that the service has.
func (w *world) wordsLeft() []serry.Entry {
	list, _ := w.List(w.t.Context(), "serry/step")
	return list
}

// With a stock service the votes are keys. All commit, one after the other, and no vote is left two steps later.
func TestStepsByKeys(t *testing.T) {
	clause.Cite(t, "CL-ATM-6", "CLT-RCV-9")
	inBubble(t, func(t *testing.T, w *world) {
		comms := stocked(w)
		for step := range 5 {
			errs := each(comms, func(_ int, c *collective.Comm) error { return collective.Step(t.Context(), c, adds(c, []int64{1})) })
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("Step() = %v", err)
			}
			if n := len(w.wordsLeft()); n != 3 {
				t.Errorf("after step %d the service has %d votes; want those of this step: %v", step+1, n, w.wordsLeft())
			}
		}
	})
}

// The part of a member fails: all name it. A member dies before it has voted: the others do not commit. One that does not hear that the barrier
// is passed is in doubt, and the others commit.
func TestFailedStepsByKeys(t *testing.T) {
	clause.Cite(t, "CL-ATM-6", "CLT-RCV-9")
	t.Run("part fails", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			comms := stocked(w)
			errs := each(comms, func(i int, c *collective.Comm) error {
				return collective.Step(t.Context(), c, func(ctx context.Context, live collective.Live) error {
					if err := adds(c, []int64{1})(ctx, live); err != nil || i != 1 {
						return err
					}
					return errOwn
				})
			})
			for _, err := range errs {
				if e := stepError(t, err); e.Rank != 1 || e.Detail != errOwn.Error() {
					t.Errorf("Step() = %v; want that of rank 1", err)
				}
			}
			time.Sleep(2 * time.Minute)
			if left := w.wordsLeft(); len(left) > 0 {
				t.Errorf("the service has %v two minutes later", left)
			}
		})
	})
	t.Run("dies", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			comms := stocked(w)
			errs := each(comms, func(i int, c *collective.Comm) error {
				return collective.Step(t.Context(), c, func(ctx context.Context, live collective.Live) error {
					if err := adds(c, []int64{1})(ctx, live); err != nil || i != 2 {
						return err
					}
					time.Sleep(time.Second)
					w.kill(w.procs[2])
					w.lose(w.procs[2].life, "process exited: signal 9")
					return errOwn
				})
			})
			for _, err := range errs[:2] {
				if !errors.Is(err, collective.ErrInDoubt) {
					t.Errorf("Step() = %v; want ErrInDoubt", err)
				}
			}
		})
	})
	t.Run("in doubt", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			comms := stocked(w)
			w.withhold(w.procs[0].life, true)
			errs := each(comms, func(_ int, c *collective.Comm) error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				return collective.Step(ctx, c, adds(c, []int64{1}))
			})
			if !errors.Is(errs[0], collective.ErrInDoubt) || errs[1] != nil || errs[2] != nil {
				t.Errorf("Step() = %v; want that rank 0 is in doubt, and the others commit", errs)
			}
			synctest.Wait()
			if comms[1].Err() == nil {
				t.Error("the others do not know that a member is in doubt")
			}
		})
	})
}
