package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// clause says which clauses a test is about.
func clause(t testing.TB, ids ...string) {
	t.Helper()
	t.Attr("clause", strings.Join(ids, " "))
}

// events are the calls that a client makes, but for those that a relay answers itself.
func (p *peer) events() []coord.Event {
	who := p.who()
	return []coord.Event{
		coord.GetKeyValue{Call: who, Key: "k"},
		coord.TryGetKeyValue{Call: who, Key: "k"},
		coord.GetKeyValueDir{Call: who, Dir: "d"},
		coord.InsertKeyValue{Call: who, Key: "k", Value: []byte("\x00\xff")},
		coord.IncrementKeyValue{Call: who, Key: "k", By: 2},
		coord.DeleteKeyValue{Call: who, Key: "k"},
		coord.Barrier{Call: who, ID: "b", Counter: 3, Timeout: time.Minute},
		coord.CancelBarrier{Call: who, ID: "b", Counter: 3},
		coord.GetAliveTasks{Call: who, Tasks: []serry.TaskID{p.task}},
		coord.ReportError{Call: who, Code: 13, Text: "hung"},
		coord.PollForError{Call: who},
		coord.ShutdownTask{Call: who},
	}
}

// changes says whether a call of this name changes state (C-REQ-1).
func changes(method string) bool {
	switch method[strings.LastIndexByte(method, '/')+1:] {
	case "RegisterTask", "ShutdownTask", "ReportErrorToService", "InsertKeyValue", "IncrementKeyValue",
		"DeleteKeyValue", "Barrier", "CancelBarrier", "GetAliveTasks":
		return true
	}
	return false
}

// TestPassedOn: a call arrives as it was sent, with who sent it and, if it changes something, an id.
func TestPassedOn(t *testing.T) {
	clause(t, "T-RLY-1", "A-SIDE-1", "A-SIDE-6", "A-SIDE-14")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			for _, ev := range p.events() {
				path, body := p.request(ev)
				e := p.call(ev)
				calls := b.up.taken(path[strings.LastIndexByte(path, '/')+1:])
				if len(calls) != 1 {
					b.Fatalf("%s came %d times; want once", path, len(calls))
				}
				c := calls[0]
				if c.Method != path || !bytes.Equal(c.Body, body) {
					b.Errorf("%s arrived as %s %q; want %q", path, c.Method, c.Body, body)
				}
				if c.Stamp.Incarnation != 11 || c.Stamp.Task.Index != 1 || c.Stamp.Service != 77 {
					b.Errorf("%s is stamped %+v; want life 11 of task 1, of service 77", path, c.Stamp)
				}
				if changes(path) != (c.Number > 0) {
					b.Errorf("%s has number %d; changes state: %v", path, c.Number, changes(path))
				}
				if !e.st.OK() || !bytes.Equal(e.body, echo(body)) {
					b.Errorf("%s = %q, %v; want %q", path, e.body, e.st, echo(body))
				}
			}
		})
	})
}

// A cut is a moment at which the service dies under a call.
type cut string

const (
	beforeCall  cut = "before the call"
	beforeReply cut = "between call and reply"
	withinReply cut = "within the reply"
)

// TestCut: whatever is cut when, a client sees one reply to each call, the right one, and what it changed
// was changed once.
func TestCut(t *testing.T) {
	clause(t, "T-RLY-2", "A-SIDE-0", "A-SIDE-2", "A-SIDE-4", "A-SIDE-5", "A-SIDE-6", "A-SIDE-8")
	each(t, func(t *testing.T, d wire.Dialect) {
		for _, at := range []cut{beforeCall, beforeReply, withinReply} {
			for _, successor := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, successor %v", at, successor), func(t *testing.T) {
					play(t, Config{}, func(b *bench) {
						p := b.join(d, 1, 11)
						for _, ev := range p.events() {
							checkCut(b, p, ev, at, successor)
						}
						b.up.executed(b)
					})
				})
			}
		}
	})
}

