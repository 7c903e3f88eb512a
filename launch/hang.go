package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
)

// OnHang says what a job does when ranks are stuck (D-HG-8).
type OnHang string

// What a job may do.
const (
	HangReport  OnHang = "report"  // say so
	HangAbort   OnHang = "abort"   // end the job
	HangRestart OnHang = "restart" // treat the rank as one that has failed: Config.Restart says what is started again
)

// hangs is what the first launcher knows of ranks that may keep the others waiting, in one attempt.
type hangs struct {
	ranks     map[int]diagnose.RankEvidence
	watch     diagnose.Watch
	told      bool // people have been told of the present one
	longest   time.Duration
	published string         // what the service was told last
	standing  *diagnose.Hang // that it was told of, or nil
	past      []string       // lines about stalls, those of former attempts, too
	strays    []diagnose.Stray

	asking      bool // processes
	notes       hangNotes
	steps       stepTime
	transfers   transferWaits
	collectives collectiveWaits

	programs map[int]diagnose.Program // what ranks run, as far as it is known
	compared bool                     // people have been told what differs
	differ   []string                 // what they were told
}

// pastHangs is how many lines about former hangs are kept for serry why.
const pastHangs = 16

// classed takes note of what a task does.
func (j *Job) classed(ev classed) {
	if !j.is(ev.lifetime, running) || !j.placed(ev.Task, ev.from) {
		return // of a host that was given up, or of an older attempt
	}
	if j.hangs.ranks == nil {
		j.hangs.ranks = make(map[int]diagnose.RankEvidence)
	}
	r := diagnose.RankEvidence{Rank: ev.Task, PID: ev.PID, Host: ev.Host, Condition: ev.Condition}
	r.Since = time.Since(j.begun) - max(0, ev.Age)
	if r.Phase != "" {
		r.Until = time.Since(j.begun) + ev.Left
	}
	j.hangs.ranks[ev.Task] = r
	j.checkPrograms(ev.Task, ev.Program)
}

// checkHang looks for ranks that keep the others waiting, says so, and acts where the job is told to.
func (j *Job) checkHang(view coord.View) step {
	now := time.Since(j.begun)
	j.askProcesses(now)
	h, notes := j.hangs.watch.Step(now, j.hangEvidence(view, now))
	stuck := false
	for _, n := range notes {
		stuck = stuck || !n.Ended && n.Hang.Stage == diagnose.Stuck
		if !n.Ended {
			continue
		}
		if j.hangs.told {
			j.note("%s", n.Text(now, j.begun))
		}
		j.hangs.told, j.hangs.longest = false, max(j.hangs.longest, n.After)
		j.hangs.remember(n.Text(now, j.begun), time.Now())
		j.tellOften(n.Hang, now)
	}
	if h != nil {
		j.askStepTime(now)
	}
	j.tellLongCompilations(now)
	j.tellHang(h, now)
	j.publishHang(h, now, view.Epoch)
	if stuck && h.Grade != diagnose.Possible {
		return j.stuck(h, now)
	}
	return step{}
}

// remember keeps a line for the report that why reads later.
func (h *hangs) remember(text string, at time.Time) {
	h.past = append(h.past, at.Format(time.TimeOnly)+" "+text)
	h.past = h.past[max(0, len(h.past)-pastHangs):]
}

// tellHang tells people of a stall once it lasts longer than any that has ended well: a job that stands still for a minute
// whenever it saves has told them so the first time. Ranks that want to leave are named elsewhere (checkLeaving).
func (j *Job) tellHang(h *diagnose.Hang, now time.Duration) {
	if h == nil || h.Stage != diagnose.Stalled || j.hangs.told || now-h.Since <= j.hangs.longest || h.Kind == diagnose.HangLeaving {
		return
	}
	j.hangs.told = true
	j.note("%s", hangText(h, now, j.begun))
	j.hangs.remember(h.Text(now, j.begun), time.Now())
}

// hangText says what keeps ranks waiting, and at which place.
func hangText(h *diagnose.Hang, now time.Duration, begun time.Time) string {
	text := h.Text(now, begun)
	if len(h.Ranks) > 0 && h.Ranks[0].At != "" {
		text += "; it is at " + h.Ranks[0].At
	}
	if len(h.Ranks) > 0 && h.Ranks[0].Pressure != (diagnose.Pressure{}) {
		text += "; " + h.Ranks[0].Pressure.Text()
	}
	return text
}

