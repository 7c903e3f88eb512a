package page_test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab"
)

// A recording is the journal of a real job in which a scenario was played, in testdata/journals. bench/scenarios -journals DIR records them
// anew. The other scenarios leave no journal, or one that does not tell of them: docs/spec/diagnose.md says which.
type recording struct {
	file, clause string
	verdict      string // that serry why --journal gives, a regular expression
	counts       string // how many ranks have which mark, as the page says it
	waits        string // what is waited for, as the page says it
}

var recordings = []recording{
	{"segv", "D-SC-1", `^rank 3 crashed first at \S+: segmentation fault \(signal 11\)$`, "4: 4 failed", `no rank waits for another`},
	{"kill", "D-SC-2", `^rank 3 was killed at \S+: signal 9, not sent by serry$`, "4: 4 failed", `no rank waits for another`},
	{"memory", "D-SC-3", `^rank 3 was killed at \S+ because its memory limit of 60 MiB was reached$`, "4: 4 failed", `no rank waits for another`},
	{"raise", "D-SC-4", `^rank 3 raised ValueError at \S+: bad sample 17 in shard 3$`, "4: 4 failed", `no rank waits for another`},
	{"exit", "D-SC-5", `^rank 3 wants to leave since \S+ \(\S+\) while ranks 0-2 wait in Gloo all-reduce$`, "4: 1 keeps the others waiting · 3 missing at a barrier", `the end of the job1/46.8smissing 0, 1, 2; Gloo all-reduce3 ranks5.8smissing 3`},
	{"sleep", "D-SC-7", `^rank 3 is stalled since \S+ \(\S+\); ranks 0-2 wait for it in Gloo all-reduce$`, "4: 1 keeps the others waiting · 3 waiting for others", `Gloo all-reduce3 ranks6.0smissing 3`},
	{"barrier", "D-SC-8", `^rank 3 is stalled since \S+ \(\S+\); ranks 0-2 wait for it at barrier "save-100"$`, "4: 1 keeps the others waiting · 3 waiting for others", `barrier "save-100"3/46.6smissing 3`},
	{"crossed", "D-SC-9", `^ranks wait for each other: rank 2 is at "b" and missing at "a", rank 0 the other way round$`, "4: 4 at work", `barrier "a"2/40.0smissing 2, 3; barrier "b"2/40.0smissing 0, 1`},
	{"write", "D-SC-11", `^rank 3 is slow, not stuck: .*; ranks 0-2 wait$`, "4: 1 keeps the others waiting · 3 waiting for others", `Gloo all-reduce3 ranks6.0smissing 3`},
	{"stop", "D-SC-15", `^rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it$`, "4: 1 keeps the others waiting · 3 waiting for others", `Gloo all-reduce3 ranks6.0smissing 3`},
	{"gil", "D-SC-16", `^rank 3 is stalled since \S+ \(\S+\); ranks 0-2 wait for it in Gloo all-reduce$`, "4: 1 keeps the others waiting · 3 waiting for others", `Gloo all-reduce3 ranks9.5smissing 3`},
	{"loop", "D-SC-17", `^rank 3 has been busy in loop \(train.py:\d+\) for \S+; ranks 0-2 wait for it$`, "4: 1 keeps the others waiting · 3 waiting for others", `Gloo all-reduce3 ranks5.1smissing 3`},
	{"compile", "D-SC-18", `^no failure; ranks 0-2 wait while rank 3 compiles \(\S+\)$`, "4: 1 keeps the others waiting · 3 waiting for others", `Gloo all-reduce3 ranks7.3smissing 3`},
	{"cut", "D-SC-13", `^the host of ranks 2-3 is silent since \S+: ranks 2-3 lost with it$`, "4: 2 failed · 2 at work", "no rank waits for another"},
	{"two-ids", "D-SC-21", `^two processes claimed rank 2 at \S+$`, "4: 1 failed · 3 at work", "no rank waits for another"},
	{"stale", "D-SC-22", `^a process of attempt 1 \(rank 3, pid \d+ on \S+\) tried to join attempt 2 and was refused; the job is not affected$`, "4: 4 at work", `no rank waits for another`},
	{"disk-full", "D-SC-24", `^rank 3 raised OSError at \S+: \[Errno 28\] No space left on device: 'checkpoint.bin'$`, "4: 4 failed", `no rank waits for another`},
	{"preempt", "D-SC-25", `^preempted at \S+ by notice on rank 1; all 4 ranks saved step \d+ in \S+$`, "4: 4 at work", `no rank waits for another`},
	{"unconfirmed", "D-SC-25", `^preempted at \S+ by notice on rank 1; 3 of 4 ranks saved step \d+ in \S+; rank 3 did not confirm$`, "4: 4 at work", `no rank waits for another`},
	{"no-device", "D-SC-28", `^rank 1 is stalled since \S+ \(\S+\); ranks 0,2-3 wait for it in a computation of jax$`, "4: 1 keeps the others waiting · 3 waiting for others", `a computation of jax3 ranks5.1smissing 1`},
}

// A replayed recording is what the driver compares with its page.
type replayedRecording struct {
	Name   string          `json:"name"`
	Page   string          `json:"page"`
	Why    diagnose.Report `json:"why"` // as serry why says it
	Counts string          `json:"counts"`
	Waits  string          `json:"waits"`
}

// The page of the journal of a scenario says what serry why says of it, and shows what it rests on, the state of each rank and what is waited
// for.
func TestScenarioJournals(t *testing.T) {
	browser := findBrowser(t)
	k := buildTools(t)
	var plot []replayedRecording
	for _, r := range recordings {
		file := filepath.Join("testdata", "journals", r.file+".journal")
		out, err := exec.CommandContext(t.Context(), k.serry, "why", "--journal", file, "-o", "json").Output()
		var why diagnose.Report
		if err := json.Unmarshal(out, &why); err != nil {
			t.Fatalf("serry why --journal %s: %v: %s", file, err, out)
		}
		if !regexp.MustCompile(r.verdict).MatchString(why.Verdict) {
			t.Errorf("serry why --journal %s = %q (%v); want it to match %q", file, why.Verdict, err, r.verdict)
		}
		plot = append(plot, replayedRecording{r.file, k.start(t, "replay", "--web", file).url, why, r.counts, r.waits})
	}
	text, err := json.Marshal(plot)
	if err != nil {
		t.Fatal(err)
	}
	results := browser.drive(t, "journals", string(text), stageToken)
	for _, r := range recordings {
		t.Run(r.file, func(t *testing.T) {
			lab.Clause(t, "D-WEB-1", "D-WEB-4", "TD-WEB-1", r.clause)
			got, ok := results[r.file]
			if !ok || got.Error != "" {
				t.Errorf("the page of %s: %s", r.file, strings.TrimSpace(got.Error))
			}
			t.Log(got.Said)
		})
	}
}