func checkCut(b *bench, p *peer, ev coord.Event, at cut, successor bool) {
	b.Helper()
	path, body := p.request(ev)
	method := path[strings.LastIndexByte(path, '/')+1:]
	switch at {
	case beforeCall:
		b.up.down(true)
	case beforeReply:
		b.up.holding(method)
	case withinReply:
		b.up.holding(method)
	}
	done := p.start(b.Context(), ev)
	b.pending(path, done)
	switch at {
	case beforeReply:
		b.up.down(true)
	case withinReply:
		b.up.mu.Lock()
		for _, c := range b.up.mu.conns {
			c.cutAfter(9)
		}
		b.up.mu.refuse = true
		b.up.mu.Unlock()
		b.up.release()
	}
	b.pending(path, done)
	time.Sleep(4 * time.Second)
	if successor {
		b.up.lead(b.up.mu.term + 1)
	}
	b.up.mu.Lock()
	b.up.mu.hold = nil
	b.up.mu.Unlock()
	b.up.down(false)
	time.Sleep(2 * time.Second)
	b.up.release()
	if e := b.ended(path, done); !e.st.OK() || e.err != nil || !bytes.Equal(e.body, echo(body)) {
		b.Errorf("%s, cut %s = %q, %v, %v; want %q", path, at, e.body, e.st, e.err, echo(body))
	}
}

// TestServersWord: an error that the service tells is passed on, whatever its code, and not tried again.
func TestServersWord(t *testing.T) {
	clause(t, "T-RLY-3", "A-SIDE-2")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			dead := rpc.Status{Code: codes.Unavailable, Message: "a task died", Details: []byte("\x0a\x01\x41")}
			b.up.mu.answer = func(*stream.Call) ([]byte, rpc.Status, bool) { return nil, dead, true }
			for _, ev := range []coord.Event{coord.PollForError{Call: p.who()}, coord.Barrier{Call: p.who(), ID: "b"}} {
				e := p.call(ev)
				if e.st.Code != dead.Code || e.st.Message != dead.Message || !bytes.Equal(e.st.Details, dead.Details) {
					b.Errorf("%T = %+v; want %+v", ev, e.st, dead)
				}
			}
			if n := len(b.up.taken("Barrier")) + len(b.up.taken("PollForError")); n != 2 {
				b.Errorf("the service got %d calls; want 2", n)
			}
		})
	})
}

// TestWatermark: it rises over results that were delivered, without a gap; a call that is gone counts.
func TestWatermark(t *testing.T) {
	clause(t, "T-RLY-4", "A-SIDE-15")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.connect(d, 1, 11)
			b.up.holding("IncrementKeyValue")
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			var calls []<-chan end
			for i := range 3 {
				calls = append(calls, p.start(ctx, coord.IncrementKeyValue{Call: p.who(), Key: fmt.Sprint("k", i), By: 1}))
			}
			probe := func() uint64 { // reads carry the watermark, too
				p.call(coord.TryGetKeyValue{Call: p.who(), Key: "k"})
				all := b.up.taken("TryGetKeyValue")
				return all[len(all)-1].Watermark
			}
			for i, want := range []uint64{0, 1, 3} {
				b.up.releaseNumber([]uint64{3, 1, 2}[i])
				b.ended("IncrementKeyValue", calls[[]int{2, 0, 1}[i]])
				if got := probe(); got != want {
					b.Errorf("the watermark after reply %d is %d; want %d", i, got, want)
				}
			}
			p.start(ctx, coord.IncrementKeyValue{Call: p.who(), Key: "gone", By: 1})
			p.start(b.Context(), coord.IncrementKeyValue{Call: p.who(), Key: "more", By: 1})
			b.up.releaseNumber(5)
			if got := probe(); got != 3 {
				b.Errorf("the watermark with 4 open is %d; want 3", got)
			}
			cancel()
			synctest.Wait()
			if got := probe(); got != 5 {
				b.Errorf("the watermark after 4 was given up is %d; want 5", got)
			}
			// Nothing more is called: the last results are acknowledged with a beat.
			done := p.start(b.Context(), coord.IncrementKeyValue{Call: p.who(), Key: "last", By: 1})
			b.up.releaseNumber(6)
			b.ended("IncrementKeyValue", done)
			time.Sleep(stream.BeatEvery)
			synctest.Wait()
			b.up.mu.Lock()
			defer b.up.mu.Unlock()
			if len(b.up.mu.marks) != 1 {
				b.Errorf("beats acknowledged for %d requesters; want 1", len(b.up.mu.marks))
			}
			for _, got := range b.up.mu.marks {
				if got != 6 {
					b.Errorf("a beat says watermark %d; want 6", got)
				}
			}
		})
	})
}

// releaseNumber answers the waiting call with a number.
func (u *upstream) releaseNumber(n uint64) {
	u.mu.Lock()
	var found []waitingCall
	for i, w := range u.mu.waiting {
		if w.call.Number == n {
			found = append(found, w)
			u.mu.waiting = append(u.mu.waiting[:i:i], u.mu.waiting[i+1:]...)
			break
		}
	}
	u.mu.Unlock()
	for _, w := range found {
		u.reply(w)
		w.conn.Flush()
	}
	synctest.Wait()
}

