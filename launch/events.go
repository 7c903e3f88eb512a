package launch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// This file says what each event means for the job. Everything here runs in drive.

// died tells the service at once, and asks the plan.
func (j *Job) died(ev died) step {
	if at := j.plan.tasks[ev.Task]; ev.lifetime != j.lifetime(ev.Task) || at.phase != running {
		return step{} // of a host that was given up
	}
	verdict, ending := j.verdict(), j.plan.ending
	s := j.plan.died(ev.Task, ev.Cause.Well())
	if ev.Cause.Well() {
		j.service.Exited(worker(ev.Task), "")
		return s
	}
	if ev.host != "" {
		j.service.Lost(worker(ev.Task), "host silent: "+ev.host) // C-LOST-5
	} else {
		j.service.Exited(worker(ev.Task), ev.Cause.evidence())
	}
	f := &Failure{Task: ev.Task, Attempt: j.plan.attempt, Life: ev.Life, After: ev.After, Cause: ev.Cause}
	if ending != notEnding {
		if j.report.Interrupted == 0 && !ev.Ours {
			j.failures.add(f, ev.Also)
		}
		return s
	}
	if verdict != nil && verdict.Task != ev.Task {
		j.failures.add(verdict, nil)
	}
	if !j.plan.tasks[ev.Task].again { // else it is made good
		j.failures.add(f, ev.Also)
	}
	j.note("task %d ended: %s; %s", ev.Task, ev.Cause.name(), j.consequence(ev.Task))
	return s
}

func (j *Job) lifetime(task int) lifetime {
	return lifetime{Task: task, Attempt: j.plan.attempt, Life: j.plan.tasks[task].life}
}

func worker(task int) serry.TaskID { return serry.TaskID{Job: wire.DefaultJob, Index: task} }

