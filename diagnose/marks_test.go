package diagnose

import (
	"fmt"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// A rank that waits for others for longer than usual is marked so. One at a barrier that will soon be complete is at work.
func TestMarksOfWaitingRanks(t *testing.T) {
	clause.Cite(t, "D-WEB-19", "D-CLI-3")
	barrier := func(seconds float64, arrived, members int, missing ...string) []wire.BarrierStatus {
		return []wire.BarrierStatus{{ID: "save-100", Arrived: arrived, Members: members, Missing: missing, ForSeconds: seconds, UsualSeconds: 0.5}}
	}
	stuck := func(ranks []int, count int) *HangReport {
		return &HangReport{Hang: &Hang{Kind: HangStill, Stage: Stalled, Ranks: []RankEvidence{{Rank: 3}}, Waits: []HangWait{{In: "Gloo all-reduce", Ranks: ranks, Count: count}}}}
	}
	for name, c := range map[string]struct {
		barriers []wire.BarrierStatus
		hang     *HangReport
		want     string
	}{
		"nothing is waited for":                     {nil, nil, "...."},
		"a barrier as every second":                 {barrier(0.4, 3, 4, "worker/3"), nil, "...."},
		"a late barrier":                            {barrier(3, 3, 4, "worker/3"), nil, "wwwm"},
		"a late barrier of some ranks, who knows":   {barrier(3, 1, 2, "worker/3"), nil, "...m"},
		"a late barrier that does not name them":    {barrier(3, 1, 4, "worker/3"), nil, "...m"},
		"a computation":                             {nil, stuck([]int{0, 1}, 2), "ww.!"},
		"a computation with more than are named":    {nil, stuck([]int{0}, 3), "www!"},
		"a late barrier, as the launcher says, too": {barrier(9, 3, 4, "worker/3"), stuck([]int{0, 1, 2}, 3), "www!"},
	} {
		t.Run(name, func(t *testing.T) {
			s := wire.Status{Size: 4, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 4}}, Barriers: c.barriers}
			for i := range s.Size {
				s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected})
			}
			var got strings.Builder
			for _, m := range MarkRanks(s, c.hang) {
				got.WriteByte(byte(m.Mark))
			}
			if got.String() != c.want {
				t.Errorf("MarkRanks() = %s; want %s", &got, c.want)
			}
		})
	}
	failed := wire.Status{Size: 2, Jobs: []wire.JobStatus{{Name: "worker", Tasks: 2}}, Barriers: barrier(9, 1, 2, "worker/1"), Tasks: []wire.TaskStatus{{Task: "worker/0", State: wire.StateFailed}, {Task: "worker/1", State: wire.StateConnected}}}
	if got := MarkRanks(failed, nil)[0].Mark; got != MarkFailed {
		t.Errorf("the mark of a rank that has failed at a barrier is %c; want %c", got, MarkFailed)
	}
}