// TestBeatsInOutage: heartbeats are answered at once whether or not there is a service; what the table
// does not know goes upstream when there is one.
func TestBeatsInOutage(t *testing.T) {
	clause(t, "T-RLY-5", "A-SIDE-3")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p, failed := b.join(d, 1, 11), b.join(d, 2, 12)
			stored := &serry.TaskError{Task: failed.task, Evidence: "signal 9", Err: serry.ErrTaskDead}
			b.up.stand(failed, serry.Failed, stored)
			synctest.Wait()
			b.up.down(true)
			wrong := *p
			wrong.own = 99
			late := wrong.start(b.Context(), coord.Heartbeat{Call: wrong.who()})
			for range 10 {
				time.Sleep(3 * time.Second)
				e := b.ended("Heartbeat", p.start(b.Context(), coord.Heartbeat{Call: p.who()}))
				r, err := d.Result(coord.Heartbeat{}, e.body)
				if !e.st.OK() || err != nil || r != (coord.Registered{Service: 77}) {
					b.Fatalf("Heartbeat() in an outage = %v, %v, %v; want the service 77", r, e.st, err)
				}
				e = b.ended("Heartbeat of a failed task", failed.start(b.Context(), coord.Heartbeat{Call: failed.who()}))
				b.want("Heartbeat of a failed task", e, "Aborted")
				if !hasPayload(e) || !strings.Contains(e.st.Message, "signal 9") {
					b.Errorf("Heartbeat of a failed task = %+v; want a payload, and signal 9 named", e.st)
				}
			}
			b.pending("Heartbeat of another life", late)
			b.up.down(false)
			time.Sleep(time.Second)
			b.ended("Heartbeat of another life", late)
			if all := b.up.taken("Heartbeat"); len(all) != 1 {
				b.Errorf("the service got %d heartbeats; want 1", len(all))
			}
		})
	})
}

// TestHeard: a beat lists the clients that were heard since the last one, and no others.
func TestHeard(t *testing.T) {
	clause(t, "T-RLY-6", "A-SIDE-3", "A-SIDE-18")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p, paused := b.join(d, 1, 11), b.join(d, 2, 12)
			p.call(coord.Heartbeat{Call: p.who()})
			paused.call(coord.Heartbeat{Call: paused.who()})
			time.Sleep(2*stream.BeatEvery + stream.BeatEvery/2) // between two beats
			for range 20 {                                      // of paused nothing is heard any more
				p.call(coord.Heartbeat{Call: p.who()})
				time.Sleep(stream.BeatEvery)
			}
			synctest.Wait()
			b.up.mu.Lock()
			defer b.up.mu.Unlock()
			count := make(map[serry.Incarnation]int)
			for _, l := range b.up.mu.heard {
				count[l.Incarnation]++
				if l.Task.Job != "worker" {
					b.Errorf("heard %v; want it under the name that the service has for it", l)
				}
			}
			if count[12] != 1 || count[11] != 21 {
				b.Errorf("heard %v; want 11 21 times, 12 once", count)
			}
		})
	})
}

// TestClosed: the end of a client's connection is told upstream at once; its held calls are dropped.
func TestClosed(t *testing.T) {
	clause(t, "T-RLY-8", "A-SIDE-12")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("PollForError", "Barrier")
			p.start(b.Context(), coord.PollForError{Call: p.who()})
			p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			poll := b.up.taken("PollForError")[0]
			p.conn.Close()
			synctest.Wait()
			b.up.mu.Lock()
			if len(b.up.mu.shut) != 1 || b.up.mu.shut[0] != stream.Closed || b.up.mu.shutConns[0] != poll.Conn {
				b.Errorf("shut %v %v; want the connection of the poll, closed", b.up.mu.shutConns, b.up.mu.shut)
			}
			b.up.mu.Unlock()
			if s := b.relay.Status(); s.Clients != 0 || s.Held != 0 || s.Lives != 0 {
				b.Errorf("Status() = %+v; want nothing left", s)
			}
		})
	})
}

// TestClosedInOutage: a client that dies while there is no service is made known to the next leader,
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

// TestPollAfterLeaving: the error poll of a client that has left ends, whether or not the service's own
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

