package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// keepAlive sends heartbeats until the member is lost, three in the time after which the service
// would take us for dead. It also notices when the service has been silent for too long.
func (m *Member) keepAlive() {
	every := m.cfg.HeartbeatTimeout / 3
	for pause(m.ctx, jittered(every)) == nil {
		ctx, cancel := context.WithTimeout(m.ctx, m.cfg.HeartbeatTimeout)
		err := m.beat(ctx)
		cancel()
		switch {
		case m.ctx.Err() != nil:
			return
		case err == nil:
			continue
		case errors.Is(err, errUnreachable), errors.Is(err, context.DeadlineExceeded):
			m.bearSilence(err)
		default:
			m.fault(judge(m.cfg.Task, err))
		}
	}
}

// beat sends one heartbeat and checks who answers.
func (m *Member) beat(ctx context.Context) error {
	result, err := exchange(ctx, m.transport, m.dialect, coord.Heartbeat{Call: m.caller()})
	if err != nil {
		return err
	}
	r, ok := result.(coord.Registered)
	switch {
	case !ok:
		return errors.New("the service sent a reply that is none to a heartbeat")
	case r.Service != m.service:
		return &serry.MismatchError{Requested: m.service, Current: r.Service}
	}
	m.word.hear()
	return nil
}

// bearSilence loses the member if the service has not been heard for too long.
func (m *Member) bearSilence(err error) {
	if silent := m.word.silence(); m.cfg.OutageTolerance < 0 || silent > m.cfg.OutageTolerance {
		m.fault(&Fault{Kind: FaultSilence, Err: fmt.Errorf("%v without a word: %w", silent.Round(time.Millisecond), err)})
	}
}

// listen polls for the first error of the job.
func (m *Member) listen() {
	for wait := firstRetry; ; {
		_, err := exchange(m.ctx, m.transport, m.dialect, coord.PollForError{Call: m.caller()})
		switch {
		case m.ctx.Err() != nil, isQuiet(err):
			return
		case err == nil: // no service should say so; nothing has happened
		case errors.Is(err, errUnreachable):
			m.bearSilence(err)
		default:
			m.fault(judge(m.cfg.Task, err))
			return
		}
		if pause(m.ctx, jittered(wait)) != nil {
			return
		}
		wait = min(2*wait, lastRetry)
	}
}

// isQuiet says whether a poll ended because it was cancelled: the service delivers errors by heartbeat
// alone, or we have left.
func isQuiet(err error) bool {
	return errors.Is(err, serry.ErrCancelled) || errors.Is(err, serry.ErrLeft) || errors.Is(err, serry.ErrSuperseded)
}
