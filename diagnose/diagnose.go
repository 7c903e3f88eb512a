// Package diagnose says what is wrong with a job, in the order in which a person would want to know:
// what failed first and what was seen of it, who waits for whom right now and how far that has come (stage.go),
// what each rank did last (calls.go), where in its code each rank is (stacks.go), and what to do.
//
// [Judge] takes [Evidence], a status of the coordination service and what else is known, and
// returns a [Report]. It is pure: the same evidence gives the same report. Its callers
// collect the evidence and print the fields of the report; they need to know nothing of jobs.
//
// Ranks that keep the others waiting are found where processes can be seen, by launchers. On each host a [Window] draws
// the [Class] of a rank from samples of its process (class.go). The first launcher hears when a class changes; its [Watch]
// judges, by [JudgeHang], which ranks the others wait for and how long that may last (hang.go, watch.go). What it finds
// it stores as a [HangReport] for [Judge]. Read hang.go first.
package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// Evidence is what is known of a job.
type Evidence struct {
	Status wire.Status     // with its tasks
	Saves  preempt.Records // of tasks that were told to go, and of those that have saved
	Stacks []Stack         // of tasks on the host of the caller; see [Report.WantsStacks]
	Hang   *HangReport     // what the launcher of the job says, or nil
	Ending *Ending         // how the job has ended, or nil: it has not, as far as is known
	Peers  Peers           // the ranks whose addresses errors may name; nil: not known
}

// ReportVersion is the version of [Report]. It changes when a field changes its meaning or goes.
const ReportVersion = 1

// A Report says what is wrong with a job, if anything.
type Report struct {
	Version int      `json:"version"`
	Healthy bool     `json:"healthy"`
	Verdict string   `json:"verdict"` // one line
	Kind    Kind     `json:"kind"`
	Stage   Stage    `json:"stage,omitempty"` // of the wait that the verdict is about
	Grade   Grade    `json:"grade,omitempty"` // of a verdict about ranks that keep others waiting
	First   *Failure `json:"first_failure,omitempty"`
	Waits   []Wait   `json:"waits"`  // longest first
	Advice  []string `json:"advice"` // what to do, a sentence each
	Saves   []Save   `json:"saves"`  // by round
	Calls   []Calls  `json:"calls"`  // what ranks did last, those first that have been quiet longest

	Evidence []HangLine `json:"evidence,omitempty"` // what the verdict rests on, of ranks that keep others waiting
	Past     []string   `json:"past,omitempty"`     // lines about former stalls, oldest first
	Older    []string   `json:"older,omitempty"`    // what [Older] says, where it is asked for

	Keys    []KeyWait `json:"keys,omitempty"`    // that ranks wait for, longest first
	Refused []Refusal `json:"refused,omitempty"` // oldest first
	At      []At      `json:"at,omitempty"`      // where in their code ranks are, those first that are alone

	AsOf string `json:"as_of,omitempty"` // the moment that this is about, where it is not now

	// The same for programs (D-CLI-1).
	Rank        *int      `json:"rank,omitempty"`               // that the verdict is about, the first of several; nil: none
	Incarnation uint64    `json:"incarnation,string,omitempty"` // of its process, as the service knows it; 0: it does not
	Since       time.Time `json:"since,omitzero"`               // when the rank failed, or began to keep the others waiting
	Until       time.Time `json:"until,omitzero"`               // the end of the job, where it is over
	Effects     []Effect  `json:"effects,omitempty"`            // on other ranks, as their launchers have seen them
	Next        []string  `json:"next,omitempty"`               // commands, and what to look at
}

// A Kind is what a verdict is about.
type Kind string

// The kinds of verdicts.
const (
	Well      Kind = "well"
	Failed    Kind = "failed"    // a rank, a barrier or the job
	Stopped   Kind = "stopped"   // the service, or the job by a signal
	Deadlock  Kind = "deadlock"  // ranks wait for each other
	Refused   Kind = "refused"   // a process that wants to join
	Preempted Kind = "preempted" // a task was told to go
	Waiting   Kind = "waiting"   // for ranks that do not come
)