// TestWatchesAreShared: one watch upstream serves all clients.
func TestWatchesAreShared(t *testing.T) {
	clause(t, "T-RLY-9", "A-SIDE-17")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			name := map[wire.Dialect]string{wire.XLA: "WatchTasks", wire.TF: "WatchJobState"}[d]
			var peers []*peer
			for i := range 8 {
				peers = append(peers, b.join(d, i, serry.Incarnation(100+i)))
			}
			watch := func(p *peer, version int64) <-chan end {
				return p.start(b.Context(), coord.WatchTasks{Call: p.who(), Version: version, Job: "worker"})
			}
			version := func(e end) int64 {
				r, err := d.Result(coord.WatchTasks{}, e.body)
				if err != nil || !e.st.OK() {
					b.Fatalf("%s = %v, %v", name, e.st, err)
				}
				return r.(*coord.Picture).Version
			}
			for _, p := range peers { // -1: at once
				if v := version(b.ended(name, watch(p, -1))); v != 5 {
					b.Errorf("%s(-1) = version %d; want 5", name, v)
				}
			}
			var waiting []<-chan end
			for _, p := range peers {
				waiting = append(waiting, watch(p, 5))
			}
			b.pending(name, waiting[0])
			if v := version(b.ended(name, watch(peers[0], 9))); v != 5 { // from the future: from the past
				b.Errorf("%s(9) = version %d; want 5", name, v)
			}
			if n := len(b.up.taken(name)); n != 2 {
				b.Errorf("%d watches upstream; want the first and the one that waits", n)
			}
			b.up.mu.Lock()
			b.up.mu.version = 6
			b.up.mu.Unlock()
			b.up.release()
			for _, w := range waiting {
				if v := version(b.ended(name, w)); v != 6 {
					b.Errorf("%s(5) = version %d; want 6", name, v)
				}
			}
			if n := len(b.up.taken(name)); n != 3 {
				b.Errorf("%d watches upstream after one change; want 3", n)
			}
			if d != wire.XLA {
				return
			}
			older := *peers[0]
			older.service = 76
			e := b.ended(name, watch(&older, 6))
			b.want("WatchTasks of an older service", e, "Internal")
			if err := d.Error(e.st.Code, e.st.Message, e.st.Details); !errors.Is(err, serry.ErrMismatch) {
				b.Errorf("WatchTasks of an older service = %v; want a mismatch", err)
			}
			if n := len(b.up.taken(name)); n != 3 {
				b.Errorf("%d watches upstream; want nothing more", n)
			}
		})
	})
}

// TestNewEpoch: clients of an older epoch are told so, whatever they wait for or call.
func TestNewEpoch(t *testing.T) {
	clause(t, "T-RLY-10", "A-SIDE-9", "C-EPOCH-5")
	each(t, func(t *testing.T, d wire.Dialect) {
		for _, inOutage := range []bool{false, true} {
			t.Run(fmt.Sprintf("in an outage %v", inOutage), func(t *testing.T) {
				play(t, Config{}, func(b *bench) {
					p := b.join(d, 1, 11)
					b.up.holding("PollForError", "GetKeyValue")
					held := map[string]<-chan end{
						"PollForError": p.start(b.Context(), coord.PollForError{Call: p.who()}),
						"GetKeyValue":  p.start(b.Context(), coord.GetKeyValue{Call: p.who(), Key: "k"}),
						"watch":        p.start(b.Context(), coord.WatchTasks{Call: p.who(), Version: 5, Job: "worker"}),
					}
					if inOutage {
						b.up.down(true)
						b.up.lead(2)
					}
					b.up.open(78)
					b.up.down(false)
					time.Sleep(time.Second)
					for name, done := range held {
						wantOlder(b, d, name, b.ended(name, done))
					}
					before := len(b.up.mu.calls)
					for _, ev := range append(p.events(), coord.Heartbeat{Call: p.who()}) {
						wantOlder(b, d, fmt.Sprintf("%T", ev), p.call(ev))
					}
					if n := len(b.up.mu.calls); n != before {
						b.Errorf("calls of an older epoch went upstream: %v", b.up.mu.calls[before:])
					}
					b.up.release()
					if q := b.join(d, 2, 21); q.service != 78 {
						b.Errorf("a newcomer is in epoch %d; want 78", q.service)
					} else {
						b.want("Barrier of a newcomer", q.call(coord.Barrier{Call: q.who(), ID: "b"}), "OK")
					}
				})
			})
		}
	})
}

// wantOlder checks that a caller was told that it belongs to an older epoch.
func wantOlder(b *bench, d wire.Dialect, what string, e end) {
	b.Helper()
	want := map[wire.Dialect]string{wire.XLA: "Internal", wire.TF: "Aborted"}[d]
	b.want(what, e, want)
	err := d.Error(e.st.Code, e.st.Message, e.st.Details)
	if !hasPayload(e) || !errors.Is(err, serry.ErrMismatch) {
		b.Errorf("%s of an older epoch = %v; want a mismatch with its payload", what, err)
	}
}

