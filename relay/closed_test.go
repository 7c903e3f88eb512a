package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// TestClosed: the end of a client's connection is told upstream at once; its held calls are dropped.
func TestClosed(t *testing.T) {
	clause(t, "T-RLY-8", "A-SIDE-12")
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

// who has never heard of its connection; and to the one after, until one has understood.
func TestClosedInOutage(t *testing.T) {
	clause(t, "T-RLY-8", "A-SIDE-12", "C-LOST-4")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p, left := b.join(d, 1, 11), b.join(d, 2, 12)
			b.up.holding("PollForError")
			p.start(b.Context(), coord.PollForError{Call: p.who()})
			left.start(b.Context(), coord.PollForError{Call: left.who()})
			left.call(coord.ShutdownTask{Call: left.who()})
			b.up.down(true)
			p.conn.Close()
			left.conn.Close()
			for term := range uint64(3) {
				b.up.lead(2 + term)
				b.up.mu.Lock()
				b.up.mu.shutConns = nil
				before := len(b.up.mu.calls)
				b.up.mu.Unlock()
				b.up.down(false)
				time.Sleep(time.Second)
				synctest.Wait()
				b.up.mu.Lock()
				var polls []stream.Call
				for _, c := range b.up.mu.calls[before:] {
					if strings.HasSuffix(c.Method, "/PollForError") {
						polls = append(polls, c)
					}
				}
				told := len(polls) == 1 && polls[0].Stamp.Incarnation == 11 && len(b.up.mu.shutConns) == 1 && b.up.mu.shutConns[0] == polls[0].Conn
				b.up.mu.Unlock()
				if want := term < 2; told != want {
					b.Errorf("term %d: polls %v, shut %v; told %v, want %v", 2+term, polls, b.up.mu.shutConns, told, want)
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

// answer to it got through.
func TestPollAfterLeaving(t *testing.T) {
	clause(t, "A-SIDE-4", "C-POLL-7")
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
	clause(t, "T-RLY-12", "A-SIDE-7", "C-INC-6")
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

// the service is back.
func TestRegistrationGivenUp(t *testing.T) {
	clause(t, "T-RLY-16", "A-SIDE-7", "C-REG-15")
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
