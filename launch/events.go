package launch

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// This file says what each event means for the job. Everything here runs in drive.

// died tells the service at once, and asks the plan.
func (j *Job) died(ev died) step {
	if !j.is(ev.lifetime, running) || !j.placed(ev.Task, ev.from) {
		return step{} // of a host that was given up, or of an older attempt
	}
	lost := j.lostForGood() // before any rank that ends because of it is blamed
	verdict, ending := j.verdict(), j.plan.ending
	if j.cutShort(ev) {
		ev.Cause = cutShort(j.leaving(ev.Task).signal)
	}
	part, free := j.incident.takes(ev, time.Now(), j.cfg.Service.Cluster.HeartbeatTimeout)
	s := merged(lost, j.decide(ev, free && j.plan.restart == RestartFailed))
	if ev.Cause.Well() {
		j.service.Exited(worker(ev.Task), "")
		j.exceptions.ended = append(j.exceptions.ended, early{ev, time.Now()})
		return s
	}
	switch {
	case ev.host != "":
		j.service.Lost(worker(ev.Task), fmt.Sprintf("host silent: %s: %s", j.hostName(j.places.taskOn[ev.Task]), ev.host)) // C-LOST-5
	case ev.raised:
		j.service.Lost(worker(ev.Task), ev.Cause.Text) // C-LOST-3
	default:
		j.service.Exited(worker(ev.Task), ev.Cause.evidence(ev.Told))
	}
	f := &Failure{Task: ev.Task, Attempt: j.plan.attempt, Life: ev.Life, After: ev.After, Cause: ev.Cause, At: time.Now()}
	if ending != notEnding {
		// A task that was told to end may end with any code. It is no cause of what ended the job: that
		// is a failure which is known, a signal, or an error of the launcher.
		if j.report.Interrupted == 0 && j.report.Err == nil && !ev.Ours {
			j.failures.add(f, ev.Also)
		}
		return s
	}
	if len(j.failures.all) == 0 {
		verdict = j.before(ev, verdict)
	}
	if verdict != nil && (verdict.Task != ev.Task || verdict.twice) {
		if verdict.twice {
			j.note("rank %d: %s", verdict.Task, verdict.Verdict)
		}
		j.failures.add(verdict, nil)
	}
	if j.plan.tasks[ev.Task].again { // it is made good
		delete(j.hangs.ranks, ev.Task)
	} else {
		j.blame(f, part, ev.Also)
	}
	j.incident.add(f, part, time.Now())
	switch {
	case ev.hung:
	case ev.raised:
		j.note("rank %d %s; %s", ev.Task, ev.Cause.name(), j.consequence(ev.Task))
	default:
		j.note("rank %d ended: %s; %s", ev.Task, ev.Cause.name(), j.consequence(ev.Task))
	}
	return s
}

// blame adds a failure that is not made good. One that is part of an incident is not the first: the root
// was made good for a while only.
func (j *Job) blame(f *Failure, part bool, also []int) {
	if root := j.incident.root; part && len(j.failures.all) == 0 && root.Attempt == f.Attempt && root.Task != f.Task {
		j.failures.add(root, nil)
	}
	j.failures.add(f, also)
}

// decide asks the plan what the end of a process means. A host that is told to end, or lost, takes its
// tasks with it: that is one cause, and is charged once. A free failure follows from one that was charged.
func (j *Job) decide(ev died, free bool) step {
	cause := j.leaving(ev.Task)
	switch {
	case ev.Cause.Well():
		return j.plan.died(ev.Task, true)
	case free:
		return j.plan.diedToo(ev.Task)
	case cause == nil:
		return j.plan.died(ev.Task, false)
	}
	if cause.charged && j.cfg.planted != chargeEachTask {
		return j.plan.diedToo(ev.Task)
	}
	before := j.plan.left
	s := j.plan.died(ev.Task, false)
	cause.charged = j.plan.left < before
	return s
}

// leaving is the departure of the host that a task is on, or nil.
func (j *Job) leaving(task int) *departure { return j.places.leaving[j.places.taskOn[task]] }

