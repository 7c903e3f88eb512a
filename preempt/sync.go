package preempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
)

// A Member is who takes part. *client.Member is one.
type Member interface {
	Task() serry.TaskID
	Incarnation() serry.Incarnation
	Context() context.Context // ends when the member is lost
	Barrier(ctx context.Context, id string, o serry.BarrierOptions) error
}

// Keys is the key-value store of the job. *client.KV is one.
type Keys interface {
	Wait(ctx context.Context, key string) ([]byte, error)
	Create(ctx context.Context, key string, value []byte) error
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error // and everything below it
	Lister
}

// A Lister reads keys.
type Lister interface {
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
	o.BarrierTimeout = cmp.Or(o.BarrierTimeout, 3*time.Minute)
	o.LeadTime = cmp.Or(o.LeadTime, 15*time.Minute)
	o.Margin = cmp.Or(o.Margin, 2)
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
	rounds *rounds // nil in mode Compat

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   sync.WaitGroup

	mu struct {
		sync.Mutex
		notices []Notice  // the last ones that the job announced
		heard   time.Time // when the first came that this task has not saved after; zero: none

		// In mode Compat.
		last   int64         // the last step that was made
		open   chan struct{} // not nil while steps are held up; closed when they go on
		point  int64         // the step to save at
		agreed bool          // point is one
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
	s.ctx, s.cancel = context.WithCancelCause(m.Context())
	agree := s.agreeOnce
	if o.Mode == Rounds {
		s.rounds = newRounds(s)
		agree = s.rounds.run
	}
	if n != nil {
		s.done.Go(func() { s.tell("no notice can come to this task", s.passOn(n)) })
	}
	s.done.Go(func() { s.tell("no sync point", agree()) })
	return s, nil
}

const (
	firstPause = 50 * time.Millisecond // before a notice is posted again
	lastPause  = 3 * time.Second
)

// passOn waits for a notice and posts it. A notice that cannot be posted is tried again until it can be.
func (s *Sync) passOn(from Notifier) error {
	n, err := from.Wait(s.ctx)
	if err != nil {
		return err
	}
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		err := s.Post(s.ctx, n)
		if err == nil {
			return nil
		}
		s.tell("notice could not be posted", err)
		if err := pause.For(s.ctx, wait); err != nil {
			return err
		}
	}
}

// Post announces that this task will be taken away, as a Notifier would.
func (s *Sync) Post(ctx context.Context, n Notice) error {
	if n.Deadline.IsZero() {
		n.Deadline = time.Now()
	}
	told := Announcement{Task: s.member.Task().String(), Source: n.Source, Deadline: n.Deadline, Time: time.Now().UTC()}
	round, err := 0, error(nil)
	if s.rounds != nil {
		round, err = s.rounds.post(ctx, n)
	} else {
		err = s.postCompat(ctx, n)
	}
	if err != nil {
		return err
	}
	s.tell("notice not recorded", s.record(ctx, round, toldPart, told)) // the tasks agree without it
	return nil
}

// Reached notes that a step was made and says whether it is the one to save at. In mode Compat it
// waits while the tasks agree. In mode Rounds it waits only at the step that is about to be agreed on,
// if the others have not all answered by then, and before the first step until it knows whether one is
// agreed on already. ctx bounds the wait. If the member is lost or s is closed during such a wait of
// mode Rounds, the error is ErrUndecided.
//
// A nil Sync, of a program that has switched preemption off, is never there.
func (s *Sync) Reached(ctx context.Context, step int64) (bool, error) {
	if s != nil && s.rounds != nil {
		return s.rounds.reached(ctx, step)
	}
	for s != nil {
		s.mu.Lock()
		open := s.mu.open
		if open == nil {
			s.mu.last = step
			reached := s.mu.agreed && step == s.mu.point
			s.mu.Unlock()
			return reached, nil
		}
		s.mu.Unlock()
		if err := s.await(ctx, open); err != nil && ctx.Err() != nil {
			return false, err
		} else if err != nil {
			return false, nil
		}
	}
	return false, nil
}

// await waits for a channel that is closed, unless ctx or s ends.
func (s *Sync) await(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Point is the step to save at, if there is one.
func (s *Sync) Point() (step int64, ok bool) {
	_, step, ok = s.agreement()
	return step, ok
}

// agreement is the last step that was agreed on, and the round that it belongs to.
func (s *Sync) agreement() (round int, step int64, ok bool) {
	if s.rounds != nil {
		p, ok := s.rounds.point()
		return p.Round, p.Step, ok
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return 0, s.mu.point, s.mu.agreed
}

// maxNotices bounds how many notices are remembered.
const maxNotices = 64

// Notices are what the job has announced so far, the last ones if there are many.
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

// tell logs why something did not work, unless the Sync is over.
func (s *Sync) tell(what string, err error) {
	if err != nil && s.ctx.Err() == nil {
		s.opts.Log.Warn(what, "task", s.member.Task(), "err", err)
	}
}

// announce notes a notice to the job.
func (s *Sync) announce(n Notice) {
	s.opts.Log.Info("preemption announced", "task", s.member.Task(), "deadline", n.Deadline)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.heard.IsZero() {
		s.mu.heard = time.Now()
	}
	s.mu.notices = append(s.mu.notices, n)
	s.mu.notices = s.mu.notices[max(0, len(s.mu.notices)-maxNotices):]
}

// meet waits for all tasks at a barrier.
func (s *Sync) meet(ctx context.Context, id string) error {
	return s.member.Barrier(ctx, id, serry.BarrierOptions{Timeout: s.opts.BarrierTimeout})
}
