package diagnose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// What is told of a pressure changes seldom, although what is seen of it changes all the time.
func TestPressureIsToldSeldom(t *testing.T) {
	clause.Cite(t, "D-EV-3", "D-EV-6")
	for _, c := range []struct {
		name             string
		told, seen, want Pressure
	}{
		{"enough", Pressure{}, Pressure{Memory: 19, CPU: 59, IO: 39}, Pressure{}},
		{"too little of all", Pressure{}, Pressure{Memory: 20, CPU: 60, IO: 40}, Pressure{Memory: 20, CPU: 60, IO: 40}},
		{"a bit more", Pressure{Memory: 40}, Pressure{Memory: 59}, Pressure{Memory: 40}},
		{"much more", Pressure{Memory: 40}, Pressure{Memory: 60}, Pressure{Memory: 60}},
		{"a bit less than too little", Pressure{Memory: 20}, Pressure{Memory: 10}, Pressure{Memory: 20}},
		{"enough again", Pressure{Memory: 20}, Pressure{Memory: 9}, Pressure{}},
		{"another one", Pressure{Memory: 20}, Pressure{Memory: 20, IO: 40}, Pressure{Memory: 20, IO: 40}},
		{"of the group", Pressure{Memory: 20}, Pressure{Memory: 30, Group: true}, Pressure{Memory: 30, Group: true}},
		{"a group that has enough", Pressure{}, Pressure{Memory: 10, Group: true}, Pressure{}},
		{"nonsense", Pressure{}, Pressure{Memory: 1000}, Pressure{Memory: 100}},
	} {
		if got := c.told.Next(c.seen); got != c.want {
			t.Errorf("%s: %+v.Next(%+v) = %+v; want %+v", c.name, c.told, c.seen, got, c.want)
		}
	}
	if text := (Pressure{Memory: 83, IO: 45}).Text(); text != "its host is short of memory and IO (PSI some 83 % and 45 %)" {
		t.Errorf("Text() = %q", text)
	}
}

// Ranks of one host are told of once, those of a control group apart, and no more hosts than there is room for.
func TestShortages(t *testing.T) {
	clause.Cite(t, "D-EV-3", "D-EV-1")
	rank := func(n int, host string, p Pressure) RankEvidence {
		return RankEvidence{Rank: n, Host: host, Condition: Condition{Pressure: p}}
	}
	group := Pressure{CPU: 99, Group: true}
	ranks := []RankEvidence{rank(3, "b", group), rank(2, "b", Pressure{IO: 50}), rank(1, "a", Pressure{Memory: 83}), rank(4, "c", Pressure{}), rank(0, "a", Pressure{Memory: 80})}
	want := []Shortage{{"b", []int{3}, group}, {"a", []int{0, 1}, Pressure{Memory: 83}}, {"b", []int{2}, Pressure{IO: 50}}}
	for range len(ranks) {
		if d := cmp.Diff(want, Shortages(ranks)); d != "" {
			t.Errorf("Shortages() differs (-want +got):\n%s", d)
		}
		ranks = append(ranks[1:], ranks[0])
	}
	var many []RankEvidence
	for n := range 100 {
		many = append(many, rank(n, strings.Repeat("x", n), Pressure{Memory: 50}))
	}
	if n := len(Shortages(many)); n != maxShortages {
		t.Errorf("%d hosts are told of; want %d", n, maxShortages)
	}
}

// A verdict about a rank that was lost, that is waited for or that is slow says that its host is short of something; one about another
// rank does not.
func TestVerdictsTellOfPressure(t *testing.T) {
	clause.Cite(t, "D-EV-3", "D-CLI-1")
	text, err := json.Marshal(HangReport{Version: HangReportVersion, Short: []Shortage{{"node-b", []int{2, 3}, Pressure{Memory: 83}}, {"node-c", nil, Pressure{IO: 50}}}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := ReadHang(text)
	if err != nil || len(h.Short) != 1 {
		t.Fatalf("ReadHang() = %+v, %v; want the one host that has ranks", h, err)
	}
	job := func() wire.Status {
		s := wire.Status{Version: wire.StatusVersion, Size: 4, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}}, Counts: map[string]int{wire.StateConnected: 4}}
		for _, name := range []string{"worker/0", "worker/1", "worker/2", "worker/3"} {
			s.Tasks = append(s.Tasks, wire.TaskStatus{Task: name, State: wire.StateConnected})
		}
		return s
	}
	lost := job()
	lost.Failure, lost.First = "x", &wire.NoteStatus{What: "task failed", Task: "worker/3", Cause: "task is dead"}
	waits := job()
	waits.Barriers = []wire.BarrierStatus{{ID: "a", Arrived: 3, Members: 4, Missing: []string{"worker/3"}, ForSeconds: 20}}
	slow := job()
	slow.Stragglers = []wire.StragglerStatus{{Task: "worker/3", Places: 32}}
	other := job()
	other.Stragglers = []wire.StragglerStatus{{Task: "worker/1", Places: 32}}
	for name, c := range map[string]struct {
		status wire.Status
		want   string
	}{
		"lost":       {lost, "node-b, of ranks 2-3, was short of memory (PSI some 83 %)"},
		"waited for": {waits, "node-b, of ranks 2-3, is short of memory (PSI some 83 %)"},
		"slow":       {slow, "node-b, of ranks 2-3, is short of memory (PSI some 83 %)"},
		"another":    {other, ""},
	} {
		r := Judge(Evidence{Status: c.status, Hang: h})
		if told := slices.Contains(r.Evidence, HangLine{"host", c.want}); told != (c.want != "") || c.want == "" && slices.ContainsFunc(r.Evidence, func(l HangLine) bool { return l.Word == "host" }) {
			t.Errorf("%s: %q with %q; want %q", name, r.Verdict, r.Evidence, c.want)
		}
	}
}
