package storm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/serry-dev/serry/collective"
)

// A worker in steps is a training: its state is made of what all members of each step have given. What it must not show, in addition to what
// cliqueJudge has:
//
//   - two outcomes of one step, among the members that got an answer;
//   - a step that is made twice, or left out, or lost while a member lives that has made it;
//   - different states after the same steps.

// A training is the state of one worker.
type training struct {
	made  uint64 // steps
	state uint64
}

// A stepID names a step. Cliques of the same key are told apart by a number that rank 0 draws.
type stepID struct {
	key, drawn, number uint64
}

// trains makes steps until all members agree that it is time to end.
func (w *worker) trains() error {
	var t training
	c, err := w.enter()
	for err == nil {
		w.world.judge.formed(w.proc, c)
		w.holds(c)
		before, failed := c, w.makeSteps(c, &t)
		switch {
		case failed == nil:
			return nil
		case errors.Is(failed, collective.ErrInDoubt): // it comes back like a process that was restarted
			w.world.judge.forgets(w.proc)
			if err = before.Close(w.ctx); err == nil {
				c, err = w.enter()
			}
		default:
			if c, err = w.reform(before); err == nil {
				err = before.Close(w.ctx)
			}
		}
	}
	return err
}

// makeSteps makes steps in one clique. It returns nil when all members agree to end, or why another clique is needed.
func (w *worker) makeSteps(c *collective.Comm, t *training) error {
	id, err := w.share(c, t)
	for err == nil {
		if !w.pause(w.world.plan.pace/2 + time.Duration(w.rand.Int64N(int64(w.world.plan.pace)))) {
			return context.Cause(w.ctx)
		}
		id.number++
		var ends, again bool
		switch ends, again, err = w.makeStep(c, id, t); {
		case err != nil:
		case ends:
			return nil
		case again:
			return errAgain
		}
	}
	return err
}

// share gives all members the newest state, and the clique a name.
func (w *worker) share(c *collective.Comm, t *training) (id stepID, err error) {
	const words = 3
	all, mine := make([]uint64, words*c.Size()), []uint64{t.made, t.state, w.rand.Uint64()}
	err = w.judged(c, "share the state", func(ctx context.Context) error { return collective.AllGatherSlice(ctx, c, all, mine) })
	if err != nil {
		return id, err
	}
	for i := 0; i < len(all); i += words {
		if all[i] > t.made {
			t.made, t.state = all[i], all[i+1]
		}
	}
	w.world.judge.takes(w.proc, c, *t)
	return stepID{c.Key().Fingerprint(), all[2], 0}, nil
}

// makeStep makes one step. All members that have made it know whether to end, and whether tasks wait to be taken in.
func (w *worker) makeStep(c *collective.Comm, id stepID, t *training) (ends, again bool, err error) {
	what := fmt.Sprintf("step %d of the clique", id.number)
	w.does(what)
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	w.operates(cancel)
	w.world.judge.revoking(c) // a step that fails does so
	all, mine := make([]uint64, 2*c.Size()), []uint64{w.words(c), w.life*1000 + t.made}
	err = collective.Step(ctx, c, func(ctx context.Context, _ collective.Live) error {
		err := w.judgedIn(ctx, c, "the part of "+what, func(ctx context.Context) error { return collective.AllGatherSlice(ctx, c, all, mine) })
		w.pause(time.Duration(w.rand.Int64N(int64(w.world.plan.pace)))) // it computes
		return err
	})
	w.operates(nil)
	w.world.judge.stepped(w.proc, c, id, err)
	if err != nil {
		return false, false, err
	}
	t.made++
	ends = true
	for i := 0; i < len(all); i += 2 {
		t.state = t.state*31 + all[i+1]
		ends, again = ends && all[i]&mayEnd != 0, again || all[i]&waits != 0
	}
	w.world.judge.commits(w.proc, id, *t)
	return ends && !again, again, nil
}

// drawSteps lets the tasks of a job with cliques train in steps. Members give steps up while others are killed, so that some do not know how a step has
// ended and others know that it has failed.
func drawSteps(seed uint64) *plan {
	p := drawCliques(seed)
	p.cliques.steps = true
	r := dice(seed, forCliques, 2)
	for range r.IntN(3) {
		f := fault{kind: giveUp, at: between(r, 0, troubleTime), whom: r.IntN(p.tasks)}
		f.count = (f.whom + 1 + r.IntN(p.tasks-1)) % p.tasks
		p.faults = append(p.faults, f, fault{kind: killProc, at: f.at + p.after(r), whom: f.count, lasts: between(r, 0, time.Second)})
	}
	return p
}

