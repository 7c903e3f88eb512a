package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
)

// keepAlive sends heartbeats until the member is lost, three in the time after which the service
// would take us for dead, and at once when a call went unanswered. There is never more than one under
// way.
func (m *Member) keepAlive() {
	next := time.NewTimer(jittered(m.cfg.HeartbeatTimeout / 3))
	defer next.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.unheard:
		case <-next.C:
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(m.ctx, m.patience(start))
		err := m.beat(ctx)
		cancel()
		wait := m.cfg.HeartbeatTimeout / 3
		switch {
		case m.ctx.Err() != nil:
			return
		case err == nil:
		case isAway(err):
			m.missed(start, err)
			wait = min(wait, lastRetry)
		default:
			m.fault(judge(m.cfg.Task, err))
		}
		next.Reset(jittered(wait))
	}
}

// patience is how long a heartbeat may take: late is better than never, as long as we tolerate that.
func (m *Member) patience(now time.Time) time.Duration {
	if m.cfg.OutageTolerance < 0 {
		return m.cfg.HeartbeatTimeout / 2
	}
	return max(time.Millisecond, min(m.cfg.HeartbeatTimeout, m.cfg.OutageTolerance-m.awayFor(now)))
}

// beat sends one heartbeat and checks who answers.
func (m *Member) beat(ctx context.Context) error {
	m.count.beats.Add(1)
	r, err := as[coord.Registered](exchange(ctx, m.transport, m.dialect, coord.Heartbeat{Call: m.caller()}))
	switch {
	case err != nil:
		return err
	case r.Service != m.service:
		return &serry.MismatchError{Requested: m.service, Current: r.Service}
	}
	m.answered()
	return nil
}

// listen polls for the first error of the job.
func (m *Member) listen() {
	wait := firstRetry
	for {
		start := time.Now()
		_, err := exchange(m.ctx, m.transport, m.dialect, coord.PollForError{Call: m.caller()})
		switch {
		case m.ctx.Err() != nil, isQuiet(err):
			return
		case err == nil: // no service should say so; nothing has happened
		case isAway(err):
			m.missed(time.Now(), err) // until now it was there
			m.probe()
		default:
			m.fault(judge(m.cfg.Task, err))
			return
		}
		if time.Since(start) > lastRetry {
			wait = firstRetry
		}
		if pause.For(m.ctx, jittered(wait)) != nil {
			return
		}
		wait = min(2*wait, lastRetry)
	}
}

// isQuiet says whether a poll ended because it was cancelled: the service delivers errors by heartbeat
// alone, or we have left.
func isQuiet(err error) bool {
	return errors.Is(err, serry.ErrCancelled) || errors.Is(err, serry.ErrLeft) || errors.Is(err, serry.ErrSuperseded) ||
		status.Code(err) == codes.Canceled
}

// isAway says whether the service is not there now but may come back, the same or its successor.
func isAway(err error) bool {
	return errors.Is(err, errUnreachable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, serry.ErrStopped) || errors.Is(err, serry.ErrStopping)
}

// setAway notes since when the service does not answer; zero: it does. It returns what was noted before.
func (m *Member) setAway(since time.Time) (before time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before = m.mu.away
	if before.IsZero() || since.IsZero() {
		m.mu.away = since
	}
	return before
}

// awayFor is how long the service has not answered.
func (m *Member) awayFor(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.away.IsZero() {
		return 0
	}
	return now.Sub(m.mu.away)
}

// missed notes a call that went unanswered since then, and loses the member if that is too much.
func (m *Member) missed(then time.Time, err error) {
	if m.setAway(then).IsZero() {
		m.count.outages.Add(1)
		m.cfg.Log.Warn("service is away", "task", m.cfg.Task, "err", err)
	}
	if silent := m.awayFor(time.Now()); silent >= m.cfg.OutageTolerance {
		m.fault(&Fault{Kind: FaultSilence, Err: fmt.Errorf("no answer for %v: %w", silent.Round(time.Millisecond), err)})
	}
}

// probe asks for a heartbeat at once, to find out more.
func (m *Member) probe() {
	select {
	case m.unheard <- struct{}{}:
	default:
	}
}

// answered notes a sign of life of the service.
func (m *Member) answered() {
	if !m.setAway(time.Time{}).IsZero() {
		m.cfg.Log.Info("service is back", "task", m.cfg.Task)
	}
}
