package diagnose

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// clock is what the server shows when it is asked.
var clock = time.Date(2026, 11, 16, 12, 1, 7, 0, time.UTC)

// job makes a status of tasks in these states, worker/0 first.
func job(states ...string) wire.Status {
	s := wire.Status{Clock: clock, UpSeconds: 100, Size: len(states), Counts: make(map[string]int)}
	for i, state := range states {
		t := wire.TaskStatus{Task: serry.TaskID{Job: "worker", Index: i}.String(), State: state, ForSeconds: float64(10 + i)}
		if state == wire.StateFailed {
			t.Cause = serry.ErrTaskDead.Error()
		}
		s.Tasks = append(s.Tasks, t)
		s.Counts[state]++
	}
	return s
}

func waiting(s wire.Status, id string, seconds float64, missing ...string) wire.Status {
	s.Barriers = append(s.Barriers, wire.BarrierStatus{
		ID: id, Members: s.Size, Arrived: s.Size - len(missing), Missing: missing, ForSeconds: seconds,
	})
	return s
}

func first(s wire.Status, n coord.Note) wire.Status {
	note := wire.NewNote(1, coord.Time(97e9), n)
	s.First = &note
	return s
}

var dead = serry.TaskID{Job: "worker", Index: 1}

func died(evidence string) coord.Note {
	return coord.Note{What: "task failed", Task: dead, Err: &serry.TaskError{Task: dead, Evidence: evidence, Err: serry.ErrTaskDead}}
}

const up, gone, bad, out = wire.StateConnected, wire.StateLeft, wire.StateFailed, wire.StateAbsent

// refused adds that a process with number 7 was refused after so many seconds, of 100.
func refused(s wire.Status, what string, at int, err error) wire.Status {
	note := wire.NewNote(2, coord.Time(at)*1e9, coord.Note{What: what, Task: serry.TaskID{Job: "worker", Index: 7}, Err: err, From: "10.0.0.9:4242"})
	s.Notes = append(s.Notes, note)
	return s
}

func TestRefusalOfAnotherJobKeepsItsName(t *testing.T) {
	s := refused(job(up, up), "registration refused", 97, serry.ErrUnknownTask)
	s.Notes[0].Task = "chief/0"
	if got := Judge(Evidence{Status: s}).Refused; len(got) != 1 || !strings.Contains(got[0].Text, "calls itself chief/0 at 10.0.0.9:4242") {
		t.Errorf("refused = %+v; want chief/0 by its whole name", got)
	}
}

