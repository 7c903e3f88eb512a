package diagnose

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Any task can write the key of a report about a hang. Whatever it holds, there is an answer of a bounded size.
func FuzzReadHang(f *testing.F) {
	still := Hang{
		Kind: HangStill, Stage: Stalled, Grade: Likely, Since: time.Second,
		Ranks: []RankEvidence{{Rank: 3, PID: 7, Host: "b", Condition: Condition{Class: ClassStatic, At: "f (a.py:1)", Doing: "asleep (futex)", File: "/x on /"}}},
		Waits: []HangWait{{In: "Gloo all-reduce", Ranks: []int{0, 1, 2}, Count: 3, At: "g (a.py:2)"}, {Barrier: "b", Ranks: []int{-1}, Count: 9}},
	}
	deadlock := Hang{Kind: HangDeadlock, Stage: Stuck, Grade: Sure, Waits: []HangWait{{Barrier: "a", Ranks: []int{0}, Count: 1}, {Barrier: "b"}}}
	io, busy, leaving := still, still, still
	io.Kind, busy.Kind, leaving.Kind = HangIO, HangBusy, HangLeaving
	for _, h := range []*Hang{nil, &still, &deadlock, &io, &busy, &leaving, {Kind: HangDeadlock}} {
		text, err := json.Marshal(HangReport{
			Version: HangReportVersion, Hang: h, Past: []string{"a", "b"}, Clocks: []string{SkewText("b", -time.Minute)}, Strays: []Stray{{Rank: 1, Attempt: 1, Now: 2}},
			Short: []Shortage{{Host: "b", Ranks: []int{3}}}, Attempts: []Attempt{{Number: 1, Failed: true, Rank: 3, How: "x"}},
			Programs: []string{"rank 3 runs x"}, Aftermath: &Aftermath{Rank: 3, Effects: []Effect{{Ranks: []int{0}, Text: "x", More: 4}}},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	lost := first(job(up, up, up, bad), died("process exited: signal 11"))
	lost.First.Task = "worker/3"
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ReadHang(text)
		if err != nil {
			return
		}
		for _, e := range []Evidence{{Status: job(up, up, up, up), Hang: h}, {Status: lost, Hang: h}, {Status: lost, Hang: h, Ending: &Ending{At: clock, Signal: 15}}} {
			e.InTrouble()
			r := Judge(e)
			r.Older = Older(e, r)
			MarkRanks(e.Status, h)
			if len(r.Evidence) > 64 || strings.TrimSpace(r.Verdict) == "" {
				t.Errorf("Judge() = %q with %d lines", r.Verdict, len(r.Evidence))
			}
			if _, err := json.Marshal(r); err != nil {
				t.Errorf("Marshal() = %v", err)
			}
		}
	})
}

// What ranks print is that of any program.
func FuzzPlaceIn(f *testing.F) {
	f.Add(tracebackWords + "\n  File \"a.py\", line 3, in f\nValueError: x")
	f.Add(crashWords + "x\nCurrent thread 0x1 (most recent call first):\n  File \"a.py\", line 3 in f")
	f.Fuzz(func(t *testing.T, text string) {
		lines := strings.Split(text, "\n")
		if at := PlaceIn(lines); len(at) > len(text)+64 {
			t.Errorf("PlaceIn() = %d bytes of %d", len(at), len(text))
		}
		CrashIn(lines)
	})
}