// ExitStatus is that of serry why (D-CLI-1): 1 where something has failed or is stuck, 3 where a wait has stalled
// or a process was refused, 0 otherwise.
func (r *Report) ExitStatus() int {
	switch {
	case r.Kind == Failed || r.Stage == Stuck:
		return 1
	case r.Kind == Refused || r.Stage == Stalled:
		return 3
	}
	return 0
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
	at         time.Time
	host       *lostHost // that the task was lost with, or nil
	also       bool      // another rank has crashed by itself, later
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
	Stage      Stage    `json:"stage,omitempty"`
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
	Round       int       `json:"round"`
	Steps       []int64   `json:"steps"` // at which tasks saved; one, if they agreed
	Saved       int       `json:"saved"`
	Of          int       `json:"of"`
	Missing     []string  `json:"missing"`                // tasks without a receipt, 1,024 at most
	More        int       `json:"more,omitempty"`         // tasks without a receipt that Missing does not name
	By          string    `json:"by,omitempty"`           // the task that was told to go; empty: not known
	Source      string    `json:"source,omitempty"`       // what told it
	At          time.Time `json:"at,omitzero"`            // when, on the wall of its host
	TookSeconds float64   `json:"took_seconds,omitempty"` // the longest time that a task took to save; 0: not known
}

// refusedLately is how long a refusal keeps a job from being called healthy. A server tells once a minute of a
// process that is refused again and again.
const refusedLately = 2 * time.Minute

// Judge says what the evidence means.
func Judge(e Evidence) Report {
	j := newJudge(e)
	r := Report{Version: ReportVersion, Waits: j.waits(), Saves: j.saves(), Calls: j.calls(), Keys: j.keyWaits(), Refused: j.refusals(), At: j.places(e.Stacks), Advice: []string{}}
	if j.status.First != nil {
		r.First = j.first(j.status.First)
	}
	if e.Hang != nil {
		r.Past = e.Hang.Past
	}
	crossed, since := j.crossed()
	readers, unwritten := j.keyCulprit(r.Keys)
	stray := e.Hang.strayLately(e.Status.Clock)
	switch refused, wait, save := r.refusedLately(), r.worst(), j.lastSave(r.Saves); {
	case save != nil && len(save.Missing) == 0 && (r.First == nil || r.First.at.After(save.At)):
		// Ranks that end after all have saved end because they were told to.
		r.preempted(j, save)
	case r.ended(j, e): // it has set the verdict
	case r.First != nil && r.First.told() && !r.First.Recovered:
		r.Kind, r.Verdict, r.Advice = Stopped, "no failure is known: "+r.First.verdict(), []string{"its launcher, or a person, has ended it: the output of the launcher says why"}
	case r.First != nil && !r.First.Recovered:
		r.failed(e)
	case j.status.Stopped:
		r.Kind, r.Verdict = Stopped, "the service has stopped"
	case j.failed() != nil:
		t := j.failed()
		r.Kind, r.Verdict, r.Advice = Failed, fmt.Sprintf("%s failed %s ago: %s", j.rank(t.Task), Ago(t.ForSeconds), t.Cause), advise(t.Cause, "")
	case unwritten != nil && e.Hang.agrees(unwritten.Owner):
		r.keyVerdict(j, readers, unwritten, e.Hang)
	case e.Hang.stands():
		r.hang(j, e.Hang, e.Status.Clock)
	case crossed != "":
		r.Kind, r.Stage, r.Verdict = Deadlock, crossStage(since), crossed
		r.Advice = []string{"the ranks do not do the same things in the same order: compare what leads to the two barriers"}
	case stray != nil && wait == nil:
		r.Kind, r.Grade, r.Verdict, r.Evidence = Refused, Sure, stray.Text(), stray.lines()
	case refused != nil:
		r.Kind, r.Verdict, r.Advice = Refused, refused.Text, refused.advice()
	case save != nil:
		r.preempted(j, save)
	case wait != nil:
		r.Kind, r.Stage, r.Verdict, r.Advice = Waiting, wait.Stage, j.waitVerdict(wait), j.waitAdvice(wait)
		r.Evidence = e.Hang.pressed("is", wait.ranks()...)
	case e.Hang != nil && e.Hang.Hang != nil && e.Hang.Hang.Kind != HangIdle:
		r.hang(j, e.Hang, e.Status.Clock)
	case j.failedOver(r.First):
		r.Kind, r.Grade, r.Verdict = Well, Sure, TakeoverText(j.status.Takeover, j.status.Leader, j.status.Clock.Location(), 0)
		r.Evidence = []HangLine{{"grade", fmt.Sprintf("%s: the server that leads has said so, and all ranks are here", Sure)}}
	case len(j.status.Stragglers) > 0:
		r.Kind, r.Grade, r.Verdict = Well, Likely, "no failure; "+StragglerText(j.status, j.status.Stragglers[0])
		r.Evidence = append(e.Hang.pressed("is", indexOf(j.status.Stragglers[0].Task)...), HangLine{"grade", fmt.Sprintf("%s: it comes late again and again, by far more than the others differ", Likely)})
		r.Advice = []string{"serry top shows how far each rank is; compare what that rank, or its host, does beside the job"}
	case e.Hang != nil && e.Hang.Hang != nil:
		r.hang(j, e.Hang, e.Status.Clock)
	case j.status.Size > j.status.Counts[wire.StateLeft] && r.differs(e): // it has set the verdict
	default:
		r.Kind, r.Verdict = Well, j.well(r.First)
	}
	if bad := e.Saves.Bad; bad != nil {
		r.Advice = append(slices.Clip(r.Advice), fmt.Sprintf("what ranks have said about preemptions is not whole: %v", bad))
	}
	r.Verdict = e.Peers.name(r.Verdict)
	r.Evidence = orderLines(r.Evidence)
	r.fields(j, e)
	r.Healthy = r.ExitStatus() == 0 && r.Kind != Stopped
	return r
}