func TestVerdicts(t *testing.T) {
	told := func(s wire.Status) wire.Status {
		s.Failure = "told"
		return s
	}
	for name, c := range map[string]struct {
		status  wire.Status
		healthy bool
		verdict string
		advice  string // a word of the first line
	}{
		"all well":            {job(up, up), true, "nothing is wrong: 2 of 2 ranks are connected", ""},
		"over":                {job(gone, gone), true, "nothing is wrong: all ranks have left", ""},
		"not begun":           {job(out, out), true, "nothing is wrong: no rank has come yet", ""},
		"a short wait":        {waiting(job(up, up), "b", 1.9, "worker/1"), true, "nothing is wrong", ""},
		"killed":              {told(first(job(up, bad), died("process exited: signal 9"))), false, "rank 1 was killed at 12:01:04: signal 9, not sent by serry", "dmesg"},
		"killed for memory":   {first(job(up, bad), died("process exited: signal 9, killed for memory")), false, "rank 1 was killed at 12:01:04 for memory", "more memory than"},
		"exited":              {first(job(up, bad), died("process exited: code 1")), false, "rank 1 exited at 12:01:04 with code 1", "its own output"},
		"silent":              {first(job(up, bad), died("")), false, "rank 1 fell silent and was declared dead 3.0s ago", "stuck"},
		"came back":           {first(job(up, up), died("connection closed")), true, "nothing is wrong: 2 of 2 ranks are connected; rank 1 failed 3.0s ago and has come back", ""},
		"came back, one more": {first(job(bad, up), died("connection closed")), false, "rank 0 failed 10s ago: task is dead", "stuck"},
		"reported": {first(job(up, bad), coord.Note{What: "task failed", Task: dead, Err: &serry.TaskError{Task: dead, Text: "no space left", Err: serry.ErrReported}}),
			false, "rank 1 gave up 3.0s ago: no space left", "its output"},
		"one id twice": {first(job(up, bad), coord.Note{What: "task failed", Task: dead, Err: &serry.TaskError{Task: dead, Err: serry.ErrRestarted}}),
			false, "two processes claimed rank 1 at 12:01:04", "same rank"},
		"a barrier timed out": {first(job(up, up), coord.Note{What: "barrier ended", Barrier: "step", Err: &serry.BarrierError{ID: "step", Missing: []serry.TaskID{dead}, Err: serry.ErrTimeout}}),
			false, `barrier "step" failed 3.0s ago: timed out, without rank 1`, "serry doctor"},
		"they did not come together": {first(job(bad, bad), coord.Note{What: "barrier ended", Barrier: coord.RegisterBarrierID, Err: &serry.BarrierError{Missing: []serry.TaskID{dead}, Err: serry.ErrTimeout}}),
			false, "the start of the job failed 3.0s ago: timed out, without rank 1", "serry doctor"},
		"waiting for one to come": {waiting(job(wire.StateRegistering, out), coord.RegisterBarrierID, 60, "worker/1"),
			false, "starting: 1 of 2 ranks are here after 1m00s, missing rank 1", "was not started"},
		"waiting for a slow one": {waiting(job(up, up), "step", 60, "worker/1"),
			false, `rank 1 is stalled: 1 rank waits for it at barrier "step" since 1m00s`, "serry stacks 1 on its host"},
		"waiting for one that left": {waiting(job(up, gone), "step", 60, "worker/1"), false, `it has left`, "number of steps"},
		"waiting for many": {waiting(job(up, up, up, up, up, up), "step", 60, "worker/1", "worker/2", "worker/3", "worker/4"),
			false, `ranks 1-4 are stalled: 2 ranks wait for them at barrier "step" since 1m00s`, "serry stacks 1 on its host"},
		"at two barriers": {waiting(waiting(job(up, up), "a", 60, "worker/0"), "b", 50, "worker/1"),
			false, `ranks wait for each other: rank 0 is at "b" and missing at "a", rank 1 the other way round`, "same order"},
		"a wrong number": {refused(job(up, up), "registration refused", 97, serry.ErrUnknownTask),
			false, "a process that calls itself rank 7 at 10.0.0.9:4242 was refused 3.0s ago: the job has 2 ranks", "number of processes"},
		"a second process": {refused(job(up, up), "registration refused", 97, &serry.TaskError{Err: serry.ErrRestarted}),
			false, "refused 3.0s ago: another process is that rank", "same rank"},
		"a process from before": {refused(job(up, up), "registration refused", 97, serry.ErrStale),
			false, "refused 3.0s ago: a newer process has taken its place", "left over"},
		"refused long ago":        {refused(job(up, up), "registration refused", -97, serry.ErrUnknownTask), true, "nothing is wrong", ""},
		"a call after a restart":  {refused(job(up, up), "call refused", 97, &serry.MismatchError{}), true, "nothing is wrong", ""},
		"refused, and one killed": {refused(first(job(up, bad), died("process exited: signal 9")), "registration refused", 97, serry.ErrUnknownTask), false, "rank 1 was killed", "dmesg"},
		"stopped":                 {wire.Status{Stopped: true}, false, "the service has stopped", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := Judge(Evidence{Status: c.status})
			if r.Healthy != c.healthy || !strings.Contains(r.Verdict, c.verdict) {
				t.Errorf("Judge() = healthy %v, %q; want %v, %q", r.Healthy, r.Verdict, c.healthy, c.verdict)
			}
			if got := strings.Join(r.Advice, "\n"); !strings.Contains(got, c.advice) || (c.advice == "") != (got == "") {
				t.Errorf("advice %q; want some with %q", got, c.advice)
			}
		})
	}
}

// calls gives tasks last calls, worker/0 first, so many seconds ago; negative: none.
func calls(s wire.Status, seconds ...float64) wire.Status {
	for i, ago := range seconds {
		if ago >= 0 {
			t := &s.Tasks[i]
			t.LastCall, t.LastOf, t.CallSeconds = "GetKeyValue", fmt.Sprintf("cpu:gloo/%d", i), ago
		}
	}
	return s
}

