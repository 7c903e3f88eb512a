// Package diagnose says what is wrong with a job, in the order in which a person would want to know:
// what failed first and what was seen of it, who waits for whom right now, and what to do.
//
// [Judge] takes [Evidence], a status of the coordination service and what else is known, and
// returns a [Report]. It is pure: the same evidence gives the same report. Its callers
// collect the evidence and print the fields of the report; they need to know nothing of jobs.
package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// Evidence is what is known of a job.
type Evidence struct {
	Status   wire.Status       // with its tasks
	Receipts []preempt.Receipt // of tasks that have saved
}

// ReportVersion is the version of [Report]. It changes when a field changes its meaning or goes.
const ReportVersion = 1

// A Report says what is wrong with a job, if anything.
type Report struct {
	Version int      `json:"version"`
	Healthy bool     `json:"healthy"`
	Verdict string   `json:"verdict"` // one line
	First   *Failure `json:"first_failure,omitempty"`
	Waits   []Wait   `json:"waits"`  // longest first
	Advice  []string `json:"advice"` // what to do, a sentence each
	Saves   []Save   `json:"saves"`  // by round

	Refused []Refusal `json:"refused,omitempty"` // oldest first
}

// A Failure is what went wrong first since the run began.
type Failure struct {
	Task       string   `json:"task,omitempty"`    // who failed, or
	Barrier    string   `json:"barrier,omitempty"` // what
	Cause      string   `json:"cause"`
	Evidence   string   `json:"evidence,omitempty"`
	Missing    []string `json:"missing,omitempty"` // of a barrier: who had not come
	AgoSeconds float64  `json:"ago_seconds"`
	Recovered  bool     `json:"recovered,omitempty"` // the task has come back since
	Followed   int      `json:"followed"`            // tasks that are in state failed beside it
	Told       bool     `json:"told"`                // all tasks were told, so the run is over
	rank       string   // what people call the task
	ranks      []string // the same for Missing
}

// A Refusal is a process that the service turned away: it is not part of the job, or not any more.
type Refusal struct {
	Task       string  `json:"task"`
	From       string  `json:"from"` // its address, or that of its relay
	Cause      string  `json:"cause"`
	AgoSeconds float64 `json:"ago_seconds"`
	Text       string  `json:"text"` // all of it, in a line
	registers  bool    // the process wants to join
}

// A Wait is a barrier that some tasks have reached and others have not.
type Wait struct {
	Barrier    string   `json:"barrier"`
	ForSeconds float64  `json:"for_seconds"`
	Arrived    int      `json:"arrived"`
	Members    int      `json:"members"`
	On         []Blamed `json:"on"` // whom it waits for, as far as they are named
	More       int      `json:"more,omitempty"`
}

// Blamed is a task that others wait for.
type Blamed struct {
	Task string `json:"task"`
	Why  string `json:"why"` // it is not there: "has not come yet"
	rank string // what people call it
}

// A Save is what the receipts of one preemption round say.
type Save struct {
	Round   int      `json:"round"`
	Steps   []int64  `json:"steps"` // at which tasks saved; one, if they agreed
	Saved   int      `json:"saved"`
	Of      int      `json:"of"`
	Missing []string `json:"missing"` // tasks without a receipt
}

// patience is how long tasks may wait for each other before that is worth a word.
const patience = 10 * time.Second

// refusedLately is how long a refusal keeps a job from being called healthy. A server tells once a minute of a
// process that is refused again and again.
const refusedLately = 2 * time.Minute

// Judge says what the evidence means.
func Judge(e Evidence) Report {
	j := newJudge(e)
	r := Report{Version: ReportVersion, Waits: j.waits(), Saves: j.saves(), Refused: j.refusals(), Advice: []string{}}
	if j.status.First != nil {
		r.First = j.first(j.status.First)
	}
	switch crossed, refused := j.crossed(), r.refusedLately(); {
	case r.First != nil && !r.First.Recovered:
		r.Verdict, r.Advice = r.First.verdict(), advise(r.First.Cause, r.First.Evidence)
	case j.status.Stopped:
		r.Verdict = "the service has stopped"
	case j.failed() != nil:
		t := j.failed()
		r.Verdict, r.Advice = fmt.Sprintf("%s failed %s ago: %s", j.rank(t.Task), Ago(t.ForSeconds), t.Cause), advise(t.Cause, "")
	case crossed != "":
		r.Verdict = crossed
		r.Advice = []string{"the ranks do not do the same things in the same order: compare what leads to the two barriers"}
	case refused != nil:
		r.Verdict, r.Advice = refused.Text, refused.advice()
	case len(r.Waits) > 0 && r.Waits[0].ForSeconds >= patience.Seconds():
		r.Verdict, r.Advice = r.Waits[0].verdict(), r.Waits[0].advice()
	default:
		r.Healthy, r.Verdict = true, j.well(r.First)
	}
	return r
}

// A judge is the evidence in a form to look things up in.
type judge struct {
	status   wire.Status
	receipts []preempt.Receipt
	tasks    map[string]*wire.TaskStatus
	job      string // the only one, so that the number of a task names it; or empty
}

func newJudge(e Evidence) *judge {
	j := &judge{status: e.Status, receipts: e.Receipts, tasks: make(map[string]*wire.TaskStatus, len(e.Status.Tasks))}
	for i := range e.Status.Tasks {
		j.tasks[e.Status.Tasks[i].Task] = &e.Status.Tasks[i]
	}
	j.job = onlyJob(e.Status.Tasks)
	return j
}

