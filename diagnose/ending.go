package diagnose

import (
	"fmt"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// An Ending is how a job has ended, as its launcher says. The launcher knows the order in which processes ended, and what it
// did to them itself; the service does not, and has never heard of a rank that ended before it joined.
type Ending struct {
	At     time.Time
	Well   bool
	Signal int    // by which a person or a scheduler ended it, or 0
	Text   string // what the launcher said at the end, where it did not end well

	Task     string    // that failed first; empty: none did
	Failed   time.Time // when it did
	Evidence string    // how, as the service is told of such; empty: Text alone says it
	Followed int       // other tasks that failed
	Seen     string    // instead of Evidence: what was seen before its process ended, in the words of the launcher

	Aftermath *Aftermath // what else is known of that failure, or nil
}

// ended makes the end of a job the verdict where that says more than what the service saw, and says whether it has (D-EV-7).
func (r *Report) ended(j *judge, e Evidence) bool {
	d := e.Ending
	switch {
	case d == nil:
		return false
	case d.Well:
		// Ranks that have left end in any way and in any order, and that is no failure.
		r.Kind, r.First, r.Verdict = Well, nil, "nothing is wrong: the job ended well at "+d.at(e)
	case d.Task != "" && r.First != nil && !r.First.Recovered && r.First.Task == d.Task:
		return false // the service has seen the same, and more
	case d.Task == "" && d.Signal != 0:
		r.interrupted(j, e)
	case d.Evidence != "":
		r.First = &Failure{
			Task: d.Task, rank: j.rank(d.Task), Cause: serry.ErrTaskDead.Error(), Evidence: d.Evidence, at: d.Failed.In(e.Status.Clock.Location()),
			AgoSeconds: d.At.Sub(d.Failed).Seconds(), Followed: d.Followed,
		}
		r.failed(e)
	case d.Seen != "":
		r.seen(j, e)
	default:
		r.Kind, r.First, r.Verdict = Failed, nil, d.Text
	}
	return true
}

// seen makes the verdict of the launcher on the first failure that of the report.
func (r *Report) seen(j *judge, e Evidence) {
	r.Kind, r.First, r.Verdict = Failed, nil, j.rank(e.Ending.Task)+": "+e.Ending.Seen
	if strings.HasPrefix(e.Ending.Seen, leftWords) {
		r.Verdict, r.Grade = j.rank(e.Ending.Task)+" "+e.Ending.Seen, Sure
		r.Evidence = []HangLine{{"grade", fmt.Sprintf("%s: the kernel says how its process ended", Sure)}}
	}
	if strings.HasPrefix(e.Ending.Seen, twiceWords) {
		r.Grade = Sure
		r.Evidence = []HangLine{{"grade", fmt.Sprintf("%s: the service has heard of both", Sure)}}
		r.Advice = advise(serry.ErrRestarted.Error(), "")
	}
	if at := indexOf(e.Ending.Task); len(at) > 0 {
		r.Rank, r.Since = &at[0], e.Ending.Failed
	}
	if a := e.Ending.Aftermath; a != nil {
		r.Evidence, r.Effects = append(r.Evidence, a.lines()...), a.Effects
	}
}

// The verdicts of launchers begin with these: on a rank that has ended with code 0 in the midst of the work (D-RC-4), and on a number
// that two processes have.
const (
	leftWords  = "exited at "
	twiceWords = "two processes claim this rank"
)

// interrupted says that a person or a scheduler has ended the job, and what was wrong until then, as that may be why. How the
// ranks ended follows from the signal.
func (r *Report) interrupted(j *judge, e Evidence) {
	text := fmt.Sprintf("the job was ended by signal %d at %s", e.Ending.Signal, e.Ending.at(e))
	r.Kind, r.First, r.Verdict = Stopped, nil, text
	if e.Hang.stands() {
		r.hang(j, e.Hang, e.Ending.At)
		r.Verdict = text + "; until then " + r.Verdict
	}
}

// at is when the job ended, as the clocks of the other times of the report show it.
func (d *Ending) at(e Evidence) string {
	return d.At.In(e.Status.Clock.Location()).Format(time.TimeOnly)
}