// usual says how long the barriers of a status take.
func usual(s wire.Status, seconds float64) wire.Status {
	for i := range s.Barriers {
		s.Barriers[i].UsualSeconds = seconds
	}
	return s
}

// A wait is late, stalled and stuck after times that depend on where it is, on how long it usually takes, and on
// whether the ranks that are waited for do anything. A report never opens with "nothing is wrong" meanwhile.
func TestStages(t *testing.T) {
	clause.Cite(t, "D-HG-4", "D-CLI-1")
	end := coord.ShutdownBarrierID(7)
	at := func(id string, seconds float64) wire.Status {
		return waiting(job(up, up, up, up), id, seconds, "worker/3")
	}
	for _, c := range []struct {
		name    string
		status  wire.Status
		stage   Stage
		exit    int
		verdict string
	}{
		{"on time", at("b", 1.9), OnTime, 0, "nothing is wrong: 4 of 4 ranks are connected"},
		{"late", at("b", 2), Late, 0, `rank 3 is late: 3 ranks wait for it at barrier "b" since 2.0s`},
		{"on time, since it is slow", usual(at("b", 59), 30), OnTime, 0, "nothing is wrong: 4 of 4 ranks are connected"},
		{"late, though it is slow", usual(at("b", 61), 30), Late, 0, `rank 3 is late: 3 ranks wait for it at barrier "b" since 1m01s`},
		{"stalled", at("b", 7), Stalled, 3, `rank 3 is stalled: 3 ranks wait for it at barrier "b" since 7.0s`},
		{"late, since the rank calls", calls(at("b", 60), 60, 60, 60, 4.9), Late, 0, `rank 3 is late: 3 ranks wait for it at barrier "b" since 1m00s`},
		{"stalled, since it called before", calls(at("b", 60), 60, 60, 60, 5), Stalled, 3, `rank 3 is stalled: 3 ranks wait for it at barrier "b" since 1m00s`},
		{"not stuck, since none has passed", at("b", 606), Stalled, 3, `rank 3 is stalled: 3 ranks wait for it at barrier "b" since 10m06s`},
		{"stuck, though none has passed", at("b", 607), Stuck, 1, `rank 3 is stuck: 3 ranks wait for it at barrier "b" since 10m07s`},
		{"stuck", usual(at("b", 127), 0.1), Stuck, 1, `rank 3 is stuck: 3 ranks wait for it at barrier "b" since 2m07s`},
		{"stalled, since it is slow", usual(at("b", 304), 30), Stalled, 3, `rank 3 is stalled: 3 ranks wait for it at barrier "b" since 5m04s`},
		{"starting", at(coord.RegisterBarrierID, 41), Stalled, 3, "starting: 3 of 4 ranks are here after 41s, missing rank 3"},
		{"never started", at(coord.RegisterBarrierID, 607), Stuck, 1, "starting: 3 of 4 ranks are here after 10m07s, missing rank 3"},
		{"at the end", at(end, 3), Late, 0, "ranks 0-2 want to leave since 3.0s; rank 3 does not"},
		{"long at the end", waiting(job(up, up, up, up), end, 4000, "worker/0", "worker/1", "worker/3"), Stalled, 3, "rank 2 wants to leave since 1h06m; ranks 0-1,3 do not"},
		{"just crossed", waiting(waiting(job(up, up), "a", 9, "worker/0"), "b", 60, "worker/1"), Stalled, 3, "ranks wait for each other"},
		{"crossed", waiting(waiting(job(up, up), "a", 10, "worker/0"), "b", 60, "worker/1"), Stuck, 1, "ranks wait for each other"},
		{"refused", refused(job(up, up), "registration refused", 97, serry.ErrUnknownTask), OnTime, 3, "a process that calls itself rank 7"},
		{"failed", first(job(up, bad), died("process exited: signal 9")), OnTime, 1, "rank 1 was killed"},
		{"quiet", calls(job(up, up, up), 12, 40, 11), OnTime, 0, "no failure is known: 3 of 3 ranks are connected; rank 1 has been quiet longest, for 40s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Judge(Evidence{Status: c.status})
			if r.Stage != c.stage || r.ExitStatus() != c.exit || !strings.HasPrefix(r.Verdict, c.verdict) {
				t.Errorf("Judge() = %q, exit status %d, %q; want %q, %d, %q", r.Stage, r.ExitStatus(), r.Verdict, c.stage, c.exit, c.verdict)
			}
			if r.Healthy != (c.exit == 0) {
				t.Errorf("healthy = %v with exit status %d", r.Healthy, c.exit)
			}
		})
	}
}