// after is a time within which a step that others wait for may come to its end.
func (p *plan) after(r *rand.Rand) time.Duration { return between(r, 0, p.pace) }

// A madeStep is a step of the training, as the first member that made it says.
type madeStep struct {
	id    stepID
	state uint64
}

// A stepsRecord is what is known of the steps of all workers. The lock of the judge guards it.
type stepsRecord struct {
	outcomes map[stepID]bool     // whether the step is committed
	made     map[uint64]madeStep // by number in the training
	has      map[*proc]uint64    // steps that the state of a process has
}

func newStepsRecord() stepsRecord {
	return stepsRecord{make(map[stepID]bool), make(map[uint64]madeStep), make(map[*proc]uint64)}
}

// sees says whether a process still sees anything: one that is gone, or out of the job, does not.
func (p *proc) sees() bool { return !p.over() && p.member.Err() == nil }

// forgets notes that a process in doubt comes back as a newcomer: its first clique may be of generation 0 again.
func (j *cliqueJudge) forgets(p *proc) {
	j.mu.Lock()
	defer j.mu.Unlock()
	life := p.asLife()
	delete(j.mu.newest, life)
	delete(j.mu.held, generation{life: life})
	j.world.note("task %d life %d is in doubt", p.task, p.life)
}

// stepped judges the outcome of a step.
func (j *cliqueJudge) stepped(p *proc, c *collective.Comm, id stepID, err error) {
	if !p.sees() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	failed := errors.Is(err, collective.ErrStepFailed)
	doubt := errors.Is(err, collective.ErrInDoubt)
	if err != nil {
		j.world.note("task %d life %d, step %d of %v: %v", p.task, p.life, id.number, c.Key(), err)
	}
	switch {
	case err != nil && !failed && !doubt:
		j.world.wrong("task %d life %d, step %d of %v: an error without a type: %v", p.task, p.life, id.number, c.Key(), err)
	case err != nil && !j.mu.calm.IsZero() && time.Since(j.mu.calm) > settled && !p.isSuspected():
		j.world.wrong("task %d life %d, step %d of %v: %v, and the last fault is long over", p.task, p.life, id.number, c.Key(), err)
	}
	if doubt {
		return
	}
	if committed, known := j.mu.steps.outcomes[id]; known && committed == failed {
		j.world.wrong("task %d life %d, step %d of %v: %v, and for another member the step is committed: %v", p.task, p.life, id.number, c.Key(), err, committed)
	}
	j.mu.steps.outcomes[id] = !failed
}

// takes judges the state that a process goes on with in a new clique: that of the member that has made most steps.
func (j *cliqueJudge) takes(p *proc, c *collective.Comm, t training) {
	if !p.sees() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for q, has := range j.mu.steps.has {
		if has > t.made && q.lives() && c.Key().RanksOf(q.asLife()) != nil {
			j.world.wrong("task %d life %d goes on after step %d, and task %d life %d has made step %d", p.task, p.life, t.made, q.task, q.life, has)
		}
	}
	if m, known := j.mu.steps.made[t.made]; known && m.state != t.state && j.held(t.made) {
		j.world.wrong("task %d life %d takes another state after step %d than that of the members that made it", p.task, p.life, t.made)
	}
	j.mu.steps.has[p] = t.made
}

// commits judges a step that a process has made. A step is made again only if no process is left that has made it before.
func (j *cliqueJudge) commits(p *proc, id stepID, t training) {
	if !p.sees() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if before := j.mu.steps.has[p]; before+1 != t.made {
		j.world.wrong("task %d life %d makes step %d after step %d", p.task, p.life, t.made, before)
	}
	m, known := j.mu.steps.made[t.made]
	switch {
	case !known, m.id != id && !j.held(t.made):
		j.mu.steps.made[t.made] = madeStep{id, t.state}
	case m.id != id:
		j.world.wrong("task %d life %d makes step %d, which members that live have made before", p.task, p.life, t.made)
	case m.state != t.state:
		j.world.wrong("task %d life %d has another state after step %d than other members", p.task, p.life, t.made)
	}
	j.mu.steps.has[p] = t.made
}

// held says whether a process lives that has made a step; mu is held.
func (j *cliqueJudge) held(made uint64) bool {
	for q, has := range j.mu.steps.has {
		if has >= made && q.lives() {
			return true
		}
	}
	return false
}
