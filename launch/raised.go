package launch

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
)

// A Python program that ends by an exception prints it, and then jax makes the program leave the job politely:
// ShutdownTask waits until every rank leaves. The other ranks do not leave, because they wait for this rank in
// a collective. Without the rules below nothing would happen until the shutdown times out.
//
// An exception alone proves nothing, since programs print exceptions and go on. A shutdown call alone proves
// nothing either: ranks leave at different times, and healthy jobs save meanwhile. Both together are a failure
// (D-RC-6). Three conditions keep a job from being ended that is only about to end well:
//
//   - The exception is at most raisedLately older than the first shutdown call.
//   - Every rank that wants to leave has printed one. Where a rank without an exception leaves, too, the
//     program has probably come to its end.
//   - leavePause has passed since the first shutdown call, for the other ranks to follow.
const (
	raisedLately = 10 * time.Second
	leavePause   = 500 * time.Millisecond

	checkSoon  = 100 * time.Millisecond // between two looks at the service after an exception
	leaveFirst = 5 * time.Second        // how long ranks wait to leave before the job says so
	leaveAgain = 30 * time.Second       // and how long until it says so again
)

// A raised event says that a task has printed an exception. The task may go on.
type raised struct {
	lifetime
	Text  string
	After time.Duration // since its process was started
	from  hand          // of the host that says so; nil: this one
}

// exceptions are the last ones that tasks have printed in an attempt, and what was said of ranks that want to
// leave.
type exceptions struct {
	last   map[int]printed
	watch  time.Time // until then a shutdown call may follow the latest exception
	opened time.Time // when the job saw the shutdown barrier open; zero: it is not
	said   time.Time // when the job last named the ranks that want to leave
	ended  []early   // ranks whose processes have ended with code 0, the earliest first
}

// An early end is that of a process with code 0.
type early struct {
	died
	at time.Time
}

// A printed exception is one with the time at which the job heard of it.
type printed struct {
	raised
	at time.Time
}

// raisedPause is the least time between two raised events of one process. A program that prints exceptions
// in a loop must not keep the launcher busy, nor fill the queue to the first one.
const raisedPause = 100 * time.Millisecond

// tellRaised passes on the exceptions that a process prints, the latest of those that come fast, until
// drained is closed. The channel that it returns is closed when it sends no more.
func (c *crew) tellRaised(p *process, s seat, drained <-chan struct{}) (done <-chan struct{}) {
	ended := make(chan struct{})
	c.watch.Go(func() {
		defer close(ended)
		for {
			select {
			case text := <-p.out.raised:
				c.events <- raised{lifetime: s.lifetime(), Text: text, After: time.Since(p.begun)}
			case <-drained:
				return
			}
			select {
			case <-time.After(raisedPause):
			case <-drained:
				return
			}
		}
	})
	return ended
}

// raised takes note of an exception.
func (j *Job) raised(ev raised) step {
	if !j.is(ev.lifetime, running) || !j.placed(ev.Task, ev.from) || j.cfg.IgnoreTracebacks {
		return step{}
	}
	if j.exceptions.last == nil {
		j.exceptions.last = make(map[int]printed)
	}
	now := time.Now()
	j.exceptions.last[ev.Task], j.exceptions.watch = printed{ev, now}, now.Add(raisedLately+leavePause)
	if j.cfg.planted == tracebackFails {
		return j.raisedAndLeft(ev)
	}
	return step{}
}

// nextCheck is how long the job waits until it looks at the service again: not long where an exception may be
// followed by a shutdown call.
func (j *Job) nextCheck() time.Duration {
	if time.Now().Before(j.exceptions.watch) {
		return checkSoon
	}
	return checkEvery
}