// What ranks did last is told in groups, the longest quiet ones first.
func TestCalls(t *testing.T) {
	clause.Cite(t, "D-CLI-1")
	s := calls(job(up, up, up, up, up, gone), 38, 41, 12, -1, 40, 99)
	s.Tasks[2].LastCall, s.Tasks[2].LastOf, s.Tasks[2].CallWaits = "Barrier", "save-100", true
	var got []string
	for _, c := range Judge(Evidence{Status: s}).Calls {
		got = append(got, c.Text)
	}
	want := []string{
		`ranks 0-1,4 last called GetKeyValue "cpu:gloo/#" 38s to 41s ago`,
		`rank 2 waits in Barrier "save-100" since 12s`,
		"rank 3 made no call since this server leads",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	big := job(slices.Repeat([]string{up}, 2000)...)
	for i := range big.Tasks {
		big.Tasks[i].LastCall, big.Tasks[i].LastOf = "Barrier", strings.Repeat("x", i%20)
	}
	if got := Judge(Evidence{Status: big}).Calls; len(got) != callsListed || len(got[0].Text) > 200 {
		t.Errorf("%d groups, the first %q; want %d that fit in lines", len(got), got[0].Text, callsListed)
	}
}

func TestFollowed(t *testing.T) {
	s := first(job(bad, bad, bad, up), died("connection closed"))
	if got := Judge(Evidence{Status: s}).First; got.Followed != 2 || got.AgoSeconds != 3 {
		t.Errorf("first failure = %+v; want 2 that followed, 3 seconds ago", got)
	}
}

func TestWaits(t *testing.T) {
	s := waiting(job(up, bad, out, gone, up), "short", 1, "worker/1")
	s = waiting(s, "long", 2, "worker/1", "worker/2", "worker/3", "worker/4", "other/9")
	s.Barriers[1].Members, s.Barriers[1].Arrived = 100, 1
	waits := Judge(Evidence{Status: s}).Waits
	if len(waits) != 2 || waits[0].Barrier != "long" || waits[0].More != 94 {
		t.Fatalf("waits = %+v; want the longer one first, with 94 not named", waits)
	}
	want := []string{"has failed: task is dead", "has not come yet", "has left", `waits at "short" instead`, "is not known"}
	for i, b := range waits[0].On {
		if b.Why != want[i] {
			t.Errorf("%s %s; want %s", b.Task, b.Why, want[i])
		}
	}
}

func TestSaves(t *testing.T) {
	receipt := func(round, task int, step int64) preempt.Receipt {
		return preempt.Receipt{Round: round, Task: serry.TaskID{Job: "worker", Index: task}.String(), Step: step}
	}
	saves := Judge(Evidence{Status: job(up, up, up), Saves: preempt.Records{Receipts: []preempt.Receipt{
		receipt(2, 0, 70), receipt(1, 0, 40), receipt(1, 1, 40), receipt(1, 2, 41),
	}}}).Saves
	if len(saves) != 2 || saves[0].Round != 1 || saves[0].Saved != 3 || len(saves[0].Missing) != 0 || len(saves[0].Steps) != 2 {
		t.Fatalf("saves = %+v; want round 1 of all, at two steps, first", saves)
	}
	if got := saves[1]; got.Saved != 1 || got.Of != 3 || strings.Join(got.Missing, " ") != "worker/1 worker/2" {
		t.Errorf("second round = %+v; want worker/1 and worker/2 missing", got)
	}
}

// A report has the last 16 rounds, and names 1,024 ranks of each at most, however many there are.
func TestManySaves(t *testing.T) {
	clause.Cite(t, "D-SC-25")
	status := job(slices.Repeat([]string{up}, 5000)...)
	var records preempt.Records
	for round := 1; round <= 100; round++ {
		records.Receipts = append(records.Receipts, preempt.Receipt{Round: round, Task: "worker/0", Step: int64(round)})
	}
	records.Notices = []preempt.Announcement{{Round: 100, Task: "worker/1", Time: clock}}
	r := Judge(Evidence{Status: status, Saves: records})
	if n := len(r.Saves); n != 16 || r.Saves[0].Round != 85 || r.Saves[15].Round != 100 {
		t.Fatalf("%d rounds %+v; want the last 16", n, r.Saves)
	}
	if s := r.Saves[15]; len(s.Missing) != 1024 || s.More != 5000-1-1024 {
		t.Errorf("%d ranks are named and %d are not; want 1024 of 4999", len(s.Missing), s.More)
	}
	if want := "1 of 5000 ranks saved step 100; ranks 1-1024 and 3975 more did not confirm"; !strings.HasSuffix(r.Verdict, want) {
		t.Errorf("verdict %q; want %q", r.Verdict, want)
	}
}

// A record of a preemption that cannot be read is said to be left out.
func TestUnreadableSave(t *testing.T) {
	clause.Cite(t, "D-SC-25")
	bad := &preempt.RecordError{Key: "serry/preempt/1/saved/worker-0", More: 2, Err: errors.New("no JSON")}
	r := Judge(Evidence{Status: job(up, up), Saves: preempt.Records{Bad: bad}})
	if text := strings.Join(r.Advice, "\n"); !r.Healthy || !strings.Contains(text, "serry/preempt/1/saved/worker-0: no JSON; 2 more cannot be read") {
		t.Errorf("Judge() = %q, %q; want a healthy job, and which record is left out", r.Verdict, r.Advice)
	}
}

// Which rank was told to go, and which ranks have saved.
func TestPreemptions(t *testing.T) {
	clause.Cite(t, "D-SC-25")
	at := clock.Add(-33 * time.Second)
	told := preempt.Announcement{Round: 1, Task: "worker/1", Source: "signal terminated", Time: at}
	later := preempt.Announcement{Round: 1, Task: "worker/0", Time: at.Add(time.Second)}
	receipt := func(task string, step int64) preempt.Receipt {
		return preempt.Receipt{Round: 1, Task: task, Step: step, TookSeconds: 3.1}
	}
	all := []preempt.Receipt{receipt("worker/0", 812), receipt("worker/1", 812), receipt("worker/2", 812)}
	killed := first(job(up, bad, up), died("process exited: signal 9"))
	for name, c := range map[string]struct {
		status  wire.Status
		notices []preempt.Announcement
		saved   []preempt.Receipt
		want    string
		code    int
	}{
		"all saved":         {job(up, up, up), []preempt.Announcement{later, told}, all, "preempted at 12:00:34 by notice on rank 1; all 3 ranks saved step 812 in 3.1s", 0},
		"and were ended":    {killed, []preempt.Announcement{told}, all, "preempted at 12:00:34 by notice on rank 1; all 3 ranks saved step 812 in 3.1s", 0},
		"one did not":       {job(up, up, up), []preempt.Announcement{told}, all[:2], "preempted at 12:00:34 by notice on rank 1; 2 of 3 ranks saved step 812 in 3.1s; rank 2 did not confirm", 0},
		"one died":          {killed, []preempt.Announcement{told}, all[:2], "rank 1 was killed at 12:01:04: signal 9, not sent by serry", 1},
		"nothing yet":       {job(up, up, up), []preempt.Announcement{told}, nil, "preempted at 12:00:34 by notice on rank 1; no rank has saved yet", 0},
		"other steps":       {job(up, up), []preempt.Announcement{told}, []preempt.Receipt{receipt("worker/0", 7), receipt("worker/1", 8)}, "preempted at 12:00:34 by notice on rank 1; all 2 ranks saved at different steps, 7 to 8, in 3.1s", 0},
		"not known by whom": {job(up, up, up), nil, all, "nothing is wrong: 3 of 3 ranks are connected", 0},
		"long ago":          {job(up, up, up), []preempt.Announcement{{Round: 1, Task: "worker/1", Time: clock.Add(-time.Hour)}}, all, "nothing is wrong: 3 of 3 ranks are connected", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := Judge(Evidence{Status: c.status, Saves: preempt.Records{Notices: c.notices, Receipts: c.saved}})
			if r.Verdict != c.want || r.ExitStatus() != c.code {
				t.Errorf("Judge() = %q, status %d; want %q, %d", r.Verdict, r.ExitStatus(), c.want, c.code)
			}
		})
	}
}

