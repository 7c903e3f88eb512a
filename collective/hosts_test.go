package collective_test

import (
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// Where several ranks sit on each of several hosts they combine their data inside the hosts first. All members choose alike, and
// where the ranks do not lie evenly none does.
func TestRanksOnHosts(t *testing.T) {
	clause.Cite(t, "CL-ALG-1", "CLT-OP-39")
	for _, row := range []struct {
		hosts []string // of the tasks
		order []serry.DeviceID
		want  string
	}{
		{[]string{"a", "a", "b", "b"}, devices(4), "two-level"},
		{[]string{"a", "a", "a", "b", "b", "b"}, devices(6), "two-level"},
		{[]string{"a", "b", "a", "b"}, []serry.DeviceID{2, 0, 3, 1}, "two-level"},
		{[]string{"a", "b", "a", "b"}, devices(4), "direct"},
		{[]string{"a", "a", "a", "b"}, devices(4), "direct"},
		{[]string{"a", "a", "a", "a"}, devices(4), "direct"},
		{[]string{"a", "b", "c", "d"}, devices(4), "direct"},
		{[]string{"", "", "", ""}, devices(4), "direct"}, // the addresses tell: each has its own
	} {
		inBubble(t, func(t *testing.T, w *world) {
			for i, host := range row.hosts {
				w.group.Host = host
				w.start(life(i, uint64(10+i)))
			}
			comms := ranksOf(w.clique(w.procs, row.order))
			b := memory.Of(make([]byte, 50_000))
			for _, c := range comms {
				op := collective.AllReduce{In: b, Out: b, Count: 50_000, Type: memory.U8, Reduction: collective.Sum}
				if got := collective.Algorithm(c, op); got != row.want {
					t.Errorf("hosts %v, devices %v: rank %d takes %q; want %q", row.hosts, row.order, c.Rank(), got, row.want)
				}
			}
			for _, n := range []int{3, 50_000, 300_001} {
				works(t, comms, n)
			}
		})
	}
}
