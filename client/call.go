package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// caller is what all our calls have in common.
func (m *Member) caller() coord.Call {
	return coord.Call{Service: m.service, Task: m.cfg.Task, Incarnation: m.cfg.Incarnation}
}

// changing is caller for a call that changes something: with an id, so that it can be sent again.
// The function returned must be called once the answer is here.
func (m *Member) changing() (coord.Call, func()) {
	c := m.caller()
	if m.dialect != wire.Serry {
		return c, func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetGivenUp(m.mu.numbers.Last())
	number := m.mu.numbers.Next()
	c.ID = coord.RequestID{Requester: m.requester, Number: number, Watermark: m.mu.numbers.Watermark()}
	return c, func() {
		m.mu.Lock()
		m.mu.numbers.Deliver(number)
		m.mu.Unlock()
	}
}

// call makes a call and waits for its answer, the end of ctx, or the end of the member. While the
// service cannot be reached a call that may be repeated is.
func (m *Member) call(ctx context.Context, ev coord.Event) (coord.Result, error) {
	if err := m.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(m.ctx, func() { cancel(m.Err()) })
	defer stop()
	m.count.calls.Add(1)
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		result, err := exchange(ctx, m.transport, m.dialect, ev)
		if !errors.Is(err, errUnreachable) {
			return result, m.heard(ctx, err)
		}
		m.missed(time.Now(), err)
		m.probe()
		if !m.repeatable(ev) {
			return nil, fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		if err := pause.For(ctx, jittered(wait)); err != nil {
			return nil, err
		}
		m.count.repeats.Add(1)
	}
}

const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = time.Second
)

// heard looks at what an answer means for the membership, and passes the error on.
func (m *Member) heard(ctx context.Context, err error) error {
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, serry.ErrMismatch), errors.Is(err, serry.ErrStale):
		f := judge(m.cfg.Task, err)
		m.fault(f)
		return f
	}
	m.answered()
	return err
}

// repeatable says whether a call does no harm if the service gets it twice.
func (m *Member) repeatable(ev coord.Event) bool {
	if m.dialect == wire.Serry {
		return true // by its id, or because it changes nothing
	}
	switch ev := ev.(type) {
	case coord.InsertKeyValue:
		return ev.Overwrite
	case coord.IncrementKeyValue, coord.CancelBarrier, coord.ShutdownTask, coord.ReportError, coord.GetAliveTasks:
		return false
	}
	return true
}

// errUnreachable marks calls that the service may or may not have seen.
var errUnreachable = errors.New("the service cannot be reached")

// exchange makes one attempt at a call.
func exchange(ctx context.Context, t Transport, d wire.Dialect, ev coord.Event) (coord.Result, error) {
	result, _, err := attempt(ctx, t, d, ev)
	return result, err
}

// attempt is exchange, and tells the status, too, with which the service refused.
func attempt(ctx context.Context, t Transport, d wire.Dialect, ev coord.Event) (coord.Result, rpc.Status, error) {
	path, body, err := d.Request(ev)
	if err != nil {
		return nil, rpc.Status{}, err
	}
	reply, st, err := t.Call(ctx, path, body)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, st, err
	case err != nil:
		return nil, st, fmt.Errorf("%w: %w", errUnreachable, err)
	case !st.OK():
		return nil, st, d.Error(st.Code, st.Message, st.Details)
	}
	result, err := d.Result(ev, reply)
	return result, st, err
}

// as takes a result for what it should be. A service can send anything.
func as[R coord.Result](result coord.Result, err error) (R, error) {
	r, ok := result.(R)
	if err == nil && !ok {
		err = fmt.Errorf("the service sent %T in place of %T", result, r)
	}
	return r, err
}

// jittered spreads what many members would do at one time.
func jittered(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