// A host of which nothing is heard is named, with the ranks that were on it.
func TestSilentHosts(t *testing.T) {
	clause.Cite(t, "D-SC-13")
	lost := func(evidence string) wire.Status {
		s := first(job(up, bad, bad, up, bad), died(evidence))
		for i := range s.Tasks {
			heard := 5.5
			s.Tasks[i].HeardSeconds, s.Tasks[i].From = &heard, "10.0.0.4:4242"
			if i == 0 || i == 4 {
				s.Tasks[i].From = "10.0.0.5:4242"
			}
			if s.Tasks[i].State == bad {
				s.Tasks[i].Error = "task is dead: " + evidence
			}
		}
		return s
	}
	for evidence, want := range map[string]string{
		"host silent":                        "host 10.0.0.4 is silent since 12:01:01: ranks 1-2 lost with it",
		"host silent: node-b: no word of it": "host node-b is silent since 12:01:01: ranks 1-2 lost with it",
	} {
		r := Judge(Evidence{Status: lost(evidence)})
		if r.Verdict != want || r.ExitStatus() != 1 {
			t.Errorf("Judge(%q) = %q; want %q", evidence, r.Verdict, want)
		}
		if text := fmt.Sprint(r.Evidence); !strings.Contains(text, "last heard at 12:01:01.500") || !strings.Contains(text, "2 ranks are heard on other hosts") || !strings.Contains(text, "sure") {
			t.Errorf("evidence %v; want when it was last heard, and who still is", r.Evidence)
		}
	}
}

