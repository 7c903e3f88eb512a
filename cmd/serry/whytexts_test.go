package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// noon is what the clock of the server shows when why is asked, 40 s after the job of four ranks began.
var noon = time.Date(2026, 11, 16, 12, 1, 7, 0, time.UTC)

const jobAge = 40 * time.Second

// fourRanks is a job in which nothing is wrong.
func fourRanks() wire.Status {
	s := wire.Status{Version: wire.StatusVersion, Clock: noon, UpSeconds: jobAge.Seconds(), Size: 4, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}}, Counts: map[string]int{wire.StateConnected: 4}}
	for i := range 4 {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, ForSeconds: 30})
	}
	return s
}

// failedRank is the job after a rank has failed, 3 s ago.
func failedRank(rank int, evidence string) diagnose.Evidence {
	s := fourRanks()
	id := serry.TaskID{Job: "worker", Index: rank}
	err := &serry.TaskError{Task: id, Evidence: evidence, Err: serry.ErrTaskDead}
	note := wire.NewNote(1, coord.Time(jobAge-3*time.Second), coord.Note{What: "task failed", Task: id, Err: err})
	s.First, s.Failure, s.Counts = &note, err.Error(), map[string]int{wire.StateConnected: 3, wire.StateFailed: 1}
	s.Tasks[rank] = wire.TaskStatus{Task: id.String(), State: wire.StateFailed, ForSeconds: 3, Cause: serry.ErrTaskDead.Error(), Error: err.Error()}
	return diagnose.Evidence{Status: s}
}

// waitingRanks is the job in which rank 3 does something since 10 s, and the others wait in an all-reduce or at barriers.
func waitingRanks(rank3 diagnose.Condition, barriers ...diagnose.BarrierEvidence) diagnose.Evidence {
	now := jobAge
	e := diagnose.HangEvidence{Size: 4, Barriers: barriers}
	for rank := range 3 {
		c := diagnose.Condition{Class: diagnose.ClassWaiting, Since: now - 10*time.Second, Wait: "Gloo all-reduce", At: "train_step (train.py:21) < <module> (train.py:24)", Doing: "asleep (futex)"}
		if len(barriers) > 0 && !strings.HasPrefix(barriers[0].ID, "Shutdown::") {
			c = diagnose.Condition{Class: diagnose.ClassStatic, Since: now - 10*time.Second, At: "save (train.py:30) < <module> (train.py:24)"}
		}
		e.Ranks = append(e.Ranks, diagnose.RankEvidence{Rank: rank, PID: 2074 + rank, Host: "node-a", Condition: c})
	}
	rank3.Since = now - 10*time.Second
	e.Ranks = append(e.Ranks, diagnose.RankEvidence{Rank: 3, PID: 2077, Host: "node-b", Condition: rank3})
	return diagnose.Evidence{Status: fourRanks(), Hang: &diagnose.HangReport{Version: diagnose.HangReportVersion, Begun: noon.Add(-now), Hang: diagnose.JudgeHang(now, e)}}
}

