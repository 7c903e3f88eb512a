package diagnose

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// Sets of ranks are written as runs, and read back; what no launcher writes is refused.
func TestRankSet(t *testing.T) {
	clause.Cite(t, "D-EV-7")
	for text, want := range map[string]RankSet{"": nil, "3": {3}, "0-2,5": {0, 1, 2, 5}, "7,9": {7, 9}} {
		got, err := ParseRankSet(text, 10)
		if err != nil || !slices.Equal(got, want) || got.String() != text {
			t.Errorf("ParseRankSet(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "-1", "3-1", "1,1", "5,2", "0-10", "1,", "0-99999999999", "0-4,5-10"} {
		if got, err := ParseRankSet(text, 10); err == nil {
			t.Errorf("ParseRankSet(%q) = %v; want an error", text, got)
		}
	}
	for text, want := range map[string]RankSet{`[3,1]`: {3, 1}, `"1-3"`: {1, 2, 3}} {
		var got RankSet
		if err := json.Unmarshal([]byte(text), &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s is read as %v, %v; want %v", text, got, err, want)
		}
		if again, err := json.Marshal(got); err != nil || string(again) != text {
			t.Errorf("%v is written as %s, %v; want %s", got, again, err, text)
		}
	}
}

// A verdict on thousands of ranks at few places takes few bytes, and says the same when it is read.
func TestHangReportOfManyRanks(t *testing.T) {
	clause.Cite(t, "D-EV-7", "TD-ST-8")
	const ranks = 10_000
	h := &Hang{Kind: HangStill, Stage: Stalled, Grade: Likely, Since: time.Minute}
	var waiting RankSet
	for i := range ranks {
		switch {
		case i%2 == 0:
			waiting = append(waiting, i)
		case i == 4711:
			h.Ranks = append(h.Ranks, RankEvidence{Rank: i, PID: 9, Host: "b", Condition: Condition{Class: ClassStatic, At: "load (train.py:10)", Pressure: Pressure{Memory: 83}}})
		default:
			h.Ranks = append(h.Ranks, RankEvidence{Rank: i, PID: 1000 + i, Host: fmt.Sprint("node-", i/8), Condition: Condition{Class: ClassStatic, Since: time.Duration(i), At: fmt.Sprint("read (train.py:", i%3, ")")}})
		}
	}
	h.Waits = []HangWait{{In: "Gloo all-reduce", Ranks: waiting[:4000], Count: 4000}}
	text, err := json.Marshal(HangReport{Version: HangReportVersion, Begun: noon, Hang: h})
	if err != nil || len(text) > 64<<10 {
		t.Fatalf("a report of %d bytes, %v; want 64 KiB at most", len(text), err)
	}
	read, err := ReadHang(text)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := h.Text(time.Hour, noon), read.Hang.Text(time.Hour, noon); a != b {
		t.Errorf("read as %q; want %q", b, a)
	}
	if a, b := h.Lines(noon), read.Hang.Lines(noon); !reflect.DeepEqual(a, b) {
		t.Errorf("read with %q; want %q", b, a)
	}
	if _, err := ReadHang([]byte(`{"version":1,"hang":{"ranks":[{"rank":1,"alike":"0-131000"},{"rank":1,"alike":"0-131000"}]}}`)); err == nil {
		t.Error("a report of more ranks than there can be was read")
	}
}
