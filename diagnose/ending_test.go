package diagnose

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// What the launcher says of the end goes before what the service saw, and adds to it where it was interrupted.
func TestEndings(t *testing.T) {
	clause.Cite(t, "D-EV-7", "D-RC-3", "TD-RC-3")
	end := clock.Add(3 * time.Second)
	stalled := &HangReport{Version: HangReportVersion, Begun: clock, Hang: &Hang{
		Kind: HangStill, Stage: Stalled, Grade: Likely, Since: -10 * time.Second,
		Ranks: []RankEvidence{{Rank: 1}}, Waits: []HangWait{{In: "Gloo all-reduce", Ranks: []int{0}, Count: 1}},
	}}
	crashed := first(job(gone, bad), died("process exited: signal 11"))
	for name, c := range map[string]struct {
		Evidence
		kind    Kind
		status  int
		verdict string
	}{
		"well":                            {Evidence{Status: crashed, Ending: &Ending{At: end, Well: true}}, Well, 0, "nothing is wrong: the job ended well at 12:01:10"},
		"the same first failure":          {Evidence{Status: crashed, Ending: &Ending{At: end, Task: "worker/1", Text: "rank 1: signal 11"}}, Failed, 1, "rank 1 crashed at 12:01:04: segmentation fault (signal 11)"},
		"another first failure":           {Evidence{Status: crashed, Ending: &Ending{At: end, Task: "worker/0", Text: "rank 0: exited without a word"}}, Failed, 1, "rank 0: exited without a word"},
		"a failure the service missed":    {Evidence{Status: job(gone, gone), Ending: &Ending{At: end, Task: "worker/0", Text: "rank 0: exit code 3", Evidence: "process exited: code 3", Failed: clock, Followed: 1}}, Failed, 1, "rank 0 exited at 12:01:07 with code 3"},
		"an error of the launcher":        {Evidence{Status: job(out, out), Ending: &Ending{At: end, Text: "no host came for node 1"}}, Failed, 1, "no host came for node 1"},
		"Ctrl-C":                          {Evidence{Status: first(job(bad, bad), died("process exited: signal 2, after it was told to end")), Ending: &Ending{At: end, Signal: 2}}, Stopped, 0, "the job was ended by signal 2 at 12:01:10"},
		"Ctrl-C of a job that hangs":      {Evidence{Status: job(gone, gone), Hang: stalled, Ending: &Ending{At: end, Signal: 2}}, Waiting, 3, "the job was ended by signal 2 at 12:01:10; until then rank 1 is stalled since 12:00:57 (13s); rank 0 waits for it in Gloo all-reduce"},
		"Ctrl-C after a failure":          {Evidence{Status: crashed, Ending: &Ending{At: end, Signal: 2, Task: "worker/1", Text: "rank 1: signal 11"}}, Failed, 1, "rank 1 crashed at 12:01:04"},
		"told to end, as the service saw": {Evidence{Status: first(job(bad, bad), died("process exited: signal 15, after it was told to end"))}, Stopped, 0, "no failure is known: rank 1 ended at 12:01:04, after it was told to end: signal 15"},
	} {
		r := Judge(c.Evidence)
		if !strings.HasPrefix(r.Verdict, c.verdict) || r.Kind != c.kind || r.ExitStatus() != c.status {
			t.Errorf("%s: Judge() = %q, %s, status %d; want %q, %s, %d", name, r.Verdict, r.Kind, r.ExitStatus(), c.verdict, c.kind, c.status)
		}
	}
}

// A rank that was told to end has not crashed, and ranks that ended because a host was lost were heard all the same.
func TestToldToEndIsNoCrash(t *testing.T) {
	clause.Cite(t, "D-RC-3", "D-SC-13")
	s := first(job(bad, bad), died("process exited: signal 11"))
	s.Tasks[0].Error = "task worker/0: task is dead: process exited: signal 15, after it was told to end"
	if r := Judge(Evidence{Status: s}); !strings.HasPrefix(r.Verdict, "rank 1 crashed at") {
		t.Errorf("Judge() = %q; want one crash", r.Verdict)
	}
	heard := 5.5
	s = first(job(bad, bad, bad, up), died("host silent"))
	s.Tasks[1].Error, s.Tasks[1].HeardSeconds, s.Tasks[1].From = "task worker/1: task is dead: host silent", &heard, "10.0.0.4:4000"
	s.Tasks[0].Error, s.Tasks[2].Error = "task is dead: connection closed", "task is dead: connection closed"
	want := "3 ranks were heard on other hosts, of which 2 have ended since"
	if r := Judge(Evidence{Status: s}); !strings.Contains(fmt.Sprint(r.Evidence), want) || r.Verdict != "host 10.0.0.4 is silent since 12:01:01: rank 1 lost with it" {
		t.Errorf("Judge() = %q, %v; want %q", r.Verdict, r.Evidence, want)
	}
}