// checkLeaving looks at the ranks that want to leave. One that has raised an exception has failed; ranks that
// the others do not follow are named.
func (j *Job) checkLeaving(view coord.View) step {
	i := slices.IndexFunc(view.Barriers, func(b coord.BarrierView) bool { return b.ID == coord.ShutdownBarrierID(view.Service) })
	if i < 0 {
		j.exceptions.opened = time.Time{}
		return step{}
	}
	b, now := &view.Barriers[i], time.Now()
	if j.exceptions.opened.IsZero() {
		j.exceptions.opened = now
	}
	leaving, named := j.leavingRanks(b)
	since := now.Sub(j.exceptions.opened)
	if ev, ok := j.firstRaised(leaving, named); ok && since >= leavePause {
		return j.raisedAndLeft(ev)
	}
	if len(leaving) > 0 && since >= leaveFirst && now.Sub(j.exceptions.said) >= leaveAgain {
		j.exceptions.said = now
		j.note("%s", j.wantToLeave(b, leaving, named))
	}
	return step{}
}

// leavingRanks lists the running tasks that wait at the shutdown barrier. A service that others run names only
// some of the missing tasks; then the list has the first that came, and named is false.
func (j *Job) leavingRanks(b *coord.BarrierView) (tasks []int, named bool) {
	named = len(b.Missing) == b.Members-b.Arrived
	missing := make([]bool, len(j.plan.tasks))
	for _, t := range b.Missing {
		if j.ours(t) {
			missing[t.Index] = true
		}
	}
	for task, p := range j.plan.tasks {
		here := named && !missing[task] || b.First == worker(task)
		if p.phase == running && here {
			tasks = append(tasks, task)
		}
	}
	return tasks, named
}

// firstRaised is the earliest exception of ranks that want to leave, if each of them has printed one lately.
func (j *Job) firstRaised(leaving []int, named bool) (ev raised, ok bool) {
	var first printed
	for _, task := range leaving {
		e, found := j.exceptions.last[task]
		if !found || e.lifetime != j.lifetime(task) || e.at.Before(j.exceptions.opened.Add(-raisedLately)) {
			return raised{}, false
		}
		if first.at.IsZero() || e.at.Before(first.at) {
			first = e
		}
	}
	return first.raised, len(leaving) > 0 && named
}

// raisedAndLeft fails a task that has raised an exception and now waits for the others to leave. It is a
// death as far as the plan is concerned; its process ends after it, and what that says about its end is
// ignored. Whatever the plan decides about the others, this process has to end, too.
func (j *Job) raisedAndLeft(ev raised) step {
	h := j.places.hands[j.places.taskOn[ev.Task]]
	s := j.died(died{lifetime: ev.lifetime, Cause: Cause{Text: raisedWords + ev.Text, Code: 1}, After: ev.After, from: ev.from, raised: true})
	delete(j.exceptions.last, ev.Task)
	h.fail(ev.lifetime, raisedWords+ev.Text)
	return s
}

// before is the failure that the first end of a rank follows from, as far as the launcher can tell, or else what the service says.
// The service only knows which rank has gone first.
func (j *Job) before(ev died, verdict *Failure) *Failure {
	var root *Failure
	if verdict == nil {
		root = j.leftEarly(ev)
	}
	if root == nil && (verdict == nil || !verdict.twice) {
		root = j.stoppedFirst(ev)
	}
	if root == nil || verdict != nil && verdict.Task == root.Task {
		return verdict
	}
	j.note("rank %d %s", root.Task, root.Verdict)
	return root
}

// peersNotice is how long other ranks may take to notice that a rank has ended: until they next wait for it.
const peersNotice = time.Minute

