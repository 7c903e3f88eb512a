package preempt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/preempt/internal/pact"
)

// ErrUndecided says that a task cannot make a step, because the others may have agreed to save at it,
// and the task can no longer find out.
var ErrUndecided = errors.New("not known whether the other tasks save at this step")

// ErrSkipped says that a task left out the step that all tasks had agreed to save at.
var ErrSkipped = errors.New("the step to save at was left out")

// taskPart is a task as a part of a key.
func taskPart(t serry.TaskID) string { return t.Job + "-" + strconv.Itoa(t.Index) }

// rounds is mode Rounds: it makes the calls that a [pact.Pact] decides on.
type rounds struct {
	sync *Sync // set once

	mu struct {
		sync.Mutex
		pact    *pact.Pact
		changed chan struct{} // closed when held steps may be made, or the agreed one was
	}
}

func newRounds(s *Sync) *rounds {
	r := &rounds{sync: s}
	r.mu.pact = pact.New(pact.Config{
		Task: taskPart(s.member.Task()), Margin: s.opts.Margin, Lead: s.opts.LeadTime, Patience: s.opts.BarrierTimeout,
	})
	r.mu.changed = make(chan struct{})
	return r
}

// run takes part until the Sync is closed or the member is lost.
func (r *rounds) run() error {
	for {
		r.mu.Lock()
		c, changed := r.mu.pact.Next(time.Now()), r.mu.changed
		r.mu.Unlock()
		var err error
		switch c.Do {
		case pact.Rest:
			err = pause.For(r.sync.ctx, time.Until(c.Until))
		case pact.Pass:
			err = r.awaitStep(changed, c.Until)
		default:
			r.heard(r.call(r.sync.ctx, c))
		}
		if err == nil {
			err = context.Cause(r.sync.ctx)
		}
		if err != nil {
			return err
		}
	}
}

// awaitStep waits for a change, until a time if there is one.
func (r *rounds) awaitStep(changed <-chan struct{}, until time.Time) error {
	ctx, cancel := withEnd(r.sync.ctx, until)
	defer cancel()
	if err := r.sync.await(ctx, changed); err != errLate {
		return err
	}
	return nil
}

// heard hands a reply to the pact, unless it only says that the Sync is over.
func (r *rounds) heard(reply pact.Reply) {
	if r.sync.ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	r.mu.pact.Heard(time.Now(), reply)
	notes := r.mu.pact.Notes()
	r.wake()
	r.mu.Unlock()
	for _, n := range notes {
		r.note(n)
	}
}

// wake lets all look again who wait for a change. mu must be held.
func (r *rounds) wake() {
	close(r.mu.changed)
	r.mu.changed = make(chan struct{})
}

func (r *rounds) note(n pact.Note) {
	log, task := r.sync.opts.Log, r.sync.member.Task()
	switch n.Kind {
	case pact.Announced:
		r.sync.announce(Notice(n.Notice))
	case pact.Agreed:
		log.Info("sync point agreed", "task", task, "step", n.Step)
	case pact.Failed:
		log.Warn("no sync point yet", "task", task, "err", n.Why)
	case pact.Ended:
		log.Warn("round without a sync point", "task", task, "err", n.Why)
	}
}

// call makes a call of the protocol.
func (r *rounds) call(ctx context.Context, c pact.Command) (reply pact.Reply) {
	keys := r.sync.keys
	switch c.Do {
	case pact.Wait:
		return r.wait(ctx, c)
	case pact.List:
		reply.Entries, reply.Err = keys.List(ctx, c.Key)
	case pact.Create:
		reply.Err = keys.Create(ctx, c.Key, c.Value)
	case pact.Put:
		reply.Err = keys.Put(ctx, c.Key, c.Value)
	case pact.Delete:
		reply.Err = keys.Delete(ctx, c.Key)
	case pact.Meet:
		return r.meet(ctx, c)
	}
	return reply
}

