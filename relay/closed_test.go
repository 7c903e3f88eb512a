package relay

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// TestClosed: the end of a client's connection is told upstream at once; its held calls are dropped.
func TestClosed(t *testing.T) {
	clause.Cite(t, "T-RLY-8", "A-SIDE-12")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("PollForError", "Barrier")
			p.start(b.Context(), coord.PollForError{Call: p.who()})
			p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			poll, barrier := b.up.taken("PollForError")[0], b.up.taken("Barrier")[0]
			p.conn.Close()
			synctest.Wait()
			b.up.mu.Lock()
			if !slices.Equal(b.up.mu.shut, []stream.Ending{stream.Closed, stream.Closed}) || !slices.Equal(b.up.mu.shutConns, []stream.ConnID{poll.Conn, barrier.Conn}) {
				b.Errorf("shut %v %v; want the connections of the poll and of the barrier, closed", b.up.mu.shutConns, b.up.mu.shut)
			}
			b.up.mu.Unlock()
			if s := b.relay.Status(); s.Clients != 0 || s.Held != 0 || s.Lives != 0 {
				b.Errorf("Status() = %+v; want nothing left", s)
			}
		})
	})
}

// TestClosedInOutage: a connection that closes while no server leads is told to the next leader, which has
// never heard of it, and to the one after, until one has understood. A life that calls again is not told of.
func TestClosedInOutage(t *testing.T) {
	clause.Cite(t, "T-RLY-8", "A-SIDE-12", "C-LOST-4")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p, left, back := b.join(d, 1, 11), b.join(d, 2, 12), b.join(d, 3, 13)
			b.up.holding("PollForError")
			for _, x := range []*peer{p, left, back} {
				x.start(b.Context(), coord.PollForError{Call: x.who()})
			}
			left.call(coord.ShutdownTask{Call: left.who()})
			b.up.down(true)
			for _, x := range []*peer{p, left, back} {
				x.conn.Close()
			}
			synctest.Wait()
			again := b.connect(d, 3, 13)
			again.start(b.Context(), coord.RegisterTask{Call: again.who()})
			for term := range uint64(3) {
				b.up.lead(2 + term)
				b.up.mu.Lock()
				b.up.mu.closed = nil
				b.up.mu.Unlock()
				b.up.down(false)
				time.Sleep(time.Second)
				synctest.Wait()
				b.up.mu.Lock()
				told := slices.Clone(b.up.mu.closed)
				b.up.mu.Unlock()
				if want := term < 2; want != (len(told) == 1 && told[0].Incarnation == 11) || !want && len(told) > 0 {
					b.Errorf("term %d: told of %v; want of life 11 alone: %v", 2+term, told, want)
				}
				if term == 1 {
					b.up.stand(p, serry.Failed, &serry.TaskError{Task: p.task, Err: serry.ErrTaskDead})
					synctest.Wait()
				}
				b.up.down(true)
			}
		})
	})
}

// TestPollsEnded: a client whose error poll the relay has ended may connect elsewhere, so the end of its connection
// is not reported as the end of the client.
func TestPollsEnded(t *testing.T) {
	clause.Cite(t, "A-HA-7", "C-LOST-4")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("PollForError")
			poll := p.start(b.Context(), coord.PollForError{Call: p.who()})
			synctest.Wait()
			b.relay.EndPolls()
			b.want("PollForError", b.ended("PollForError", poll), "Canceled")
			p.conn.Close()
			synctest.Wait()
			b.up.mu.Lock()
			defer b.up.mu.Unlock()
			if len(b.up.mu.closed) != 0 || len(b.up.mu.shut) != 1 {
				b.Errorf("reported %v, shut %v; want a connection that closed, and no end of a client", b.up.mu.closed, b.up.mu.shut)
			}
		})
	})
}

// TestPollAfterLeaving: the relay answers the error poll of a client that has left, also if the service's
// answer to it got through.
func TestPollAfterLeaving(t *testing.T) {
	clause.Cite(t, "A-SIDE-4", "C-POLL-7")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("PollForError")
			poll := p.start(b.Context(), coord.PollForError{Call: p.who()})
			b.want("ShutdownTask", p.call(coord.ShutdownTask{Call: p.who()}), "OK")
			e := b.ended("PollForError", poll)
			b.want("PollForError", e, "Canceled")
			if !hasPayload(e) {
				b.Errorf("PollForError = %+v; want a payload", e.st)
			}
		})
	})
}

// TestTwoOnOneConnection: each call is stamped with the life of its own task.
func TestTwoOnOneConnection(t *testing.T) {
	clause.Cite(t, "T-RLY-12", "A-SIDE-7", "C-INC-6")
	play(t, Config{}, func(b *bench) {
		p := b.join(wire.TF, 1, 11)
		q := *p
		q.task.Index, q.own, q.service = 2, 22, 0
		q.register()
		for _, x := range []*peer{p, &q} {
			x.call(coord.Barrier{Call: x.who(), ID: "b"})
		}
		for i, c := range b.up.taken("Barrier") {
			if want := []serry.Incarnation{11, 22}[i]; c.Stamp.Incarnation != want || c.Stamp.Task.Index != i+1 {
				b.Errorf("Barrier %d is stamped %+v; want life %d", i, c.Stamp, want)
			}
		}
		// Whose a call without a task is, cannot be told.
		p.call(coord.TryGetKeyValue{Call: p.who(), Key: "k"})
		if c := b.up.taken("TryGetKeyValue")[0]; c.Stamp.Incarnation != 0 {
			b.Errorf("TryGetKeyValue is stamped %+v; want nothing", c.Stamp)
		}
	})
}

// TestRegistrationGivenUp: a registration that the client gives up is withdrawn at the service, also if that
// happens in an outage: then when the service is back.
func TestRegistrationGivenUp(t *testing.T) {
	clause.Cite(t, "T-RLY-16", "A-SIDE-7", "C-REG-15")
	each(t, func(t *testing.T, d wire.Dialect) {
		for _, inOutage := range []bool{false, true} {
			t.Run(fmt.Sprintf("in an outage %v", inOutage), func(t *testing.T) {
				play(t, Config{}, func(b *bench) {
					b.up.holding("RegisterTask")
					p := b.connect(d, 1, 11)
					ctx, cancel := context.WithCancel(b.Context())
					done := p.start(ctx, coord.RegisterTask{Call: p.who()})
					b.pending("RegisterTask", done)
					if inOutage {
						b.up.down(true)
					}
					cancel()
					synctest.Wait()
					b.up.down(false)
					time.Sleep(time.Second)
					synctest.Wait()
					b.up.mu.Lock()
					defer b.up.mu.Unlock()
					if len(b.up.mu.cancelled) != 1 || len(b.up.mu.waiting) != 0 {
						b.Errorf("cancelled %v, waiting %v; want the registration withdrawn", b.up.mu.cancelled, b.up.mu.waiting)
					}
				})
			})
		}
	})
}