// leftEarly is the end of a rank with code 0 that another rank has failed of, or nil (D-RC-4). A rank that ends so in the midst
// of the work looks well to its launcher. What is seen first is an exception of a rank whose connection to it broke, which is no
// cause. Only the words of the rank itself say that: where a launcher or the service tells that a connection has closed, it is
// that of a host, or one to the service.
func (j *Job) leftEarly(ev died) *Failure {
	if !diagnose.BrokenByPeer(j.exceptionOf(ev)) {
		return nil
	}
	for _, e := range j.exceptions.ended {
		if time.Since(e.at) <= peersNotice {
			how := fmt.Sprintf("exited at %s with code 0 without saying goodbye", e.at.Format(time.TimeOnly))
			return &Failure{Task: e.Task, Attempt: e.Attempt, Life: e.Life, After: e.After, Verdict: how, At: e.at}
		}
	}
	return nil
}

// exceptionOf is what a rank has raised that has ended, or empty.
func (j *Job) exceptionOf(ev died) string {
	if e, ok := j.exceptions.last[ev.Task]; ok && e.lifetime == ev.lifetime {
		return e.Text
	}
	if text, ok := strings.CutPrefix(ev.Cause.Text, raisedWords); ok && ev.raised {
		return text
	}
	return ""
}

// stoppedFirst is the rank that a signal has stopped, the lowest of them, while another one has ended with an error, or nil
// (D-RC-4). Nothing ends a stopped rank; what is seen first is the end of a rank that has given it up. If that rank has raised
// an exception, the exception must tell of a peer.
func (j *Job) stoppedFirst(ev died) *Failure {
	raised := j.exceptionOf(ev)
	gaveUp := diagnose.BrokenByPeer(raised) || raised == "" && ev.Cause.Text == "" && ev.Cause.Signal == 0 && ev.Cause.Code != 0
	if !gaveUp {
		return nil
	}
	for task, p := range j.plan.tasks {
		r := j.hangs.ranks[task]
		if task == ev.Task || p.phase != running || r.Class != diagnose.ClassStopped || r.Traced {
			continue
		}
		since := j.begun.Add(r.Since)
		how := fmt.Sprintf("has been stopped by a signal since %s", since.Format(time.TimeOnly))
		return &Failure{Task: task, Attempt: j.plan.attempt, Life: p.life, Verdict: how, At: since}
	}
	return nil
}

// raisedWords begin the evidence against a task that has raised an exception (C-LOST-3).
const raisedWords = "raised "

// wantToLeave says which ranks want to leave and which do not, with the exceptions that the first had.
func (j *Job) wantToLeave(b *coord.BarrierView, leaving []int, named bool) string {
	var stay []int
	for _, t := range b.Missing {
		if j.ours(t) {
			stay = append(stay, t.Index)
		}
	}
	text := fmt.Sprintf("%s to leave; %d others do not", plural(b.Arrived, counted(b.Arrived, "rank"), "wants", "want"), b.Members-b.Arrived)
	if named {
		text = fmt.Sprintf("%s to leave; %s not", plural(len(leaving), numbered("rank", leaving), "wants", "want"), plural(len(stay), numbered("rank", stay), "does", "do"))
	}
	for _, task := range leaving {
		if e, ok := j.exceptions.last[task]; ok && e.lifetime == j.lifetime(task) {
			return fmt.Sprintf("%s; rank %d has printed %s", text, task, e.Text)
		}
	}
	return text
}

// plural adds the verb for n of something to its name.
func plural(n int, name, one, many string) string {
	if n == 1 {
		return name + " " + one
	}
	return name + " " + many
}

// mostNumbered is how many ranks or nodes a line has room for.
const mostNumbered = 8

// numbered names a few ranks or nodes: "rank 2", "ranks 0, 1 and 3".
func numbered(what string, all []int) string {
	if len(all) == 1 {
		return fmt.Sprintf("%s %d", what, all[0])
	}
	var names []string
	for _, n := range all[:min(len(all), mostNumbered)] {
		names = append(names, fmt.Sprint(n))
	}
	if more := len(all) - mostNumbered; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	last := max(0, len(names)-1)
	return fmt.Sprintf("%ss %s and %s", what, strings.Join(names[:last], ", "), strings.Join(names[last:], ""))
}