// errLate ends a wait whose time has come.
var errLate = errors.New("it is time")

// withEnd ends a wait at a time, if there is one.
func withEnd(ctx context.Context, until time.Time) (context.Context, context.CancelFunc) {
	if until.IsZero() {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, until, errLate)
}

// wait waits for a key, until a time if there is one.
func (r *rounds) wait(ctx context.Context, c pact.Command) pact.Reply {
	ctx, cancel := withEnd(ctx, c.Until)
	defer cancel()
	value, err := r.sync.keys.Wait(ctx, c.Key)
	switch {
	case err == nil:
		return pact.Reply{Value: append([]byte{}, value...)}
	case context.Cause(ctx) == errLate:
		return pact.Reply{}
	}
	return pact.Reply{Err: err}
}

// errEnded ends a wait at a barrier of an attempt that has an outcome already.
var errEnded = errors.New("the attempt has ended")

// meet waits at a barrier. A task that gives up an attempt does not come there, but creates its outcome:
// this ends the wait.
func (r *rounds) meet(ctx context.Context, c pact.Command) (reply pact.Reply) {
	ctx, end := context.WithCancelCause(ctx)
	var outcome []byte
	var watch sync.WaitGroup
	watch.Go(func() {
		if value, err := r.sync.keys.Wait(ctx, c.Unless); err == nil {
			outcome = append([]byte{}, value...)
			end(errEnded)
		}
	})
	err := r.sync.meet(ctx, c.Key)
	end(nil)
	watch.Wait()
	if err != nil && outcome != nil {
		return pact.Reply{Value: outcome}
	}
	return pact.Reply{Err: err}
}

// post announces a notice to this task, and returns the round that it belongs to.
func (r *rounds) post(ctx context.Context, n Notice) (round int, err error) {
	notice := pact.Notice{Deadline: n.Deadline, Source: fmt.Sprintf("%v: %s", r.sync.member.Task(), n.Source)}
	posting, err := r.beginPost(ctx, notice)
	for err == nil {
		c, more := posting.Next()
		if !more {
			return posting.Round(), nil
		}
		err = posting.Heard(r.call(ctx, c))
	}
	r.mu.Lock()
	r.mu.pact.Withdraw(notice)
	r.mu.Unlock()
	return 0, err
}

// beginPost waits until this task knows which round the job is in.
func (r *rounds) beginPost(ctx context.Context, n pact.Notice) (pact.Posting, error) {
	for {
		r.mu.Lock()
		if r.mu.pact.Ready() {
			defer r.mu.Unlock()
			return r.mu.pact.Post(time.Now(), n)
		}
		changed := r.mu.changed
		r.mu.Unlock()
		if err := r.sync.await(ctx, changed); err != nil {
			return pact.Posting{}, err
		}
	}
}

// reached makes a step as soon as it may be made.
func (r *rounds) reached(ctx context.Context, step int64) (bool, error) {
	for {
		verdict, point, changed := r.step(step)
		switch verdict {
		case pact.Go, pact.Save:
			return verdict == pact.Save, nil
		case pact.Skipped:
			return false, fmt.Errorf("step %d: %w: it was step %d", step, ErrSkipped, point.Step)
		}
		err := r.sync.await(ctx, changed)
		switch {
		case err != nil && ctx.Err() != nil:
			return false, err
		case err != nil:
			return false, fmt.Errorf("step %d: %w: %w", step, ErrUndecided, err)
		}
	}
}

func (r *rounds) step(step int64) (pact.Verdict, pact.Point, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ahead, started := r.mu.pact.Ahead(), r.mu.pact.Started()
	verdict := r.mu.pact.Step(step)
	if ahead != r.mu.pact.Ahead() || started != r.mu.pact.Started() {
		r.wake()
	}
	point, _ := r.mu.pact.Point()
	return verdict, point, r.mu.changed
}

func (r *rounds) point() (pact.Point, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.pact.Point()
}
