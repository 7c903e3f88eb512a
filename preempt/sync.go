package preempt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/serry-dev/serry"
)

// A Member is who takes part. *client.Member is one.
type Member interface {
	Task() serry.TaskID
	Incarnation() serry.Incarnation
	Barrier(ctx context.Context, id string, o serry.BarrierOptions) error
}

// Keys is the key-value store of the job. *client.KV is one.
type Keys interface {
	Wait(ctx context.Context, key string) ([]byte, error)
	Create(ctx context.Context, key string, value []byte) error
	Put(ctx context.Context, key string, value []byte) error
	List(ctx context.Context, dir string) ([]serry.Entry, error)
}

// A Mode is which protocol is spoken.
type Mode int

// The modes.
const (
	Compat Mode = iota // jax's: once per run, with jaxlib processes
	Rounds             // again and again, and steps go on meanwhile, among Go members
)

// Options say how to agree. The zero value is right for most.
type Options struct {
	Mode           Mode
	BarrierTimeout time.Duration // how long the others may take to answer (3 min)
	LeadTime       time.Duration // how long before the deadline agreeing begins (15 min)
	Margin         int64         // of Rounds: how many steps are made while agreeing (2)
	Log            *slog.Logger  // nil: silent
}

func (o Options) withDefaults() Options {
	if o.BarrierTimeout == 0 {
		o.BarrierTimeout = 3 * time.Minute
	}
	if o.LeadTime == 0 {
		o.LeadTime = 15 * time.Minute
	}
	if o.Margin == 0 {
		o.Margin = 2
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Sync finds one step at which all tasks can save.
type Sync struct {
	// Set in New, then constant.
	member Member
	keys   Keys
	opts   Options

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	mu struct {
		sync.Mutex
		last    int64         // the last step that was made
		open    chan struct{} // not nil while steps are held up; closed when they go on
		from    int64         // the first step that is
		point   int64         // the step to save at
		agreed  bool          // point is one
		round   int           // the one point belongs to
		notices []Notice      // what the job announced
	}
}

// New starts to listen: to n for a notice to this task, which may be nil, and to the job for notices
// to others. The Sync must be closed.
func New(m Member, keys Keys, n Notifier, o Options) (*Sync, error) {
	if m == nil || keys == nil {
		return nil, errors.New("preempt: a member and its keys are needed")
	}
	if o = o.withDefaults(); o.Margin < 0 || o.BarrierTimeout < 0 || o.LeadTime < 0 {
		return nil, fmt.Errorf("preempt: negative option in %+v", o)
	}
	s := &Sync{member: m, keys: keys, opts: o}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	agree := s.agreeOnce
	if o.Mode == Rounds {
		agree = s.agreeInRounds
	}
	if n != nil {
		s.done.Go(func() {
			notice, err := n.Wait(s.ctx)
			if err == nil {
				err = s.Post(s.ctx, notice)
			}
			s.tell("notice could not be posted", err)
		})
	}
	s.done.Go(func() { s.tell("no sync point", agree()) })
	return s, nil
}

// Post announces that this task will be taken away, as a Notifier would.
func (s *Sync) Post(ctx context.Context, n Notice) error {
	if n.Deadline.IsZero() {
		n.Deadline = time.Now()
	}
	if s.opts.Mode == Rounds {
		return s.postRound(ctx, n)
	}
	return s.postCompat(ctx, n)
}

// Reached notes that a step was made and says whether it is the one to save at. In mode Compat it
// waits while the tasks agree. In mode Rounds it waits only at the step that is about to be agreed on,
// if the others have not all answered by then. ctx bounds the wait.
//
// A nil Sync, of a program that has switched preemption off, is never there.
func (s *Sync) Reached(ctx context.Context, step int64) (bool, error) {
	for s != nil {
		s.mu.Lock()
		open := s.mu.open
		if open == nil || step < s.mu.from {
			s.mu.last = step
			reached := s.mu.agreed && step == s.mu.point
			s.mu.Unlock()
			return reached, nil
		}
		s.mu.Unlock()
		select {
		case <-open:
		case <-s.ctx.Done():
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, nil
}

// Point is the step to save at, if there is one.
func (s *Sync) Point() (step int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.point, s.mu.agreed
}

// Notices are what the job has announced so far.
func (s *Sync) Notices() []Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Notice(nil), s.mu.notices...)
}

// Close stops listening. It returns when nothing of s is left.
func (s *Sync) Close() {
	s.cancel(ErrClosed)
	s.done.Wait()
}

// tell logs why something did not work, unless the Sync was closed.
func (s *Sync) tell(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.opts.Log.Warn(what, "task", s.member.Task(), "err", err)
	}
}

// announce notes a notice to the job.
func (s *Sync) announce(n Notice) {
	s.opts.Log.Info("preemption announced", "task", s.member.Task(), "deadline", n.Deadline)
	s.mu.Lock()
	s.mu.notices = append(s.mu.notices, n)
	s.mu.Unlock()
}

// settle makes a step the one to save at.
func (s *Sync) settle(round int, point int64) {
	s.mu.Lock()
	s.mu.round, s.mu.point, s.mu.agreed = round, point, true
	s.mu.Unlock()
}

// untilLead waits until it is time to agree.
func (s *Sync) untilLead(deadline time.Time) error {
	return pause(s.ctx, time.Until(deadline.Add(-s.opts.LeadTime)))
}

func (s *Sync) meet(id string) error {
	return s.member.Barrier(s.ctx, id, serry.BarrierOptions{Timeout: s.opts.BarrierTimeout})
}
