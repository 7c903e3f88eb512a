package collective_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// A forming is a call of Clique that another goroutine makes.
type forming struct {
	comm *collective.Comm
	err  error
	done chan struct{}
}

// form calls Clique for the devices 0 to n-1.
func (p *process) form(ctx context.Context, n int) *forming {
	f := &forming{done: make(chan struct{})}
	go func() {
		defer close(f.done)
		f.comm, f.err = p.Clique(ctx, devices(n), collective.CliqueOptions{})
	}()
	return f
}

// failed is why there is no clique, or why it has ended; or nil.
func (f *forming) failed() error {
	<-f.done
	if f.err != nil {
		return f.err
	}
	return f.comm.Err()
}

// A process whose link to the host breaks joins again. The host may hear of the end of the old link after that.
func TestJoinsAgain(t *testing.T) {
	clause.Cite(t, "CL-RDV-1")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		all := []*forming{procs[0].form(ctx, 3), procs[1].form(ctx, 3)}
		synctest.Wait()
		release := w.network.hold(hostOf(procs[0].life), hostOf(procs[1].life))
		w.network.part(hostOf(procs[0].life), hostOf(procs[1].life))
		pause(time.Second)
		release()
		pause(time.Second)
		all = append(all, procs[2].form(ctx, 3))
		var comms []*collective.Comm
		for rank, f := range all {
			if err := f.failed(); err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
			comms = append(comms, f.comm)
		}
		works(t, comms, 1000)
	})
}