// hangEvidence puts together what is known. The clock of the service counts from another moment than that of the job.
func (j *Job) hangEvidence(view coord.View, now time.Duration) diagnose.HangEvidence {
	e := diagnose.HangEvidence{Size: len(j.plan.tasks), After: j.cfg.HangAfter, Steady: j.service.steady().Sub(j.begun), Transfers: j.stillWaiting(), Collectives: j.stillInCollectives(), Step: j.hangs.steps.usual}
	for task, p := range j.plan.tasks {
		r, known := j.hangs.ranks[task]
		switch {
		case p.phase == running && known:
			r.Raised = j.exceptions.last[task].lifetime == j.lifetime(task)
			e.Ranks = append(e.Ranks, r)
		case p.phase == running:
			e.Ranks = append(e.Ranks, diagnose.RankEvidence{Rank: task})
		case p.well:
			if r.Class != diagnose.ClassGone {
				r = diagnose.RankEvidence{Rank: task, Condition: diagnose.Condition{Class: diagnose.ClassGone, Since: now}}
				j.hangs.keep(r)
			}
			e.Ranks = append(e.Ranks, r)
		}
	}
	for _, b := range view.Barriers {
		if slices.ContainsFunc(b.Missing, func(t serry.TaskID) bool { return !j.ours(t) }) {
			continue // of another job of the service
		}
		e.Barriers = append(e.Barriers, barrierEvidence(b, now-time.Duration(view.Now-b.Since)))
	}
	return e
}

func (h *hangs) keep(r diagnose.RankEvidence) {
	if h.ranks == nil {
		h.ranks = make(map[int]diagnose.RankEvidence)
	}
	h.ranks[r.Rank] = r
}

func barrierEvidence(b coord.BarrierView, since time.Duration) diagnose.BarrierEvidence {
	e := diagnose.BarrierEvidence{ID: b.ID, Since: since, Members: b.Members, Arrived: b.Arrived}
	for _, t := range b.Missing {
		e.Missing = append(e.Missing, t.Index)
	}
	return e
}

// stuck does what the job is told to do about a hang.
func (j *Job) stuck(h *diagnose.Hang, now time.Duration) step {
	text := hangText(h, now, j.begun)
	j.hangs.remember(h.Text(now, j.begun), time.Now())
	if j.cfg.OnHang == HangReport {
		j.hangs.told = true
		j.warn("%s", text)
		return step{}
	}
	task, ok := j.culprit(h)
	if !ok {
		j.warn("%s", text)
		return step{}
	}
	var s step
	if j.cfg.OnHang == HangAbort {
		s = j.plan.finish()
	}
	why := strings.TrimPrefix(strings.TrimPrefix(text, fmt.Sprintf("rank %d ", task)), "is ")
	hand := j.places.hands[j.places.taskOn[task]]
	l := j.lifetime(task)
	s = merged(s, j.died(died{lifetime: l, Cause: Cause{Text: why, Code: CodeStuck}, raised: true, hung: true}))
	j.warn("%s; %s", text, j.consequence(task))
	if hand != nil {
		hand.fail(l, why)
	}
	return s
}

// culprit is the rank to end: one that is waited for, or, where these have ended, one that waits.
func (j *Job) culprit(h *diagnose.Hang) (task int, ok bool) {
	var all []int
	for _, r := range h.Ranks {
		all = append(all, r.Rank)
	}
	for _, w := range h.Waits {
		all = append(all, w.Ranks...)
	}
	i := slices.IndexFunc(all, func(task int) bool { return task < len(j.plan.tasks) && j.plan.tasks[task].phase == running })
	if i < 0 {
		return 0, false
	}
	return all[i], true
}

// publishAfter is how long ranks must have kept the others waiting before the service is told, unless they stand still.
const publishAfter = 5 * time.Second

// publishHang tells the service what keeps ranks waiting, for serry why on any host, when that has changed. The service keeps it
// through a fail-over.
func (j *Job) publishHang(h *diagnose.Hang, now time.Duration, epoch int) {
	if h != nil && h.Stage == diagnose.Late && now-h.Since < publishAfter {
		h = nil
	}
	j.publish(h, j.aftermath(), epoch)
}

// publish tells the service what keeps ranks waiting, and what followed from a failure, when either has changed.
func (j *Job) publish(h *diagnose.Hang, failed *diagnose.Aftermath, epoch int) {
	j.hangs.standing = h
	attempts := j.attempts.told(j.plan)
	shortages := diagnose.Shortages(slices.Collect(maps.Values(j.hangs.ranks)))
	what := strings.Repeat("stray", len(j.hangs.strays)) + strings.Join(j.skews, "") + attemptsKey(attempts)
	if n := len(j.hangs.past); n > 0 {
		what += j.hangs.past[n-1]
	}
	if len(shortages) > 0 {
		what += fmt.Sprint(shortages)
	}
	if h != nil {
		what += fmt.Sprint(h.Kind, h.Stage, h.Since.Round(time.Second), h.Ranks, h.Waits)
	}
	what += strings.Join(j.hangs.differ, "")
	if failed != nil {
		what += fmt.Sprint(*failed)
	}
	if what != "" {
		what += fmt.Sprint(epoch) // a new epoch of a service that others run has no keys
	}
	if what == j.hangs.published {
		return
	}
	j.hangs.published = what
	text, err := json.Marshal(diagnose.HangReport{
		Version: diagnose.HangReportVersion, Begun: j.begun, Hang: h, Past: j.hangs.past, Short: shortages, Strays: j.hangs.strays, Clocks: j.skews, Attempts: attempts,
		Programs: j.hangs.differ, Aftermath: failed,
	})
	if err == nil {
		j.service.publish(diagnose.HangKey, text)
	}
}