// failed makes the first failure the verdict.
func (r *Report) failed(e Evidence) {
	r.Kind, r.Verdict, r.Advice = Failed, r.First.verdict(), advise(r.First.Cause, r.First.Evidence)
	r.Grade, r.Evidence = r.First.grade(), slices.Concat(r.First.lines(), e.Hang.clocks(), e.Hang.pressed("was", indexOf(r.First.Task)...))
	if a := r.aftermath(e); a != nil {
		r.Evidence, r.Effects = append(r.Evidence, a.lines()...), a.Effects
	}
}

// hang takes over what the launcher says about ranks that keep the others waiting.
func (r *Report) hang(j *judge, h *HangReport, clock time.Time) {
	r.Kind, r.Stage, r.Grade, r.Evidence = Waiting, h.Hang.Stage, h.Hang.Grade, h.Hang.Lines(h.Begun)
	r.Since = h.Begun.Add(h.Hang.Since)
	r.Evidence = append(r.Evidence, h.programs()...)
	if h.Hang.Kind == HangLeaving {
		r.Evidence = append(r.Evidence, j.steps(h.Hang)...)
	}
	if len(h.Hang.Ranks) > 0 {
		r.Rank = &h.Hang.Ranks[0].Rank
	}
	if h.Hang.Kind == HangDeadlock {
		r.Kind = Deadlock
	}
	r.Verdict = h.Hang.Text(max(h.Hang.Since, clock.Sub(h.Begun)), h.Begun)
}

// indexOf is the number of a task, or none.
func indexOf(task string) []int {
	id, err := serry.ParseTaskID(task)
	if err != nil {
		return nil
	}
	return []int{id.Index}
}

// ranks are those that a wait is for, as far as they are named.
func (w *Wait) ranks() (all []int) {
	for _, b := range w.On {
		all = append(all, indexOf(b.Task)...)
	}
	return all
}

