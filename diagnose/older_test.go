package diagnose

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// deadNote is a note about a rank that was lost.
func deadNote(number uint64, at float64, task, evidence string) wire.NoteStatus {
	return wire.NoteStatus{Number: number, AtSeconds: at, What: "task failed", Task: task, Cause: serry.ErrTaskDead.Error(), Evidence: evidence, Error: "task is dead"}
}

// What was said before: the first failure of each attempt, and what followed it, and then the lines of the launcher.
func TestOlder(t *testing.T) {
	clause.Cite(t, "D-CLI-1", "D-EV-7", "D-RC-3", "TD-CLI-1")
	s := wire.Status{
		Version: 1, Clock: time.Date(2026, 11, 16, 12, 1, 7, 0, time.UTC), UpSeconds: 100, Size: 4, Epoch: 4, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}},
		Counts: map[string]int{wire.StateConnected: 4},
	}
	for _, task := range []string{"worker/0", "worker/1", "worker/2", "worker/3"} {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: task, State: wire.StateConnected})
	}
	s.Notes = []wire.NoteStatus{
		deadNote(1, 10, "worker/3", "process exited: signal 11"),
		deadNote(2, 10.5, "worker/0", "process exited: signal 6"),
		{Number: 3, AtSeconds: 10.6, What: "barrier ended", Barrier: "save-1", Cause: "task is dead", Error: "task is dead"},
		{Number: 4, AtSeconds: 20, What: "epoch opened", Count: 2},
		{Number: 5, AtSeconds: 25, What: "registration refused", Task: "worker/9", From: "10.0.0.9:1", Cause: serry.ErrUnknownTask.Error(), Error: "unknown task"},
		{Number: 6, AtSeconds: 30, What: "barrier ended", Barrier: "save-2", Cause: serry.ErrTimeout.Error(), Missing: []string{"worker/2"}, Error: "timed out"},
		{Number: 7, AtSeconds: 40, What: "epoch opened", Count: 3},
		deadNote(8, 41, "worker/1", "process exited: signal 15, after it was told to end"),
		deadNote(9, 42, "worker/2", "process exited: raised ValueError: bad sample"),
		{Number: 10, AtSeconds: 50, What: "epoch opened", Count: 4},
	}
	e := Evidence{Status: s, Hang: &HangReport{Version: HangReportVersion, Past: []string{"12:01:00 rank 2 went on after 31s"}, Attempts: []Attempt{
		{Number: 2, Ended: s.Clock.Add(-time.Minute), Failed: true, Rank: 2, How: "exit code 3"}, {Number: 3, Ended: s.Clock}, {Number: 4},
	}}}
	want := []string{
		"rank 3 crashed at 11:59:37: segmentation fault (signal 11); 1 more rank failed after it",
		`attempt 2: barrier "save-2" failed 1m10s ago: timed out, without rank 2`,
		"attempt 3: rank 2 raised ValueError at 12:00:09: bad sample; 1 more rank failed after it",
		"12:00:07 attempt 2: rank 2: exit code 3",
		"12:01:00 rank 2 went on after 31s",
	}
	if diff := cmp.Diff(want, Older(e, Judge(e))); diff != "" {
		t.Errorf("Older() (-want +got):\n%s", diff)
	}

	// The failure that the report is about is not an older one; one that was made good is.
	last := deadNote(11, 60, "worker/0", "process exited: signal 9")
	e.Status.Notes, e.Status.First, e.Status.Failure = append(slices.Clone(s.Notes), last), &last, "task is dead"
	if diff := cmp.Diff(want, Older(e, Judge(e))); diff != "" {
		t.Errorf("Older() of a job that has failed (-want +got):\n%s", diff)
	}
	e.Status.Failure = ""
	if got := Older(e, Judge(e)); len(got) != len(want)+1 || got[3] != "attempt 4: rank 0 was killed at 12:00:27: signal 9, not sent by serry" {
		t.Errorf("Older() of a job that goes on = %q", got)
	}
}

// What passes while nothing happens does not make a verdict another one; what happens does.
func TestSubject(t *testing.T) {
	clause.Cite(t, "D-CLI-1")
	job := func(after time.Duration) Evidence {
		s := wire.Status{Version: 1, Clock: time.Date(2026, 11, 16, 12, 1, 7, 0, time.UTC).Add(after), UpSeconds: 40 + after.Seconds(), Size: 3, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 3}},
			Counts:   map[string]int{wire.StateConnected: 3},
			Barriers: []wire.BarrierStatus{{ID: "save-1", Members: 3, Arrived: 2, Missing: []string{"worker/2"}, ForSeconds: after.Seconds()}},
		}
		for i, task := range []string{"worker/0", "worker/1", "worker/2"} {
			s.Tasks = append(s.Tasks, wire.TaskStatus{Task: task, State: wire.StateConnected, LastCall: "Barrier", CallSeconds: float64(i) + after.Seconds()})
		}
		return Evidence{Status: s}
	}
	subject := func(e Evidence) string { return Subject(e, Judge(e)) }
	early, late, later, stalled := job(time.Second), job(3*time.Second), job(5*time.Second), job(20*time.Second)
	if subject(late) != subject(later) || Judge(late).Verdict == Judge(later).Verdict {
		t.Errorf("Subject() of %q and %q differ, or the texts do not", Judge(late).Verdict, Judge(later).Verdict)
	}
	seen := map[string]string{}
	failed := job(3 * time.Second)
	note := deadNote(1, 42, "worker/2", "process exited: signal 9")
	failed.Status.First, failed.Status.Counts = &note, map[string]int{wire.StateConnected: 2, wire.StateFailed: 1}
	other := job(3 * time.Second)
	other.Status.Barriers[0].ID = "save-2"
	hang := job(3 * time.Second)
	hang.Hang = &HangReport{Hang: &Hang{Kind: HangStill, Stage: Late, Ranks: []RankEvidence{{Rank: 2}}}}
	for name, e := range map[string]Evidence{"early": early, "late": late, "stalled": stalled, "failed": failed, "another barrier": other, "a hang": hang} {
		s := subject(e)
		if same, ok := seen[s]; ok {
			t.Errorf("Subject() of %s and of %s is the same", name, same)
		}
		seen[s] = name
	}
}