// first draws the first failure.
func (j *judge) first(n *wire.NoteStatus) *Failure {
	f := &Failure{
		rank: j.rank(n.Task), ranks: j.ranksOf(n.Missing), Task: n.Task, Barrier: n.Barrier, Cause: n.Cause, Evidence: n.Evidence, Missing: n.Missing,
		AgoSeconds: max(0, j.status.UpSeconds-n.AtSeconds),
		Followed:   j.status.Counts[wire.StateFailed], Told: j.status.Failure != "",
	}
	if t := j.tasks[n.Task]; t != nil {
		f.Recovered = t.State == wire.StateConnected && !f.Told
		if t.State == wire.StateFailed {
			f.Followed--
		}
	}
	return f
}

// failed finds the task that has been in state failed for longest, or nil.
func (j *judge) failed() *wire.TaskStatus {
	var found *wire.TaskStatus
	for i := range j.status.Tasks {
		t := &j.status.Tasks[i]
		if t.State == wire.StateFailed && (found == nil || t.ForSeconds > found.ForSeconds) {
			found = t
		}
	}
	return found
}

// well describes a job in which nothing is wrong, at least not any more.
func (j *judge) well(first *Failure) string {
	text := fmt.Sprintf("nothing is wrong: %d of %d ranks are connected", j.status.Counts[wire.StateConnected], j.status.Size)
	switch j.status.Size {
	case j.status.Counts[wire.StateLeft]:
		return "nothing is wrong: all ranks have left"
	case j.status.Counts[wire.StateAbsent]:
		return "nothing is wrong: no rank has come yet"
	}
	if first != nil {
		text += fmt.Sprintf("; %s failed %s ago and has come back", j.rank(first.Task), Ago(first.AgoSeconds))
	}
	return text
}

// waits lists the open barriers.
func (j *judge) waits() []Wait {
	waits := []Wait{}
	for _, b := range j.status.Barriers {
		w := Wait{
			Barrier: b.ID, ForSeconds: b.ForSeconds, Arrived: b.Arrived, Members: b.Members,
			On: []Blamed{}, More: b.Members - b.Arrived - len(b.Missing),
		}
		for _, name := range b.Missing {
			w.On = append(w.On, Blamed{Task: name, Why: j.why(name, b), rank: j.rank(name)})
		}
		waits = append(waits, w)
	}
	slices.SortStableFunc(waits, func(a, b Wait) int { return cmp.Compare(b.ForSeconds, a.ForSeconds) })
	return waits
}

// why says why a task has not arrived at b.
func (j *judge) why(task string, b wire.BarrierStatus) string {
	t := j.tasks[task]
	switch {
	case t == nil:
		return "is not known"
	case t.State == wire.StateAbsent:
		return "has not come yet"
	case t.State == wire.StateLeft:
		return "has left"
	case t.State == wire.StateFailed:
		return "has failed: " + cmp.Or(t.Cause, t.Error)
	}
	if i := slices.IndexFunc(j.status.Barriers, func(o wire.BarrierStatus) bool { return o.ID != b.ID && j.waitsAt(task, o) }); i >= 0 {
		return fmt.Sprintf("waits at %q instead", j.status.Barriers[i].ID)
	}
	return "is connected, and has not arrived"
}

// waitsAt says whether a task is known to have arrived at b: b wants all tasks and does not miss it,
// or it was the first. Of a barrier of some tasks the status does not say which.
func (j *judge) waitsAt(task string, b wire.BarrierStatus) bool {
	complete := len(b.Missing) == b.Members-b.Arrived
	return b.First == task || b.Members == j.status.Size && complete && !slices.Contains(b.Missing, task)
}

// crossed finds two barriers at which tasks wait for each other.
func (j *judge) crossed() string {
	for i, a := range j.status.Barriers {
		for _, b := range j.status.Barriers[i+1:] {
			one, other := j.missingThere(a, b), j.missingThere(b, a)
			if one != "" && other != "" {
				return fmt.Sprintf("ranks wait for each other: %s is at %q and missing at %q, %s the other way round", j.rank(one), b.ID, a.ID, j.rank(other))
			}
		}
	}
	return ""
}

// missingThere finds a task that is missing at a because it waits at b.
func (j *judge) missingThere(a, b wire.BarrierStatus) string {
	for _, task := range a.Missing {
		if j.waitsAt(task, b) {
			return task
		}
	}
	return ""
}

// saves sums up the receipts by round.
func (j *judge) saves() []Save {
	saves := []Save{}
	done := make(map[int]map[string]bool)
	steps := make(map[int][]int64)
	for _, r := range j.receipts {
		if done[r.Round] == nil {
			done[r.Round] = make(map[string]bool)
		}
		done[r.Round][r.Task] = true
		steps[r.Round] = append(steps[r.Round], r.Step)
	}
	for round, tasks := range done {
		slices.Sort(steps[round])
		s := Save{Round: round, Steps: slices.Compact(steps[round]), Saved: len(tasks), Of: j.status.Size, Missing: []string{}}
		for _, t := range j.status.Tasks {
			if !tasks[t.Task] {
				s.Missing = append(s.Missing, t.Task)
			}
		}
		saves = append(saves, s)
	}
	slices.SortFunc(saves, func(a, b Save) int { return cmp.Compare(a.Round, b.Round) })
	return saves
}

// Ago prints a number of seconds the way people say it: "3.2s", "12m05s", "5h10m", "3d04h".
func Ago(seconds float64) string {
	n := int64(max(0, seconds))
	switch {
	case n < 10:
		return fmt.Sprintf("%.1fs", max(0, seconds))
	case n < 60:
		return fmt.Sprintf("%ds", n)
	case n < 3600:
		return fmt.Sprintf("%dm%02ds", n/60, n%60)
	case n < 86400:
		return fmt.Sprintf("%dh%02dm", n/3600, n%3600/60)
	}
	return fmt.Sprintf("%dd%02dh", n/86400, n%86400/3600)
}
