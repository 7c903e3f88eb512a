package relay

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

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
	clause.Cite(t, "T-RLY-1", "A-SIDE-1", "A-SIDE-6", "A-SIDE-14")
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

// TestPassedOnTF is TestPassedOn for the methods that only TensorFlow's clients have.
func TestPassedOnTF(t *testing.T) {
	clause.Cite(t, "T-RLY-1", "A-SIDE-1")
	one := &tfpb.CoordinatedTask{JobName: "worker", TaskId: 1}
	play(t, Config{}, func(b *bench) {
		p := b.join(wire.TF, 1, 11)
		for path, m := range map[string]proto.Message{
			tfpb.CoordinationService_WaitForAllTasks_FullMethodName: &tfpb.WaitForAllTasksRequest{SourceTask: one},
			tfpb.CoordinationService_ResetTask_FullMethodName:       &tfpb.ResetTaskRequest{SourceTask: one},
			tfpb.CoordinationService_GetTaskState_FullMethodName:    &tfpb.GetTaskStateRequest{SourceTask: []*tfpb.CoordinatedTask{one}},
			tfpb.CoordinationService_GetJobState_FullMethodName:     &tfpb.GetJobStateRequest{JobName: "worker"},
		} {
			body := append(encode(b, m), unknown...)
			e := b.ended(path, p.raw(b.Context(), path, body))
			c := b.up.taken(path[strings.LastIndexByte(path, '/')+1:])
			if len(c) != 1 || !bytes.Equal(c[0].Body, body) || c[0].Stamp.Incarnation != 11 || !bytes.Equal(e.body, echo(body)) {
				b.Errorf("%s arrived as %+v, answered %q; want %q of life 11", path, c, e.body, body)
			}
			state := strings.HasSuffix(path, "State")
			if len(c) == 1 && state != (c[0].Number == 0) {
				b.Errorf("%s has number %d; it only reads: %v", path, c[0].Number, state)
			}
		}
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
	clause.Cite(t, "T-RLY-2", "A-SIDE-0", "A-SIDE-2", "A-SIDE-4", "A-SIDE-5", "A-SIDE-6", "A-SIDE-8")
	each(t, func(t *testing.T, d wire.Dialect) {
		for _, at := range []cut{beforeCall, beforeReply, withinReply} {
			for _, successor := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, successor %v", at, successor), func(t *testing.T) {
					play(t, Config{}, func(b *bench) {
						p := b.join(d, 1, 11)
						for _, ev := range p.events() {
							_, body := p.request(ev)
							checkCut(b, p, ev, at, successor, echo(body))
						}
						checkCut(b, p, coord.RegisterTask{Call: p.who()}, at, successor, registered(b, 77))
						checkCut(b, p, coord.WatchTasks{Call: p.who(), Version: 5, Job: "worker"}, at, successor, picture(b, 6))
						b.up.executed(b)
						if e := p.call(coord.Heartbeat{Call: p.who()}); !bytes.Equal(e.body, registered(b, 77)) {
							b.Errorf("Heartbeat() after all that = %+v; want the service 77", e)
						}
					})
				})
			}
		}
	})
}

// registered is the reply to a registration, and picture one to a watch.
func registered(b *bench, service uint64) []byte {
	return encode(b, &xlapb.RegisterTaskResponse{ServiceIncarnation: service})
}

func picture(b *bench, version int64) []byte {
	return encode(b, &xlapb.WatchTasksResponse{VersionNumber: version})
}

func encode(b *bench, m proto.Message) []byte {
	b.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// checkCut makes a call, lets the service die under it, and come back after 4 s.
func checkCut(b *bench, p *peer, ev coord.Event, at cut, successor bool, want []byte) {
	b.Helper()
	path, _ := p.request(ev)
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
	b.up.mu.version = 6 // meanwhile something has changed
	b.up.mu.Unlock()
	b.up.down(false)
	time.Sleep(2 * time.Second)
	b.up.release()
	if e := b.ended(path, done); !e.st.OK() || e.err != nil || !bytes.Equal(e.body, want) {
		b.Errorf("%s, cut %s = %q, %v, %v; want %q", path, at, e.body, e.st, e.err, want)
	}
	b.up.mu.Lock()
	b.up.mu.version = 5
	b.up.mu.Unlock()
}

// TestServersWord: an error that the service tells is passed on, whatever its code, and not tried again.
func TestServersWord(t *testing.T) {
	clause.Cite(t, "T-RLY-3", "A-SIDE-2")
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
	clause.Cite(t, "T-RLY-4", "A-SIDE-15")
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

// TestHeldBarrierHoldsNothingBack: a call that waits for other tasks does not keep the results of other
// calls from being acknowledged, nor do these those of calls that wait.
func TestHeldBarrierHoldsNothingBack(t *testing.T) {
	clause.Cite(t, "C-REQ-3", "A-SIDE-15")
	each(t, func(t *testing.T, d wire.Dialect) {
		play(t, Config{}, func(b *bench) {
			p := b.join(d, 1, 11)
			b.up.holding("Barrier")
			held := p.start(b.Context(), coord.Barrier{Call: p.who(), ID: "b"})
			for i := range 5 {
				b.want("InsertKeyValue", p.call(coord.InsertKeyValue{Call: p.who(), Key: fmt.Sprint(i)}), "OK")
			}
			inserts, barrier := b.up.taken("InsertKeyValue"), b.up.taken("Barrier")[0]
			if last := inserts[4]; last.Watermark != last.Number-1 || last.Conn == barrier.Conn || barrier.Number != 1 {
				b.Errorf("the last insertion has number %d over watermark %d, the barrier %d; want all before it acknowledged, and 1 of another requester",
					last.Number, last.Watermark, barrier.Number)
			}
			b.pending("Barrier", held)
			b.up.release()
			b.want("Barrier", b.ended("Barrier", held), "OK")
			time.Sleep(stream.BeatEvery)
			synctest.Wait()
			b.up.mu.Lock()
			defer b.up.mu.Unlock()
			if got := b.up.mu.marks[barrier.Conn]; got != 1 {
				b.Errorf("a beat says watermark %d of the barrier; want 1", got)
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
// TestClosedInOutage: a client that dies while there is no service is made known to the next leader,
// TestPollAfterLeaving: the error poll of a client that has left ends, whether or not the service's own
// TestRegistrationGivenUp: a registration that nobody waits for any more is withdrawn, at once or when
