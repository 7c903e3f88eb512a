// Package agent is a client of the coordination service that lives and dies by the rules of the one in
// jaxlib ([stock]), at a fraction of its cost: hundreds of them fit into a process.
//
// [Connect] registers a task, begins its heartbeats and opens its error poll, over one connection that
// is never made anew. From then on [Agent.Dead] is closed the moment a real client would have ended its
// process: its error poll was answered with anything but CANCELLED, its connection broke, a heartbeat
// failed, or the service was another one. Nothing is forgiven, and nothing is tried again that a real
// client would not try again.
package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/stock"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A Config says which task connects, and where.
type Config struct {
	Address     string // as back.Dial takes it
	Task        int
	Incarnation uint64 // of this life

	// HeartbeatTimeout is that of the service. Half of it is the interval of heartbeats, and what each of
	// them may take.
	HeartbeatTimeout time.Duration
}

// An Agent is one life of a task.
type Agent struct {
	// Set in Connect, then constant.
	cfg     Config
	conn    *back.Conn
	service uint64

	stop context.CancelFunc // of heartbeats
	work sync.WaitGroup

	once  sync.Once // of dying
	dead  chan struct{}
	at    time.Time // with dead
	cause error     // with dead
}

// A DeathError says what a client died of.
type DeathError struct {
	Method string // the call
	Err    error
}

func (e *DeathError) Error() string { return e.Method + ": " + e.Err.Error() }

func (e *DeathError) Unwrap() error { return e.Err }

// Connect registers a task and returns when the service has admitted it, or ctx ends. As with a real
// client, failures that the service did not sign are tried again until then.
func Connect(ctx context.Context, cfg Config) (*Agent, error) {
	request := marshal(&xlapb.RegisterTaskRequest{Incarnation: cfg.Incarnation, SourceTaskId: int32(cfg.Task)})
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		a, err := register(ctx, cfg, request)
		if err == nil {
			return a, nil
		}
		if _, ok := errors.AsType[*DeathError](err); ok {
			return nil, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("task %d does not come to register: %w", cfg.Task, err)
		}
	}
}

const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// register makes one attempt.
func register(ctx context.Context, cfg Config, request []byte) (*Agent, error) {
	conn, err := back.Dial(ctx, cfg.Address, back.Options{})
	if err != nil {
		return nil, err
	}
	body, st, err := conn.Call(ctx, registerTask, request)
	var reply xlapb.RegisterTaskResponse
	if err == nil && st.OK() {
		err = proto.Unmarshal(body, &reply)
	}
	if err := failure(st, err); err != nil {
		conn.Close()
		if stock.Ends(coord.KindRegisterTask, st) {
			return nil, &DeathError{registerTask, err}
		}
		return nil, err
	}
	a := &Agent{cfg: cfg, conn: conn, service: reply.GetServiceIncarnation(), dead: make(chan struct{})}
	beating, stop := context.WithCancel(context.Background())
	a.stop = stop
	poll := marshal(&xlapb.PollForErrorRequest{Incarnations: a.Incarnations(), SourceTaskId: int32(cfg.Task)})
	conn.Start(pollForError, poll, func(_ []byte, st rpc.Status, err error) { a.judge(pollForError, st, err) })
	conn.Flush()
	a.work.Go(func() { a.beat(beating) })
	return a, nil
}

// Incarnations is what every request names.
func (a *Agent) Incarnations() *xlapb.Incarnations {
	return &xlapb.Incarnations{TaskIncarnation: a.cfg.Incarnation, ServiceIncarnation: a.service}
}

// Task is the number of the task.
func (a *Agent) Task() int { return a.cfg.Task }

// Call makes a call and reads its reply. An error is what the caller of a real client would see; that it
// may also have ended the process, Dead says.
func (a *Agent) Call(ctx context.Context, method string, request, reply proto.Message) error {
	body, st, err := a.conn.Call(ctx, method, marshal(request))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.judge(method, st, err)
	if err := failure(st, err); err != nil {
		return err
	}
	return proto.Unmarshal(body, reply)
}

// Shutdown leaves the job, as the last call of a real client.
func (a *Agent) Shutdown(ctx context.Context) error {
	return a.Call(ctx, shutdownTask, &xlapb.ShutdownTaskRequest{Incarnations: a.Incarnations(), SourceTaskId: int32(a.cfg.Task)}, new(xlapb.ShutdownTaskResponse))
}

// Dead is closed when a real client would have ended its process.
func (a *Agent) Dead() <-chan struct{} { return a.dead }

// Death says when and of what, once Dead is closed.
func (a *Agent) Death() (time.Time, error) { return a.at, a.cause }

// Close ends the connection, as the end of a process does, and everything else of the agent.
func (a *Agent) Close() {
	a.stop()
	a.die(&DeathError{"close", errors.New("closed")})
	a.work.Wait()
	a.conn.Close()
}

// beat sends heartbeats, the next one interval after the last was answered.
func (a *Agent) beat(ctx context.Context) {
	interval := a.cfg.HeartbeatTimeout / 2
	request := marshal(&xlapb.HeartbeatRequest{Incarnations: a.Incarnations(), Incarnation: a.cfg.Incarnation, SourceTaskId: int32(a.cfg.Task)})
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-a.dead:
			return
		case <-ctx.Done():
			return
		}
		body, st, err := a.beatOnce(ctx, request, interval)
		if ctx.Err() != nil {
			return
		}
		var reply xlapb.HeartbeatResponse
		if err == nil && st.OK() {
			err = proto.Unmarshal(body, &reply)
		}
		if err == nil && st.OK() && reply.GetServiceIncarnation() != a.service {
			st = rpc.Status{Code: codes.Aborted, Message: fmt.Sprintf("service incarnation %d; want %d", reply.GetServiceIncarnation(), a.service)}
		}
		a.judge(heartbeat, st, err)
		timer.Reset(interval)
	}
}

// beatOnce sends one heartbeat, again if a real client would, each time with a deadline of its own.
func (a *Agent) beatOnce(ctx context.Context, request []byte, deadline time.Duration) (body []byte, st rpc.Status, err error) {
	for _, pause := range []time.Duration{time.Millisecond, 1300 * time.Microsecond, 1690 * time.Microsecond, 0} {
		limited, cancel := context.WithTimeout(ctx, deadline)
		body, st, err = a.conn.Call(limited, heartbeat, request)
		cancel()
		if pause == 0 || !stock.BeatsAgain(seen(st, err)) {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return body, st, err
}

// judge lets the client die if the end of a call would have it die.
func (a *Agent) judge(method string, st rpc.Status, err error) {
	if !stock.Ends(kinds[method], seen(st, err)) {
		return
	}
	why := failure(st, err)
	if why == nil {
		why = errors.New("answered OK")
	}
	a.die(&DeathError{method, why})
}

func (a *Agent) die(why error) {
	a.once.Do(func() {
		a.at, a.cause = time.Now(), why
		close(a.dead)
	})
}
