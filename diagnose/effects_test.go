package diagnose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// What ranks did after the first failure is told of those together that did the same, in the order in which it was seen.
func TestEffects(t *testing.T) {
	clause.Cite(t, "D-RC-4", "D-CLI-6", "D-SC-1", "TD-RC-2", "TD-CLI-3")
	waits := Condition{Class: ClassWaiting, Wait: "Gloo all-reduce"}
	aborted := []string{"Fatal Python error: Aborted", "", "Thread 0x00007f (most recent call first):", `  File "/w/train.py", line 21 in step`}
	all := []Follower{
		{Rank: 0, Ended: "signal 6 (ABRT)", After: 60 * time.Millisecond, Exception: "JaxRuntimeError: UNKNOWN: [10.0.0.4]:4242: Connection reset by peer"},
		{Rank: 1, Ended: "signal 6 (ABRT)", After: 50 * time.Millisecond, Condition: waits, Output: aborted},
		{Rank: 2, Ended: "signal 6 (ABRT)", After: 30 * time.Millisecond, Exception: "RuntimeError: connection reset by peer"},
		{Rank: 4, Ended: "signal 6 (ABRT)", After: 70 * time.Millisecond, Output: aborted},
		{Rank: 5, Ended: "exit code 1", After: 80 * time.Millisecond, Exception: "ValueError: bad"},
		{Rank: 6},
		{Rank: 7, Runs: true},
	}
	var got []string
	for _, e := range FoldEffects(all) {
		got = append(got, e.String())
	}
	want := "ranks 0,2: connection reset (+0.03s)\nrank 1: waiting in Gloo all-reduce (+0.05s)\n" +
		"rank 4: signal 6 (ABRT), was at step (train.py:21) (+0.07s)\nrank 5: raised ValueError: bad (+0.08s)\nrank 6: told to end\nrank 7: still at work"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("FoldEffects() =\n%s\nwant\n%s", text, want)
	}
	a := Aftermath{Rank: 3, Effects: FoldEffects(all)}
	if text, want := a.effects(), "; 3 more ranks"; !strings.HasSuffix(text, want) || strings.Count(text, ";") != effectsShown {
		t.Errorf("effects() = %q; want three effects and %q", text, want)
	}
	var many []Follower
	for rank := range 10_000 {
		many = append(many, Follower{Rank: rank, Ended: fmt.Sprintf("exit code %d", rank/5000)})
	}
	effects := FoldEffects(many)
	if len(effects) != 2 || len(effects[0].Ranks)+effects[0].More != 5000 || effects[0].String() != "ranks 0-255 and 4744 more: exit code 0" {
		t.Errorf("FoldEffects() of 10,000 ranks = %d effects, the first %v", len(effects), effects[0])
	}
}

// The place of a rank is read from the stack that its Python has printed: of an exception the innermost function is the last, of a
// crash the first.
func TestPlaceIn(t *testing.T) {
	clause.Cite(t, "D-ST-11", "D-SC-1", "D-SC-4")
	const crash = "Fatal Python error: Segmentation fault"
	for name, c := range map[string]struct{ output, want string }{
		"nothing": {"", ""},
		"an exception": {tracebackWords + "\n  File \"/w/train.py\", line 24, in <module>\n    main()\n    ^^^^\n  File \"/w/train.py\", line 18, in load_batch\n    raise ValueError(1)\nValueError: 1",
			"load_batch (train.py:18) < <module> (train.py:24)"},
		"a crash": {crash + "\n\nCurrent thread 0x00007f (most recent call first):\n  File \"/w/train.py\", line 10 in load_batch\n  File \"/w/train.py\", line 24 in <module>\n\nExtension modules: a (total: 1)",
			"load_batch (train.py:10) < <module> (train.py:24)"},
		"of another thread": {crash + "\n\nCurrent thread 0x00007f (most recent call first):\n  File \"/w/train.py\", line 10 in load_batch\n\nThread 0x00007e (most recent call first):\n  File \"/w/train.py\", line 24 in <module>",
			"load_batch (train.py:10)"},
		"of a thread of native code": {crash + "\n\nThread 0x00007f (most recent call first):\n  File \"/w/queue.py\", line 1 in get\n\nThread 0x00007e (most recent call first):\n  File \"/w/train.py\", line 24 in <module>",
			"<module> (train.py:24)"},
		"no stack": {"  File \"/w/train.py\", line 24, in <module>", ""},
	} {
		if got := PlaceIn(strings.Split(c.output, "\n")); got != c.want {
			t.Errorf("%s: PlaceIn() = %q; want %q", name, got, c.want)
		}
		if got := CrashIn(strings.Split(c.output, "\n")); (got != "") != strings.HasPrefix(c.output, crash) {
			t.Errorf("%s: CrashIn() = %q", name, got)
		}
	}
}

// A first failure that follows from one which no launcher has seen is told as such.
func TestFirstSeen(t *testing.T) {
	clause.Cite(t, "D-RC-5")
	for evidence, want := range map[string]Grade{
		"raised RuntimeError: [10.0.0.4]:4242: Connection reset by peer": Possible,
		"raised ValueError: bad sample 17":                               Sure,
		"process exited: signal 11":                                      Sure,
	} {
		r := Judge(Evidence{Status: first(job(gone, bad), died(evidence))})
		if seen := strings.Contains(fmt.Sprint(r.Evidence), "first seen"); r.Grade != want || seen != (want == Possible) {
			t.Errorf("Judge() of %q = %s with %v; want %s", evidence, r.Grade, r.Evidence, want)
		}
	}
}
