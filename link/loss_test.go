package link_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// expectations posts memory for a small and a large message that never come.
func expectations(t *testing.T, l *link.Link) []*link.Ticket {
	t.Helper()
	var all []*link.Ticket
	for i, size := range []int{8, 100_000} {
		ticket, err := l.Expect(data(link.Collective, uint64(i+1)), make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ticket)
	}
	ticket, err := l.Post(data(link.Transfer, 77), make([]byte, 100_000)) // no memory for it
	if err != nil {
		t.Fatal(err)
	}
	return append(all, ticket)
}

// fails checks that everything on a link has failed with one cause.
func fails(t *testing.T, l *link.Link, tickets []*link.Ticket, want error) *link.LossError {
	t.Helper()
	<-l.Done()
	loss, ok := errors.AsType[*link.LossError](l.Err())
	if !ok || !errors.Is(loss, want) {
		t.Fatalf("Err() = %v; want %v", l.Err(), want)
	}
	for i, ticket := range tickets {
		if err := ticket.Wait(t.Context()); err != l.Err() {
			t.Errorf("message %d failed with %v; want the cause of the link, %v", i, err, loss)
		}
	}
	if _, err := l.Post(data(link.Collective, 50), []byte("x")); err != l.Err() {
		t.Errorf("Post on a link that is down = %v; want its cause", err)
	}
	if _, err := l.Expect(data(link.Collective, 50), []byte("x")); err != l.Err() {
		t.Errorf("Expect on a link that is down = %v; want its cause", err)
	}
	return loss
}

// A process that is killed closes its connections, and its port refuses: that is hard evidence.
func TestKilledPeer(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-6", "CL-TRN-9")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		o := w.observe(m)
		a, _ := w.linked(m, n)
		tickets := expectations(t, a)
		synctest.Wait()
		start := time.Now()
		w.network.kill(hostOf(n.Life()))
		loss := fails(t, a, tickets, link.ErrPeerFailed)
		if loss.Source != link.FromLink || time.Since(start) > 50*time.Millisecond {
			t.Errorf("lost by %v after %v; want by link within 50ms", loss.Source, time.Since(start))
		}
		synctest.Wait()
		if !slices.Contains(w.reports(), "worker/0 suspects worker/1/11 hard=true: connection refused") {
			t.Errorf("reports are %q; want hard evidence", w.reports())
		}
		if _, kinds := o.seen(); !slices.Equal(kinds, []link.Kind{link.LinkUp, link.LinkUp, link.LinkDown, link.LinkDown}) {
			t.Errorf("events are %v; want up and down, for each family", kinds)
		}
		if _, err := m.Link(t.Context(), n.Life()); !errors.Is(err, link.ErrPeerFailed) {
			t.Errorf("Link() = %v; want ErrPeerFailed", err)
		}
	})
}

// A connection that breaks while both processes live is the fault of the link. A new link can be made.
func TestBrokenConnection(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-6")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, b := w.linked(m, n)
		onA, onB := expectations(t, a), expectations(t, b)
		synctest.Wait()
		w.network.reset(hostOf(n.Life()))
		fails(t, a, onA, link.ErrTransport)
		fails(t, b, onB, link.ErrTransport)
		for _, report := range w.reports() {
			if strings.Contains(report, "hard=true") {
				t.Errorf("hard evidence against a process that lives: %s", report)
			}
		}
		a, b = w.linked(m, n)
		if a.Err() != nil || b.Err() != nil || len(m.Links()) != 1 || len(n.Links()) != 1 {
			t.Errorf("after a new link: %v, %v, %d and %d links", a.Err(), b.Err(), len(m.Links()), len(n.Links()))
		}
	})
}

// What the service knows of a life ends its link at once, with the evidence.
func TestServiceKnows(t *testing.T) {
	clause.Cite(t, "CL-TRN-6", "CL-TRN-9")
	for name, row := range map[string]struct {
		change func(w *world, l serry.Life)
		source link.Source
		reason error
	}{
		"exit": {func(w *world, l serry.Life) { w.lose(l, "process exited: signal 9") }, link.FromLauncher, serry.ErrTaskDead},
		"dead": {func(w *world, l serry.Life) { w.lose(l, "") }, link.FromService, serry.ErrTaskDead},
		"left": {func(w *world, l serry.Life) {
			w.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation, State: serry.Disconnected})
		}, link.FromService, serry.ErrLeft},
		"replaced": {func(w *world, l serry.Life) {
			w.set(serry.TaskInfo{Task: l.Task, Incarnation: l.Incarnation + 1, State: serry.Connected})
		}, link.FromService, serry.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				m, n := w.join(life(0, 10)), w.join(life(1, 11))
				o := w.observe(m)
				a, _ := w.linked(m, n)
				tickets := expectations(t, a)
				start := time.Now()
				row.change(w, n.Life())
				loss := fails(t, a, tickets, link.ErrPeerFailed)
				if loss.Source != row.source || !errors.Is(loss, row.reason) || time.Since(start) > 0 {
					t.Errorf("lost by %v after %v: %v; want by %v at once", loss.Source, time.Since(start), loss, row.source)
				}
				dials := len(w.network.dialled())
				if _, err := m.Link(t.Context(), n.Life()); !errors.Is(err, link.ErrPeerFailed) {
					t.Errorf("Link() = %v; want ErrPeerFailed", err)
				}
				if len(w.network.dialled()) != dials {
					t.Error("the address of a lost life was dialled")
				}
				if _, kinds := o.seen(); slices.Contains(kinds, link.PeerExit) != (name == "exit") {
					t.Errorf("events are %v", kinds)
				}
			})
		})
	}
}
