package collective_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A slowHost is the backend Host, which takes its time in one process.
type slowHost struct {
	collective.Host
	create time.Duration
}

func (h slowHost) Create(ctx context.Context, key *collective.Key, local []int) ([]collective.Communicator, error) {
	pause(h.create)
	return h.Host.Create(ctx, key, local)
}

// slowly starts a process whose backend takes that long to make a clique.
func (w *world) slowly(task int, create time.Duration) *process {
	w.group.Backends = []collective.Backend{slowHost{create: create}}
	return w.start(life(task, uint64(10+task)))
}

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

// The link over which a process hears that all have come belongs to the clique from the beginning. A process that reads the
// WELCOME when the link has broken on the other side, and the clique ended there, does not keep the clique for itself.
func TestWelcomeOverABrokenLink(t *testing.T) {
	clause.Cite(t, "CL-RDV-15", "CL-ABT-15")
	for name, create := range map[string]time.Duration{"at once": 0, "slow backend": time.Second} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				host := w.slowly(0, 0)
				w.link.Timing = link.Timing{Ping: time.Hour, Suspect: time.Hour, Dead: time.Hour} // only the host gives the link up
				guest := w.slowly(1, create)
				waits := guest.form(t.Context(), 2)
				synctest.Wait()
				release := w.network.hold(hostOf(guest.life), hostOf(host.life))
				hosts := host.form(t.Context(), 2)
				synctest.Wait()
				w.network.cut(hostOf(host.life), hostOf(guest.life))
				pause(5 * time.Second)
				if err := hosts.failed(); !errors.Is(err, collective.ErrTransport) {
					t.Fatalf("the host, whose link broke: %v; want ErrTransport", err)
				}
				w.network.heal(hostOf(host.life), hostOf(guest.life))
				w.delay(30 * time.Millisecond) // the next link is made when it is known that this one is down
				release()
				pause(2 * time.Second)
				if err := waits.failed(); !errors.Is(err, collective.ErrTransport) {
					t.Errorf("the other process: %v; want ErrTransport", err)
				}
			})
		})
	}
}

// The same holds for the host, whose link breaks while it makes the clique.
func TestLinkBreaksBehindTheWelcome(t *testing.T) {
	clause.Cite(t, "CL-RDV-15")
	inBubble(t, func(t *testing.T, w *world) {
		host, guest := w.slowly(0, time.Second), w.slowly(1, 0)
		all := []*forming{host.form(t.Context(), 2), guest.form(t.Context(), 2)}
		pause(500 * time.Millisecond)
		w.network.part(hostOf(host.life), hostOf(guest.life))
		pause(time.Second)
		for rank, f := range all {
			if err := f.failed(); !errors.Is(err, collective.ErrTransport) {
				t.Errorf("rank %d: %v; want ErrTransport", rank, err)
			}
		}
	})
}

// A clique may end on one member before another one has made it.
func TestRevokedBeforeItIsMade(t *testing.T) {
	clause.Cite(t, "CL-ABT-15")
	for slow := range 2 {
		inBubble(t, func(t *testing.T, w *world) {
			all := make([]*forming, 2)
			for task := range all {
				create := time.Duration(0)
				if task == slow {
					create = time.Second
				}
				all[task] = w.slowly(task, create).form(t.Context(), 2)
			}
			quick := all[1-slow]
			<-quick.done
			pause(100 * time.Millisecond)
			quick.comm.Revoke(errors.New("enough"))
			pause(2 * time.Second)
			for rank, f := range all {
				if err := f.failed(); !errors.Is(err, collective.ErrCancelled) {
					t.Errorf("rank %d, where rank %d is slow: %v; want ErrCancelled", rank, slow, err)
				}
			}
		})
	}
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

// A link that no family has use for is closed. A process that just then begins to form a clique over it joins the meeting over
// the next link, on whichever side the link was closed.
func TestCliqueOverALinkThatIsBeingClosed(t *testing.T) {
	clause.Cite(t, "CL-RDV-1", "CL-TRN-5")
	for closer := range 2 {
		inBubble(t, func(t *testing.T, w *world) {
			w.link.Timing = link.Timing{Ping: time.Hour, Suspect: time.Hour, Dead: time.Hour}
			var procs []*process
			for task := range 2 {
				w.link.Idle = -1
				if task == closer {
					w.link.Idle = 10 * time.Second
				}
				procs = append(procs, w.start(life(task, uint64(10+task))))
			}
			guest, host := procs[1], procs[0]
			if _, err := guest.net.Link(t.Context(), host.life); err != nil {
				t.Fatalf("Link() = %v", err)
			}
			release := w.network.hold(hostOf(procs[1-closer].life), hostOf(procs[closer].life))
			pause(time.Second)
			ended := make(chan struct{})
			w.atWrite(procs[closer], 0, func() { close(ended) }) // its BYE: it has nothing else to send
			<-ended
			guests := guest.form(t.Context(), 2)
			synctest.Wait()
			release()
			pause(time.Second)
			hosts := host.form(t.Context(), 2)
			for rank, f := range []*forming{hosts, guests} {
				if err := f.failed(); err != nil {
					t.Fatalf("link closed by rank %d: rank %d: %v", closer, rank, err)
				}
			}
			works(t, []*collective.Comm{hosts.comm, guests.comm}, 100)
		})
	}
}