// scenarioEvidence is what is known in the situations of docs/spec/diagnose.md that serry why tells of.
func scenarioEvidence() []struct {
	id string
	diagnose.Evidence
} {
	at := func(class diagnose.Class, doing string) diagnose.Condition {
		return diagnose.Condition{Class: class, At: "load_batch (train.py:10) < train_step (train.py:19)", Doing: doing}
	}
	barrier := func(id string, missing ...int) diagnose.BarrierEvidence {
		return diagnose.BarrierEvidence{ID: id, Since: jobAge - 10*time.Second, Members: 4, Arrived: 4 - len(missing), Missing: missing}
	}
	writes := at(diagnose.ClassIO, "uninterruptible (fsync)")
	writes.Rate, writes.File = 30e6, "/data/checkpoint.bin on /data (nfs4, server:/export)"
	cut := failedRank(2, "host silent")
	heard := 7.5
	for rank := 2; rank < 4; rank++ {
		cut.Status.Tasks[rank] = wire.TaskStatus{Task: fmt.Sprintf("worker/%d", rank), State: wire.StateFailed, ForSeconds: 3, Cause: serry.ErrTaskDead.Error(),
			Error: "task is dead: host silent", HeardSeconds: &heard, From: "10.0.0.4:4242"}
	}
	over := diagnose.Evidence{Status: fourRanks()}
	over.Status.Leader, over.Status.Takeover = "c2:8476", &wire.Takeover{From: "c1:8476", At: noon.Add(-20 * time.Second), TookSeconds: 0.4}
	slow := diagnose.Evidence{Status: fourRanks()}
	slow.Status.Stragglers = []wire.StragglerStatus{{Task: "worker/3", Class: "step-#", Places: 32, Slower: 0.25, CostSeconds: 8, OfSeconds: 42, Share: 0.19}}
	twice := failedRank(2, "")
	twice.Status.First.Cause, twice.Status.First.Evidence = serry.ErrRestarted.Error(), "incarnation 7 was there, 9 came"
	stray := diagnose.Evidence{Status: fourRanks(), Hang: &diagnose.HangReport{Strays: []diagnose.Stray{{Rank: 2, Attempt: 1, PID: 640, Host: "node-b", Now: 2, Seen: noon.Add(-time.Minute)}}}}
	saved := func(ranks int) diagnose.Evidence {
		e := diagnose.Evidence{Status: fourRanks()}
		e.Saves.Notices = []preempt.Announcement{{Task: "worker/1", Source: "the metadata server", Time: noon.Add(-5 * time.Second)}}
		for rank := range ranks {
			e.Saves.Receipts = append(e.Saves.Receipts, preempt.Receipt{Task: fmt.Sprintf("worker/%d", rank), Step: 812, TookSeconds: 3.1})
		}
		return e
	}
	skewed := failedRank(0, "process exited: signal 11")
	skewed.Status.Tasks[2].Error = "task is dead: process exited: signal 11"
	skewed.Hang = &diagnose.HangReport{Clocks: []string{diagnose.SkewText("node-b", 5*time.Minute)}}
	starting := waitingRanks(at(diagnose.ClassStatic, "asleep (clock_nanosleep)"), barrier(coord.RegisterBarrierID, 3))
	before := waitingRanks(at(diagnose.ClassStatic, "asleep (clock_nanosleep)"), barrier("save-100", 3))
	former := *failedRank(3, "process exited: signal 11").Status.First
	former.AtSeconds = 12
	before.Status.Notes = []wire.NoteStatus{former, {Number: 2, AtSeconds: 14, What: "epoch opened", Count: 2}}
	before.Hang.Past = []string{"12:00:50 rank 1 is stalled since 12:00:40 (10s); ranks 0,2-3 wait for it in Gloo all-reduce", "12:00:52 rank 1 went on after 12s"}
	crashed := failedRank(3, "process exited: signal 11")
	crashed.Hang = &diagnose.HangReport{Aftermath: &diagnose.Aftermath{
		Rank: 3, PID: 2077, Host: "node-b", At: "load_batch (train.py:10) < train_step (train.py:19)", Output: "Fatal Python error: Segmentation fault",
		Effects: []diagnose.Effect{{Ranks: []int{0, 2}, Text: "connection reset", AfterSeconds: 0.03}, {Ranks: []int{1}, Text: "waiting in Gloo all-reduce"}},
	}}
	raised := failedRank(3, "raised ValueError: bad sample 17 in shard 3")
	raised.Hang = &diagnose.HangReport{Aftermath: &diagnose.Aftermath{
		Rank: 3, PID: 2077, Host: "node-b", Raised: true, At: "load_batch (train.py:10) < train_step (train.py:19)",
		Effects: []diagnose.Effect{{Ranks: []int{0, 1, 2}, Text: "waiting in Gloo all-reduce"}},
	}}
	saves := diagnose.Condition{Class: diagnose.ClassStatic, At: "save (train.py:30) < <module> (train.py:24)", Doing: "asleep (futex)"}
	crossed := waitingRanks(saves, barrier("a", 2, 3), barrier("b", 0, 1))
	differ := func(lines ...string) diagnose.Evidence {
		return diagnose.Evidence{Status: fourRanks(), Hang: &diagnose.HangReport{Programs: lines}}
	}
	unwritten := diagnose.Evidence{Status: fourRanks()}
	for _, rank := range []int{0, 2, 3} {
		t := &unwritten.Status.Tasks[rank]
		t.LastCall, t.LastOf, t.CallWaits, t.CallSeconds = "GetKeyValue", "cpu:local_topology/cpu/1", true, 12
	}
	early := waitingRanks(at(diagnose.ClassLeaving, "asleep (futex)"), barrier("Shutdown::1", 0, 1, 2))
	early.Status.Steps = []int64{7, 7, 7, 5}
	hard := failedRank(2, "raised RuntimeError: connection reset by peer")
	hard.Ending = &diagnose.Ending{
		At: noon, Task: "worker/3", Failed: noon.Add(-3 * time.Second), Seen: "exited at 12:01:04 with code 0 without saying goodbye", Followed: 3,
		Aftermath: &diagnose.Aftermath{Rank: 3, Effects: []diagnose.Effect{{Ranks: []int{0, 2}, Text: "connection reset", AfterSeconds: 0.03}, {Ranks: []int{1}, Text: "told to end"}}},
	}
	return []struct {
		id string
		diagnose.Evidence
	}{
		{"D-SC-1", crashed},
		{"D-SC-2", failedRank(3, "process exited: signal 9; no kernel kill in control group /job")},
		{"D-SC-3", failedRank(3, "process exited: signal 9, killed because its memory limit of 60 MiB was reached; kernel kills in control group /job: 0 before, 1 after, peak 60 MiB")},
		{"D-SC-4", raised},
		{"D-SC-5", early},
		{"D-SC-6", hard},
		{"D-SC-6, before the others notice", waitingRanks(at(diagnose.ClassGone, ""))},
		{"D-SC-7", waitingRanks(at(diagnose.ClassStatic, "asleep (clock_nanosleep)"))},
		{"D-SC-8", waitingRanks(at(diagnose.ClassStatic, "asleep (clock_nanosleep)"), barrier("save-100", 3))},
		{"D-SC-9", crossed},
		{"D-SC-11", waitingRanks(writes)},
		{"D-SC-12", slow},
		{"D-SC-13", cut},
		{"D-SC-14", over},
		{"D-SC-15", waitingRanks(at(diagnose.ClassStopped, "stopped"))},
		{"D-SC-16", waitingRanks(at(diagnose.ClassStatic, "asleep (clock_nanosleep), holds the interpreter lock"))},
		{"D-SC-17", waitingRanks(at(diagnose.ClassLooping, "running"))},
		{"D-SC-18", waitingRanks(at(diagnose.ClassCompiling, "running"))},
		{"D-SC-19", differ("rank 3 runs a different program: eval.py, ranks 0-2 run train.py")},
		{"D-SC-20", differ("rank 3 expects 5 ranks (OMPI_COMM_WORLD_SIZE), the job has 4")},
		{"D-SC-21", twice},
		{"D-SC-22", stray},
		{"D-SC-24", failedRank(3, "raised OSError: [Errno 28] No space left on device: 'checkpoint.bin'")},
		{"D-SC-25", saved(4)},
		{"D-SC-25, one is missing", saved(3)},
		{"D-SC-26", skewed},
		{"D-SC-27", starting},
		{"D-SC-28", unwritten},
		{"D-CLI-1, with what was said before", before},
	}
}