// consequence says what the plan made of the failure of a task.
func (j *Job) consequence(task int) string {
	switch {
	case j.plan.tasks[task].again:
		return fmt.Sprintf("starting it again, %s left", counted(j.plan.left, "restart"))
	case j.plan.ending == endingAttempt:
		return fmt.Sprintf("starting all again, %s left", counted(j.plan.left, "restart"))
	case j.plan.ending == endingJob:
		return "ending the job"
	}
	return "the others go on"
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// verdictPatience is how long a service that others run may take to say what it knows.
const verdictPatience = 300 * time.Millisecond

// verdict is the first failure as the service knows it, or nil. What it knows before a process has
// ended is why processes end: a task that fell silent, or one that reported an error.
func (j *Job) verdict() *Failure {
	if len(j.failures.all) > 0 || j.plan.ending != notEnding {
		return nil
	}
	err := j.service.view(verdictPatience).Failure
	if together, ok := errors.AsType[*serry.LostError](err); ok {
		err = together.Lost[0]
	}
	failed, ok := errors.AsType[*serry.TaskError](err)
	if !ok || failed.Task.Job != wire.DefaultJob || failed.Task.Index >= len(j.plan.tasks) {
		return nil
	}
	text := failed.Error()
	if errors.Is(failed, serry.ErrTaskDead) && failed.Evidence == "" {
		text = fmt.Sprintf("no heartbeat for %v", j.cfg.Service.Cluster.HeartbeatTimeout)
	}
	at := j.plan.tasks[failed.Task.Index]
	return &Failure{Task: failed.Task.Index, Attempt: j.plan.attempt, Life: at.life, Verdict: text}
}

func (j *Job) left(ev left) step {
	if at := j.plan.tasks[ev.Task]; ev.lifetime != j.lifetime(ev.Task) || at.phase != dying {
		return step{} // of a host that was given up
	}
	j.failures.last(ev.Task, ev.Last)
	if ev.Err != "" {
		j.warn("task %d: %s", ev.Task, ev.Err)
	}
	return j.plan.gone(ev.Task)
}

// signalled passes a signal on. The first that means the end gives tasks the grace, the second none.
func (j *Job) signalled(s signalled) step {
	switch {
	case !s.ends():
		j.places.each(func(h hand) { h.pass(s.Signal) })
		return step{}
	case j.report.Interrupted != 0:
		j.note("signal %d again: killing all tasks", s.Signal)
		j.places.each(hand.kill)
		return step{}
	}
	j.note("signal %d: passed on to all tasks, which have %v to end", s.Signal, j.cfg.Grace)
	j.report.Interrupted = s.Signal
	j.places.each(func(h hand) { h.end(s.Signal) })
	next := j.plan.finish()
	next.stop, next.over = false, next.over || j.dropWaiting() // they have been told
	return next
}

// check looks for a wait that cannot end: tasks that wait for all to join, when one of these has
// ended without joining. It also finds places for hosts that have waited long enough for one.
func (j *Job) check() step {
	if j.ranks != nil && !j.places.complete() {
		j.sit()
		j.startWaiting(j.places.drop())
	}
	if j.plan.ending != notEnding || !slices.ContainsFunc(j.plan.tasks, func(p place) bool { return p.phase == gone && p.well }) {
		return step{}
	}
	for _, b := range j.service.view(0).Barriers {
		if b.ID != coord.RegisterBarrierID {
			continue
		}
		for _, t := range b.Missing {
			if p := j.plan.tasks[t.Index]; p.phase == gone && p.well {
				return j.neverJoined(t.Index, b.Arrived)
			}
		}
	}
	return step{}
}

func (j *Job) neverJoined(task, waiting int) step {
	f := &Failure{Task: task, Attempt: j.plan.attempt, Life: j.plan.tasks[task].life,
		Verdict: fmt.Sprintf("ended with exit code 0 without joining the job, for which %d others wait", waiting)}
	s := j.plan.died(task, false)
	if j.plan.tasks[task].again {
		s = j.plan.gone(task)
	} else {
		j.failures.add(f, nil)
		j.plan.tasks[task].phase = gone
	}
	j.note("%v; %s", f, j.consequence(task))
	return s
}

// arrived takes in a host.
func (j *Job) arrived(ev arrived) step {
	var next step
	if j.places.has(ev.node) {
		next = j.lost(lost{node: ev.node, why: "its launcher was started anew"})
	}
	j.note("node %d is here: %s", ev.node, ev.host)
	waiting := j.places.add(ev.node, ev.hand)
	if j.ranks != nil {
		j.ranks.arrive(ev.node, ev.identity, time.Now())
	}
	j.sit()
	j.startWaiting(waiting)
	return next
}

// startWaiting starts tasks that waited for a host.
func (j *Job) startWaiting(waiting []seat) {
	for _, s := range waiting {
		if j.plan.tasks[s.Task].phase == running {
			j.start(s.Task)
		}
	}
	if j.places.complete() && j.patience != nil {
		j.patience.Stop()
		j.patience = nil
	}
}

// retiring takes note that a host is about to leave.
func (j *Job) retiring(ev retiring) step {
	j.note("node %d was told to end by signal %d", ev.node, ev.signal)
	j.places.retiring[ev.node] = true
	return step{}
}

// lost takes note that a host has gone, and all tasks on it. To start them again counts as one restart.
func (j *Job) lost(ev lost) step {
	j.note("node %d is gone: %s", ev.node, ev.why)
	j.places.remove(ev.node)
	if j.ranks != nil {
		j.ranks.leave(ev.node)
	}
	var next step
	again := false
	for task, p := range j.plan.tasks {
		if host, ok := j.places.taskOn[task]; !ok || host != ev.node || p.phase == gone {
			continue
		}
		if p.phase == running {
			if again {
				j.plan.left++
			}
			next = merged(next, j.died(died{lifetime: j.lifetime(task), host: ev.why, Cause: Cause{Text: "its host is lost: " + ev.why}}))
			again = j.plan.tasks[task].again
		}
		next = merged(next, j.left(left{lifetime: j.lifetime(task)}))
	}
	return next
}

// merged does two steps in one. Where the second begins an attempt, there is nobody left to stop.
func merged(a, b step) step {
	if b.open {
		return b
	}
	return step{open: a.open || b.open, start: append(a.start, b.start...), stop: a.stop || b.stop, over: a.over || b.over}
}

// impatient is ready when hosts have been missing for too long.
func (j *Job) impatient() <-chan time.Time {
	if j.patience == nil {
		return nil
	}
	return j.patience.C
}

// missing ends a job that waits for hosts in vain.
func (j *Job) missing() step {
	j.report.Err = fmt.Errorf("%w: no host came for node %d in %v", serry.ErrTimeout, j.places.vacant(), j.cfg.Service.Cluster.RegisterTimeout)
	return j.plan.finish()
}