// Of two ranks that crash the first is named, and clocks that differ are told of.
func TestCrashedFirst(t *testing.T) {
	clause.Cite(t, "D-SC-26")
	s := first(job(up, bad, bad), died("process exited: signal 11"))
	s.Tasks[2].Error = "task worker/2: task is dead: process exited: signal 11"
	skew := SkewText("node-b", 5*time.Minute-3*time.Millisecond)
	r := Judge(Evidence{Status: s, Hang: &HangReport{Clocks: []string{skew}}})
	if want := "rank 1 crashed first at 12:01:04: segmentation fault (signal 11)"; r.Verdict != want {
		t.Errorf("Judge() = %q; want %q", r.Verdict, want)
	}
	if text := fmt.Sprint(r.Evidence); !strings.Contains(text, "{host clock of node-b is 5m00s ahead") {
		t.Errorf("evidence %v; want the clock of node-b", r.Evidence)
	}
	s.Tasks[2].Error = "task worker/2: task is dead: process exited: signal 6"
	if r := Judge(Evidence{Status: s}); !strings.HasPrefix(r.Verdict, "rank 1 crashed at") {
		t.Errorf("Judge() = %q; want rank 1, of which rank 2 aborted", r.Verdict)
	}
}

// A change of the coordinator that no rank has noticed is told for a while.
func TestTakeover(t *testing.T) {
	clause.Cite(t, "D-SC-14")
	s := job(up, up)
	s.Leader, s.Takeover = "c2:8476", &wire.Takeover{From: "c1:8476", At: clock.Add(-20 * time.Second), TookSeconds: 0.4}
	r := Judge(Evidence{Status: s})
	if want := "coordinator failed over from c1:8476 to c2:8476 at 12:00:47 (0.4s); no rank was lost"; r.Verdict != want || r.ExitStatus() != 0 {
		t.Errorf("Judge() = %q; want %q", r.Verdict, want)
	}
	s.Takeover.At = clock.Add(-time.Hour)
	if r := Judge(Evidence{Status: s}); !strings.HasPrefix(r.Verdict, "nothing is wrong") {
		t.Errorf("Judge() an hour later = %q; want that nothing is wrong", r.Verdict)
	}
	s.Takeover.At = clock
	if r := Judge(Evidence{Status: first(s, died("process exited: signal 9"))}); !strings.HasPrefix(r.Verdict, "nothing is wrong: 2 of 2 ranks are connected; rank 1 failed") {
		t.Errorf("Judge() = %q; want the failure", r.Verdict)
	}
	if got, want := OutageText(clock, clock.Add(5*time.Minute)), "coordinator lost since 12:01:07; ranks are kept waiting until 12:06:07"; got != want {
		t.Errorf("OutageText() = %q; want %q", got, want)
	}
}

