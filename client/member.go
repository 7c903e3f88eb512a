package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A Member is one life of one task in one job.
type Member struct {
	// Set in Join, then constant.
	cfg       Config
	transport Transport
	dialect   wire.Dialect
	service   serry.Incarnation
	requester uint64

	ctx     context.Context // ends when the member is lost, with the Fault as its cause
	lose    context.CancelCauseFunc
	done    sync.WaitGroup // the member's own goroutines
	unheard chan struct{}  // asks for a heartbeat at once; holds one
	count   counters

	mu struct {
		sync.Mutex
		leaving bool
		away    time.Time                  // when the first call went unanswered, if the service does not answer now
		numbers stream.Numbers             // of requests
		uses    uses                       // of barriers, by id
		circles map[string]*rounds         // by the folder of their keys
		givenUp map[string]coord.RequestID // calls of Agree, by set, whose answer we did not wait for

		stepAt time.Time // when a step was last reported
		phase  string    // that was reported last

		// How questions are answered, by their kind.
		answers map[string]func(ctx context.Context, argument string, most int) []byte
	}
}

// Task is our place in the job.
func (m *Member) Task() serry.TaskID { return m.cfg.Task }

// Incarnation is the number of this life.
func (m *Member) Incarnation() serry.Incarnation { return m.cfg.Incarnation }

// Service is the incarnation of the service that we joined.
func (m *Member) Service() serry.Incarnation { return m.service }

// Context ends when the member is lost. Its cause is the [Fault].
func (m *Member) Context() context.Context { return m.ctx }

// Err is nil as long as we are a member, and then the [Fault].
func (m *Member) Err() error { return context.Cause(m.ctx) }

// Leave says that our work is done. In a job with a shutdown barrier it waits until all others say
// so, too. Whatever it returns, the member is over.
func (m *Member) Leave(ctx context.Context) error {
	if err := m.beginLeave(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.cfg.ShutdownTimeout+m.cfg.ErrorGrace)
	defer cancel()
	call, answered := m.changing()
	_, err := m.call(ctx, coord.ShutdownTask{Call: call, Recoverable: m.cfg.Recoverable})
	answered()
	m.end(&Fault{Kind: FaultLocal, Err: serry.ErrLeft})
	if err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	m.cfg.Log.Info("left", "task", m.cfg.Task)
	return nil
}

// beginLeave makes sure that only one caller ends the member.
func (m *Member) beginLeave() error {
	if err := m.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.leaving {
		return &Fault{Kind: FaultLocal, Err: serry.ErrLeft}
	}
	m.mu.leaving = true
	return nil
}

// reportTimeout bounds how long Fail waits for the service to hear it.
const reportTimeout = 5 * time.Second

// Fail tells the job that this task has failed, and why, and ends the membership. A cause that wraps serry.ErrTimeout has
// the code DEADLINE_EXCEEDED, every other one INTERNAL.
func (m *Member) Fail(ctx context.Context, cause error) error {
	if cause == nil {
		return errors.New("fail: no cause given")
	}
	if err := m.beginLeave(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	code := codes.Internal
	if errors.Is(cause, serry.ErrTimeout) {
		code = codes.DeadlineExceeded
	}
	call, answered := m.changing()
	_, err := m.call(ctx, coord.ReportError{Call: call, Code: int(code), Text: cause.Error()})
	answered()
	m.end(&Fault{Kind: FaultLocal, Err: cause})
	if err != nil {
		return fmt.Errorf("fail: %w", err)
	}
	return nil
}

// Close ends the membership without a word: the service finds out by itself. Calls that wait end.
// It returns when all goroutines of the member have ended. After Leave or Fail it only waits.
func (m *Member) Close() error {
	m.end(&Fault{Kind: FaultLocal, Err: serry.ErrCancelled})
	return nil
}

// end loses the member, if it is not lost yet, and waits until nothing of it is left.
func (m *Member) end(f *Fault) {
	m.lose(f)
	m.done.Wait()
	if m.cfg.Transport == nil {
		m.transport.Close()
	}
}

// fault loses the member because of something that happened to it.
func (m *Member) fault(f *Fault) {
	m.mu.Lock()
	leaving := m.mu.leaving
	m.mu.Unlock()
	if leaving { // the end of a polite end is not a fault
		return
	}
	if m.Err() == nil {
		m.cfg.Log.Error("membership lost", "task", m.cfg.Task, "incarnation", m.cfg.Incarnation, "err", f)
	}
	m.lose(f)
}