// worst is the wait that has come furthest, or nil if all are on time; of two the longer one.
func (r *Report) worst() *Wait {
	order := []Stage{OnTime, Late, Stalled, Stuck}
	var found *Wait
	for i := range r.Waits {
		w := &r.Waits[i]
		if w.Stage != OnTime && (found == nil || slices.Index(order, w.Stage) > slices.Index(order, found.Stage)) {
			found = w
		}
	}
	return found
}

// A judge is the evidence in a form to look things up in.
type judge struct {
	status  wire.Status
	records preempt.Records
	tasks   map[string]*wire.TaskStatus
	job     string // the only one, so that the number of a task names it; or empty
}

func newJudge(e Evidence) *judge {
	j := &judge{status: e.Status, records: e.Saves, tasks: make(map[string]*wire.TaskStatus, len(e.Status.Tasks))}
	for i := range e.Status.Tasks {
		t := &e.Status.Tasks[i]
		j.tasks[t.Task] = t
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
	if !j.status.Clock.IsZero() {
		f.at = j.status.Clock.Add(-time.Duration(f.AgoSeconds * float64(time.Second)))
	}
	f.host, f.also = j.silentHost(f), j.crashedToo(f)
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
	switch j.status.Size {
	case j.status.Counts[wire.StateLeft]:
		return "nothing is wrong: all ranks have left"
	case j.status.Counts[wire.StateAbsent]:
		return "nothing is wrong: no rank has come yet"
	}
	text := fmt.Sprintf("%d of %d ranks are connected", j.status.Counts[wire.StateConnected], j.status.Size)
	if first != nil {
		text += fmt.Sprintf("; %s failed %s ago and has come back", j.rank(first.Task), Ago(first.AgoSeconds))
	}
	if t := j.quietest(); t != nil {
		// Ranks that compute make no calls, and neither do ranks that hang in a collective.
		return fmt.Sprintf("no failure is known: %s; %s has been quiet longest, for %s", text, j.rank(t.Task), Ago(t.CallSeconds))
	}
	return "nothing is wrong: " + text
}

// waits lists the open barriers.
func (j *judge) waits() []Wait {
	waits := []Wait{}
	for _, b := range j.status.Barriers {
		w := Wait{
			Barrier: b.ID, ForSeconds: b.ForSeconds, Arrived: b.Arrived, Members: b.Members,
			Stage: j.stage(b), On: []Blamed{}, More: b.Members - b.Arrived - len(b.Missing),
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
		return notCome
	case t.State == wire.StateLeft:
		return "has left"
	case t.State == wire.StateFailed:
		return "has failed: " + cmp.Or(t.Cause, t.Error)
	}
	if i := slices.IndexFunc(j.status.Barriers, func(o wire.BarrierStatus) bool { return o.ID != b.ID && j.waitsAt(task, o) }); i >= 0 {
		return fmt.Sprintf("waits at %q instead", j.status.Barriers[i].ID)
	}
	return notArrived
}

// waitsAt says whether a task is known to have arrived at b: b wants all tasks and does not miss it,
// or it was the first. Of a barrier of some tasks the status does not say which.
func (j *judge) waitsAt(task string, b wire.BarrierStatus) bool {
	complete := len(b.Missing) == b.Members-b.Arrived
	return b.First == task || b.Members == j.status.Size && complete && !slices.Contains(b.Missing, task)
}

// crossed finds two barriers at which tasks wait for each other, and since when they do.
func (j *judge) crossed() (text string, seconds float64) {
	for i, a := range j.status.Barriers {
		for _, b := range j.status.Barriers[i+1:] {
			one, other := j.missingThere(a, b), j.missingThere(b, a)
			if one != "" && other != "" {
				text = fmt.Sprintf("ranks wait for each other: %s is at %q and missing at %q, %s the other way round", j.rank(one), b.ID, a.ID, j.rank(other))
				return text, min(a.ForSeconds, b.ForSeconds)
			}
		}
	}
	return "", 0
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