// programTexts is what serry run says of programs that differ when the job starts.
func programTexts() string {
	train := diagnose.Program{Name: "train.py", Sum: "aa", Ranks: "4", By: "OMPI_COMM_WORLD_SIZE"}
	odd := func(p diagnose.Program) string {
		lines := diagnose.JudgePrograms(map[int]diagnose.Program{0: train, 1: train, 2: train, 3: p}, 4)
		return strings.Join(lines, "\n") + "\n"
	}
	other, copied, told := train, train, train
	other.Name, copied.Sum, told.Ranks = "eval.py", "bb", "5"
	return "== D-SC-19, serry run\n" + odd(other) + odd(copied) + "== D-SC-20, serry run\n" + odd(told)
}

// What serry why prints in each situation, for people on 80 columns and as JSON, is in testdata/why.txt; go test -run TestWhyTexts
// -rewrite writes it anew.
func TestWhyTexts(t *testing.T) {
	lab.Clause(t, "D-CLI-1", "D-CLI-2", "TD-CLI-1", "D-SC-1", "D-SC-4", "D-SC-5", "D-SC-6", "D-SC-7", "D-SC-9", "D-SC-13", "D-SC-19", "D-SC-20", "D-SC-21", "D-SC-25", "D-SC-28")
	const golden = "testdata/why.txt"
	var got bytes.Buffer
	for _, c := range scenarioEvidence() {
		report := diagnose.Judge(c.Evidence)
		if len(c.Status.Notes) > 0 {
			report.Older = diagnose.Older(c.Evidence, report)
		}
		var text, object bytes.Buffer
		(&printer{out: &text, paper: paper{width: plainWidth}}).explain(c.Status, report)
		if _, err := (&printer{out: &object, format: asJSON}).object(report); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(text.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > plainWidth {
				t.Errorf("%s: a line of %d columns: %s", c.id, n, line)
			}
		}
		fmt.Fprintf(&got, "== %s, exit status %d\n%s-- json\n%s", c.id, report.ExitStatus(), text.String(), object.String())
	}
	got.WriteString(programTexts())
	if *rewrite {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("why (-want +got):\n%s", diff)
	}
}
