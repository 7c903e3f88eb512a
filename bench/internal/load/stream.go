package load

import (
	"context"
	"math/rand/v2"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A streamLine is a stream that carries the calls of some tasks, each on a virtual connection of its
// own and with request ids, as a relay's does.
type streamLine struct {
	host *stream.Host
	up   chan struct{} // closed when the service has answered

	mu struct {
		sync.Mutex
		up    bool
		last  rpc.CallID
		calls map[rpc.CallID]back.Done
		tasks map[int]*streamTask
	}
}

// streamTask is what is known of a task behind a stream.
type streamTask struct {
	conn   stream.ConnID
	number uint64 // of its last call with a request id
}

// dialStream connects to a server.
func dialStream(ctx context.Context, addr string, o LineOptions) (*streamLine, error) {
	l := &streamLine{up: make(chan struct{})}
	l.mu.calls = make(map[rpc.CallID]back.Done)
	l.mu.tasks = make(map[int]*streamTask)
	l.mu.Lock() // the sink may be told something before there is a host
	l.host = stream.NewHost(stream.HostConfig{Addresses: []string{addr}, Kind: stream.Relay, Sink: lineSink{l}, TLS: o.TLS, Dial: o.Connect})
	l.mu.Unlock()
	select {
	case <-l.up:
		return l, nil
	case <-ctx.Done():
		l.Close()
		return nil, context.Cause(ctx)
	}
}

// Start implements [Line].
func (l *streamLine) Start(task int, method string, request []byte, done back.Done) {
	c := stream.Call{
		Stamp:  stream.Stamp{Life: serry.Life{Task: serry.TaskID{Index: task}, Incarnation: serry.Incarnation(Incarnation(task))}},
		Method: method, Body: request,
	}
	l.mu.Lock()
	t := l.mu.tasks[task]
	fresh := t == nil
	if fresh {
		t = &streamTask{conn: stream.ConnID(rand.Uint64())}
		l.mu.tasks[task] = t
	}
	l.mu.last++
	c.Conn, c.ID = t.conn, l.mu.last
	if changes(method) {
		c.Watermark = t.number // a task waits for one before it makes the next
		t.number++
		c.Number = t.number
	}
	l.mu.calls[c.ID] = done
	l.mu.Unlock()
	if fresh {
		l.host.Open(c.Conn)
	}
	if err := l.host.Call(c); err != nil {
		l.end(c.ID, nil, rpc.Status{}, err)
	}
}

// changes says whether a relay sends such a call with a request id.
func changes(method string) bool {
	return method != TryGetKey && method != PollForError && method != Heartbeat && method != WatchTasks
}

// Exited says that the process of a task has ended, as a relay does that watches it.
func (l *streamLine) Exited(life serry.Life, cause string) { l.host.Exited(life, cause) }

// Flush implements [Line].
func (l *streamLine) Flush() { l.host.Flush() }

// Close implements [Line].
func (l *streamLine) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // the server is gone by now
	_ = l.host.Close(ctx)
}

func (l *streamLine) end(id rpc.CallID, body []byte, st rpc.Status, err error) {
	l.mu.Lock()
	done := l.mu.calls[id]
	delete(l.mu.calls, id)
	l.mu.Unlock()
	if done != nil {
		done(body, st, err)
	}
}

// lineSink is a streamLine as its host sees it.
type lineSink struct{ *streamLine }

// Reply implements [stream.Sink].
func (s lineSink) Reply(r stream.Reply) { s.end(r.Call, r.Body, r.Status, nil) }

// Standing implements [stream.Sink].
func (s lineSink) Standing(stream.Standing) {}

// Epoch implements [stream.Sink].
func (s lineSink) Epoch(serry.Incarnation) {}

// Up implements [stream.Sink].
func (s lineSink) Up(uint64, serry.Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.up {
		s.mu.up = true
		close(s.up)
	}
}

// Down implements [stream.Sink]. A host connects again by itself.
func (s lineSink) Down(error) {}

// Flush implements [stream.Sink]: calls that answers led to.
func (s lineSink) Flush() {
	s.mu.Lock()
	h := s.host
	s.mu.Unlock()
	h.Flush()
}