// TestGivenUp: an outage that lasts too long ends what waits, in a way that ends the client.
func TestGivenUp(t *testing.T) {
	clause(t, "T-RLY-11", "A-SIDE-10")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("PollForError", "Barrier", "RegisterTask")
			poll := p.start(b.Context(), coord.PollForError{Call: p.who()})
			barrier := p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			newcomer := b.connect(d, 2, 12)
			joining := newcomer.start(b.Context(), coord.RegisterTask{Call: newcomer.who()})
			b.up.down(true)
			time.Sleep(DefaultGiveUp - time.Second)
			b.pending("PollForError", poll)
			b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
			time.Sleep(time.Second)
			for name, e := range map[string]end{
				"PollForError": b.ended("PollForError", poll), "Barrier": b.ended("Barrier", barrier),
				"a later poll": p.call(coord.PollForError{Call: p.who()}),
				"Heartbeat":    p.call(coord.Heartbeat{Call: p.who()}),
			} {
				b.want(name, e, "Unavailable")
				if !hasPayload(e) {
					b.Errorf("%s = %+v; want a payload", name, e.st)
				}
			}
			b.pending("RegisterTask", joining)
			if s := b.relay.Status(); !s.Down || !s.GivenUp || s.Why == nil {
				b.Errorf("Status() = %+v; want it down and given up", s)
			}
			b.up.down(false)
			time.Sleep(time.Second)
			b.up.release()
			b.want("RegisterTask", b.ended("RegisterTask", joining), "OK")
			b.want("Heartbeat", p.call(coord.Heartbeat{Call: p.who()}), "OK")
			if s := b.relay.Status(); s.Down || s.GivenUp || s.Outages != 1 || s.Longest < DefaultGiveUp {
				b.Errorf("Status() = %+v; want it found after one outage", s)
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

// TestSecondConnection: a connection that falls silent is replaced, and nothing runs twice.
func TestSecondConnection(t *testing.T) {
	clause(t, "T-RLY-13", "A-SIDE-18")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("Barrier")
			done := p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			b.up.mu.Lock()
			dials := b.up.mu.dials
			stalled := b.up.mu.conns[len(b.up.mu.conns)-1]
			b.up.mu.Unlock()
			defer stalled.stop()() // whatever is written there hangs, and nothing tells
			begun := time.Now()
			for time.Since(begun) < 10*time.Second {
				time.Sleep(100 * time.Millisecond)
				b.up.mu.Lock()
				now := b.up.mu.dials
				b.up.mu.Unlock()
				if now > dials {
					break
				}
			}
			if took := time.Since(begun); took > stream.ResumeAfter+2*stream.BeatEvery {
				b.Errorf("a second connection after %v; want it after about %v", took, stream.ResumeAfter)
			}
			time.Sleep(time.Second)
			// The server closes the first connection when it has the second, perhaps before we have.
			if s := b.relay.Status(); s.Down || s.Longest != 0 {
				b.Errorf("Status() = %+v; want it up, at no time without a connection", s)
			}
			b.up.release()
			b.want("Barrier", b.ended("Barrier", done), "OK")
			if n := len(b.up.taken("Barrier")); n != 1 {
				b.Errorf("the service took the call %d times; want once", n)
			}
		})
	})
}

// TestOldTerm: what a deposed leader says is not passed on.
func TestOldTerm(t *testing.T) {
	clause(t, "T-RLY-14", "A-SIDE-20", "C-TERM-1")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			b.up.lead(4)
			time.Sleep(time.Second)
			p := b.join(d, 1, 11)
			b.up.down(true)
			b.up.lead(3) // a leader that was frozen comes back
			b.up.down(false)
			done := p.start(b.Context(), coord.TryGetKeyValue{Call: p.who(), Key: "k"})
			time.Sleep(5 * time.Second)
			b.pending("TryGetKeyValue at a deposed leader", done)
			if n := len(b.up.taken("TryGetKeyValue")); n != 0 {
				b.Errorf("a deposed leader got %d calls; want none", n)
			}
			b.up.lead(5)
			time.Sleep(2 * time.Second)
			b.want("TryGetKeyValue", b.ended("TryGetKeyValue", done), "OK")
			if s := b.relay.Status(); s.Term != 5 {
				b.Errorf("Status() = term %d; want 5", s.Term)
			}
		})
	})
}

// TestRegistrationGivenUp: a registration that nobody waits for any more is withdrawn, at once or when
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