// cutShort says whether a task that ended well did so because its host is leaving. Such a task has saved
// what it had and obeyed; its work is not done, and the other tasks wait for it. So where it can be started
// again, on another host, it is. Where it cannot, exit code 0 means what it says: the task may as well have
// finished in its grace.
func (j *Job) cutShort(ev died) bool {
	d := j.leaving(ev.Task)
	return ev.Cause.Well() && ev.Told && d != nil && d.signal != 0 && j.plan.ending == notEnding &&
		j.plan.restart != RestartNever && (j.plan.left > 0 || d.charged) && j.cfg.planted != cutShortIsWell
}

// is says whether a life is the present one of its task, and where that stands. What comes from another
// host may name a task that does not exist.
func (j *Job) is(l lifetime, in phase) bool {
	return l.Task >= 0 && l.Task < len(j.plan.tasks) && l == j.lifetime(l.Task) && j.plan.tasks[l.Task].phase == in
}

// placed says whether a task is on the host that speaks of it.
func (j *Job) placed(task int, from hand) bool {
	return from == nil || j.places.is(j.places.taskOn[task], from)
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

// wantsVerdict says whether the next failure may not be the first: no failure is known yet, but the
// service may have seen one.
func (j *Job) wantsVerdict() bool { return len(j.failures.all) == 0 && j.plan.ending == notEnding }

// verdict is the first failure as the service knows it, or nil. What it knows before a process has
// ended is why processes end: a task that fell silent, or one that reported an error.
func (j *Job) verdict() *Failure {
	if !j.wantsVerdict() {
		return nil
	}
	err := j.service.view().Failure
	if together, ok := errors.AsType[*serry.LostError](err); ok {
		err = together.Lost[0]
	}
	failed, ok := errors.AsType[*serry.TaskError](err)
	if !ok || !j.ours(failed.Task) {
		return nil
	}
	text := failed.Error()
	if errors.Is(failed, serry.ErrTaskDead) && failed.Evidence == "" {
		text = fmt.Sprintf("no heartbeat for %v", j.cfg.Service.Cluster.HeartbeatTimeout)
	}
	f := &Failure{Task: failed.Task.Index, Attempt: j.plan.attempt, Life: j.plan.tasks[failed.Task.Index].life, Verdict: text, At: time.Now()}
	if errors.Is(failed, serry.ErrRestarted) || errors.Is(failed, serry.ErrWrongBeat) {
		f.twice, f.Verdict = true, j.twoProcesses(f.Task)
	}
	return f
}

// twoProcesses says that another process has joined as a rank of this job. The end of the first, which the service tells to end for it, is no cause.
func (j *Job) twoProcesses(task int) string {
	text := "two processes claim this rank"
	if r, ok := j.hangs.ranks[task]; ok && r.PID != 0 {
		text += fmt.Sprintf(": pid %d on %s, which this job has started, and another one", r.PID, r.Host)
	}
	return text
}

// ours says whether a task is one of this job. A service that others run may have more.
func (j *Job) ours(t serry.TaskID) bool {
	return t.Job == wire.DefaultJob && t.Index >= 0 && t.Index < len(j.plan.tasks)
}

func (j *Job) left(ev left) step {
	if !j.is(ev.lifetime, dying) || !j.placed(ev.Task, ev.from) {
		return step{} // of a host that was given up, or of an older attempt
	}
	j.failures.last(ev.Task, ev.Last)
	if root := j.incident.root; root != nil && root.Last == nil && j.lifetime(ev.Task) == (lifetime{root.Task, root.Attempt, root.Life}) {
		root.Last = ev.Last
	}
	if ev.Err != "" {
		j.warn("rank %d: %s", ev.Task, ev.Err)
	}
	return j.plan.gone(ev.Task)
}

// signalled passes a signal on. The first that means the end gives tasks the grace, the second none. A scheduler
// may send SIGTERM to the launcher more than once, by several ways, and keeps its deadline all the same.
func (j *Job) signalled(s signalled) step {
	switch {
	case !s.ends():
		j.places.each(func(h hand) { h.pass(s.Signal) })
		return step{}
	case j.report.Interrupted == s.Signal && j.cfg.unlimited(s.Signal):
		return step{}
	case j.report.Interrupted != 0:
		j.places.each(hand.kill)
		j.note("signal %d again: killing all ranks", s.Signal)
		if j.lastWord == nil {
			j.lastWord = time.NewTimer(max(j.cfg.Grace, leastLastWord))
		}
		return step{}
	}
	j.report.Interrupted = s.Signal
	j.places.each(func(h hand) { h.end(s.Signal, j.cfg.unlimited(s.Signal)) })
	j.note("signal %d: passed on to all ranks, which %s", s.Signal, j.cfg.timeToEnd(s.Signal))
	next := j.plan.finish()
	next.stop, next.over = false, next.over || j.dropWaiting() // they have been told
	return next
}

// timeToEnd says how long tasks have that are told to end by a signal.
func (c Config) timeToEnd(sig syscall.Signal) string {
	if c.unlimited(sig) {
		return "may run until the scheduler kills them"
	}
	return fmt.Sprintf("have %v to end", c.Grace)
}

// leastLastWord is how long other hosts have at least to say that their tasks were killed.
const leastLastWord = time.Second

// giveUpHosts gives up all other hosts: they were told to kill their tasks, and have not said that they did.
// Whatever a host says or does not say, the second signal ends the launcher (SEC-61).
func (j *Job) giveUpHosts() step {
	var next step
	for _, host := range sortedKeys(j.places.hands) {
		if host != 0 {
			next = merged(next, j.gone(host, "it did not say in time that its ranks were killed"))
		}
	}
	return next
}

// check looks for waits that cannot end: for tasks that have ended without joining, and of tasks that want to
// leave. It also finds places for hosts that have waited long enough for one.
func (j *Job) check() step {
	if j.ranks != nil && !j.places.complete() {
		j.sit()
		j.startWaiting(j.places.drop())
	}
	j.nameMissing(time.Now())
	if j.plan.ending != notEnding && !j.opening {
		j.publishFailure(j.service.view().Epoch)
	}
	if j.plan.ending != notEnding || j.opening {
		return step{}
	}
	if text := j.service.news(time.Now(), len(j.failures.all)); text != "" {
		j.note("%s", text)
	}
	if s := j.lostForGood(); j.plan.ending != notEnding {
		return s
	}
	view := j.service.view()
	s := j.checkWaits(view)
	if j.plan.ending != notEnding {
		return s
	}
	return merged(s, j.checkHang(view))
}

// lostForGood ends a job whose service has been out of reach for so long that its ranks were told (A-SIDE-10). They end by that,
// which is no failure of theirs.
func (j *Job) lostForGood() step {
	if j.plan.ending != notEnding {
		return step{}
	}
	if err := j.service.lost(); err != nil {
		j.report.Err, j.report.Code = err, CodeLost
		return j.plan.finish()
	}
	return step{}
}

// checkWaits looks at the ranks that wait for all to join, or to leave.
func (j *Job) checkWaits(view coord.View) step {
	if i := slices.IndexFunc(view.Barriers, func(b coord.BarrierView) bool { return b.ID == coord.RegisterBarrierID }); i >= 0 {
		return j.checkJoining(&view.Barriers[i])
	}
	return j.checkLeaving(view)
}

// nameMissing says which hosts the job waits for (DLV-22).
func (j *Job) nameMissing(now time.Time) {
	switch {
	case j.places.complete():
		j.sayWaiting = time.Time{}
	case j.sayWaiting.IsZero():
		j.sayWaiting = now.Add(waitFirst - checkEvery) // the wait began up to a check ago
	case !now.Before(j.sayWaiting):
		j.sayWaiting = now.Add(waitAgain)
		j.note("waiting for %s: no launcher has come from there", numbered("node", j.places.free()))
	}
}

// checkJoining looks at the tasks that wait for all to join, when one of these may have ended without joining.
func (j *Job) checkJoining(b *coord.BarrierView) step {
	if !slices.ContainsFunc(j.plan.tasks, func(p place) bool { return p.phase == gone && p.well }) {
		return step{}
	}
	if i := slices.IndexFunc(b.Missing, func(t serry.TaskID) bool { return !j.ours(t) }); i >= 0 {
		return j.foreign(b.Missing[i])
	}
	for _, t := range b.Missing {
		if p := j.plan.tasks[t.Index]; p.phase == gone && p.well {
			return j.neverJoined(t.Index, b.Arrived)
		}
	}
	return step{}
}

// foreign ends a job whose service waits for a task that the job does not have.
func (j *Job) foreign(t serry.TaskID) step {
	who := t.String()
	if t.Job == wire.DefaultJob {
		who = fmt.Sprintf("rank %d", t.Index)
	}
	j.report.Err = fmt.Errorf("%v waits for %s, but this job has only %s: the service must be for as many ranks as the job has", j.service, who, counted(len(j.plan.tasks), "rank"))
	j.report.Code = CodeStart
	return j.plan.finish()
}

func (j *Job) neverJoined(task, waiting int) step {
	f := &Failure{Task: task, Attempt: j.plan.attempt, Life: j.plan.tasks[task].life, At: time.Now(),
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
		next = j.gone(ev.node, "its launcher was started anew")
	}
	j.note("node %d is here: %s", ev.node, ev.host)
	if !j.warned {
		j.warned = true
		j.note("the secret of the job goes to other hosts in plain text: use a network that others cannot read")
	}
	j.hosts[ev.node] = ev.host
	waiting := j.places.add(ev.node, ev.hand)
	if j.ranks != nil {
		j.ranks.arrive(ev.node, ev.identity, time.Now())
	}
	j.sit()
	j.startWaiting(waiting)
	return next
}

// hostName is what people call a host.
func (j *Job) hostName(node int) string {
	if name := j.hosts[node]; name != "" {
		return name
	}
	return fmt.Sprintf("node %d", node)
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
	if !j.places.is(ev.node, ev.hand) {
		return step{} // it is gone
	}
	j.note("node %d was told to end by signal %d", ev.node, ev.signal)
	j.places.retire(ev.node, ev.signal)
	return step{}
}

// lost takes note that a host has gone. A loss is that of one life of a launcher: it says nothing about
// the next one on the same host.
func (j *Job) lost(ev lost) step {
	if !j.places.is(ev.node, ev.hand) {
		return step{}
	}
	return j.gone(ev.node, ev.why)
}

// gone takes note that a host has gone, and all tasks on it. The lives that it had are collected first:
// the last of them may begin an attempt, whose tasks have no part in the loss.
func (j *Job) gone(host int, why string) step {
	j.note("node %d is gone: %s", host, why)
	j.places.retire(host, 0) // all its tasks end for one cause
	var lives []lifetime
	for task, p := range j.plan.tasks {
		if on, ok := j.places.taskOn[task]; ok && on == host && p.phase != gone {
			lives = append(lives, j.lifetime(task))
		}
	}
	var next step
	for _, l := range lives {
		next = merged(next, j.died(died{lifetime: l, host: why, Cause: Cause{Text: "its host is lost: " + why}}))
	}
	j.places.remove(host)
	if j.ranks != nil {
		j.ranks.leave(host)
	}
	for _, l := range lives {
		next = merged(next, j.left(left{lifetime: l}))
	}
	return next
}

// merged does two steps in one. Where the second begins an attempt, no task is left to be stopped.
func merged(a, b step) step {
	if b.open {
		return b
	}
	return step{open: a.open || b.open, start: append(a.start, b.start...), stop: a.stop || b.stop, over: a.over || b.over}
}

// missing ends a job that waits for hosts in vain.
func (j *Job) missing() step {
	j.report.Err = fmt.Errorf("%w: no host came for node %d in %v", serry.ErrTimeout, j.places.vacant(), j.cfg.Service.Cluster.RegisterTimeout)
	j.report.Code = CodeStart
	return j.plan.finish()
}