// A process of an older attempt is named where nothing else is wrong.
func TestStray(t *testing.T) {
	clause.Cite(t, "D-SC-22")
	stray := Stray{Rank: 2, Attempt: 1, PID: 640, Host: "node-b", Now: 2, Seen: clock.Add(-time.Minute)}
	hang := &HangReport{Strays: []Stray{stray}}
	r := Judge(Evidence{Status: job(up, up), Hang: hang})
	if want := "a process of attempt 1 (rank 2, pid 640 on node-b) tried to join attempt 2 and was refused; the job is not affected"; r.Verdict != want || r.Grade != Sure {
		t.Errorf("Judge() = %q, %s; want %q, sure", r.Verdict, r.Grade, want)
	}
	stray.Reaches = true
	if want := "a process of attempt 1 (rank 2, pid 640 on node-b) runs beside attempt 2 and may take the place of its rank 2: end it"; stray.Text() != want {
		t.Errorf("Text() = %q; want %q", stray.Text(), want)
	}
	s := job(up, up)
	s.Clock = clock.Add(time.Hour)
	if r := Judge(Evidence{Status: s, Hang: hang}); !r.Healthy {
		t.Errorf("Judge() an hour later = %q; want that nothing is wrong", r.Verdict)
	}
}

// How a rank has ended, in the words of a person.
func TestEnds(t *testing.T) {
	clause.Cite(t, "D-SC-1", "D-SC-2", "D-SC-3", "D-SC-4")
	for evidence, want := range map[string]string{
		"process exited: signal 11":                           "rank 1 crashed at 12:01:04: segmentation fault (signal 11)",
		"process exited: signal 6":                            "rank 1 crashed at 12:01:04: abort (signal 6)",
		"process exited: signal 9; no kernel kill in x":       "rank 1 was killed at 12:01:04: signal 9, not sent by serry",
		"process exited: code 3":                              "rank 1 exited at 12:01:04 with code 3",
		"raised ValueError: bad sample; 17":                   "rank 1 raised ValueError at 12:01:04: bad sample; 17",
		"process exited: raised KeyboardInterrupt":            "rank 1 raised KeyboardInterrupt at 12:01:04",
		"process exited: signal 9, killed because it was; so": "rank 1 was killed at 12:01:04 because it was",
		"process exited: signal 9, probably killed for memory; kernel kills on this machine: 0 before, 1 after": "rank 1 was probably killed for memory, at 12:01:04",
		"process exited: of old age": "rank 1 died 3.0s ago: process exited: of old age",
		"connection closed":          "rank 1 died 3.0s ago: connection closed",
	} {
		if got := Judge(Evidence{Status: first(job(up, bad), died(evidence))}); got.Verdict != want {
			t.Errorf("Judge(%q) = %q; want %q", evidence, got.Verdict, want)
		}
	}
	r := Judge(Evidence{Status: first(job(up, bad), died("process exited: signal 9, killed because its memory limit of 60 MiB was reached; kernel kills in control group /x: 0 before, 1 after, peak 60 MiB"))})
	if want := "rank 1 was killed at 12:01:04 because its memory limit of 60 MiB was reached"; r.Verdict != want {
		t.Errorf("Judge() = %q; want %q", r.Verdict, want)
	}
	if got, want := fmt.Sprint(r.Evidence), "[{memory kernel kills in control group /x: 0 before, 1 after, peak 60 MiB} {grade sure: the kernel says how its process ended}]"; got != want {
		t.Errorf("evidence %s; want %s", got, want)
	}
}

func TestAgo(t *testing.T) {
	for want, seconds := range map[string]float64{
		"0.0s": -1, "0.1s": 0.14, "9.9s": 9.94, "10s": 10.7, "59s": 59.9, "1m00s": 60, "12m05s": 725, "1h00m": 3600, "23h59m": 86399, "3d04h": 3*86400 + 4*3600 + 5,
	} {
		if got := Ago(seconds); got != want {
			t.Errorf("Ago(%v) = %s; want %s", seconds, got, want)
		}
	}
}
