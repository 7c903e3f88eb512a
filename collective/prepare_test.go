package collective_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// prepares begins to form the clique of n devices.
func (p *process) prepares(n int) {
	p.world.t.Helper()
	if err := p.Prepare(devices(n), collective.CliqueOptions{}); err != nil {
		p.world.t.Fatalf("Prepare() = %v", err)
	}
}

// A clique that was prepared is taken by the next caller, whether the other processes have prepared it or asked for it. A
// service that does not tell how tasks are sees one agreement for both.
func TestPrepare(t *testing.T) {
	clause.Cite(t, "CL-CRE-12")
	for _, blind := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			w.blind = blind
			procs := w.startAll(3)
			for _, p := range procs {
				p.prepares(3)
				p.prepares(3)
			}
			pause(time.Minute)
			w.delay(time.Millisecond)
			before := time.Now()
			comms := w.clique(procs, devices(3))
			if waited := time.Since(before); waited > 0 || procs[0].Counters().Created != 1 {
				t.Errorf("Clique() of one that was prepared took %v; Counters() = %+v", waited, procs[0].Counters())
			}
			works(t, comms, 1000)
			if again := w.clique(procs, devices(3)); again[0] != comms[0] {
				t.Error("the next call has another clique")
			}
			procs[0].prepares(2)
			works(t, w.clique(procs[:2], devices(2)), 1000)
		})
	}
}

// The other process comes after the caller has given up, and after the time of the options: the clique that was prepared is there for
// the next caller.
func TestPrepareWaits(t *testing.T) {
	clause.Cite(t, "CL-CRE-12")
	inBubble(t, func(t *testing.T, w *world) {
		w.group.Timeout = time.Minute
		procs := w.startAll(2)
		procs[0].prepares(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := procs[0].Clique(ctx, devices(2), collective.CliqueOptions{}); !errors.Is(err, collective.ErrTimeout) {
			t.Errorf("Clique() without the other process = %v; want ErrTimeout", err)
		}
		pause(2 * time.Minute)
		works(t, w.soon(procs, devices(2), collective.CliqueOptions{}), 1000)
	})
}

// A clique that failed before it was taken, or could not be formed, is formed by the call that needs it.
func TestPreparedCliqueFails(t *testing.T) {
	clause.Cite(t, "CL-CRE-12", "CL-ABT-5")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		procs[0].prepares(2)
		other, err := procs[1].Clique(t.Context(), devices(2), collective.CliqueOptions{})
		if err != nil {
			t.Fatalf("Clique() = %v", err)
		}
		other.Abort(errors.New("not this one"))
		pause(time.Second)
		works(t, w.soon(procs, devices(2), collective.CliqueOptions{}), 1000)

		procs[0].prepares(3) // task 2 does not exist yet, and dies before it comes
		third := w.start(life(2, 12))
		pause(time.Second)
		w.kill(third)
		w.lose(third.life, "process exited: signal 9")
		pause(time.Second)
		w.start(life(2, 20))
		works(t, w.soon([]*process{procs[0], procs[1], w.procs[3]}, devices(3), collective.CliqueOptions{}), 1000)
	})
}

// Prepare refuses what Clique refuses, too many cliques, and a group that is closed.
func TestPrepareRefuses(t *testing.T) {
	clause.Cite(t, "CL-CRE-12", "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		p := w.startAll(2)[0]
		if err := p.Prepare([]serry.DeviceID{7}, collective.CliqueOptions{}); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("Prepare() without a device of this process = %v; want ErrInvalid", err)
		}
		var err error
		made := 0
		for ; err == nil && made < 1000; made++ {
			err = p.Prepare(devices(2), collective.CliqueOptions{Traffic: uint64(made)})
		}
		if !errors.Is(err, collective.ErrInvalid) || made != 65 {
			t.Errorf("Prepare() number %d = %v; want ErrInvalid for number 65", made, err)
		}
		p.Group.Close(t.Context())
		if err := p.Prepare(devices(2), collective.CliqueOptions{Traffic: 1000}); !errors.Is(err, collective.ErrClosed) {
			t.Errorf("Prepare() of a group that is closed = %v; want ErrClosed", err)
		}
	})
}

// A process closes its group, at every moment, while all prepare a clique. Every call that waits for it ends.
func TestPrepareWhileGroupIsClosed(t *testing.T) {
	clause.Cite(t, "CL-CRE-12", "CL-DES-7")
	const way = time.Millisecond
	for closes := range 3 {
		for at := time.Duration(0); at < 12*way; at += way / 2 {
			inBubble(t, func(t *testing.T, w *world) {
				w.group.Timeout = time.Minute
				procs := w.startAll(3)
				w.delay(way)
				started := time.Now()
				for _, p := range procs {
					p.prepares(3)
				}
				each(procs, func(i int, p *process) error {
					if i == closes {
						pause(at)
						return p.Group.Close(t.Context())
					}
					return p.uses(0)
				})
				if took := time.Since(started); took > 2*time.Minute {
					t.Errorf("task %d closes after %v: the calls took %v", closes, at, took)
				}
			})
		}
	}
}
