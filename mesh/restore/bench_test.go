package restore

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry"
)

func hostNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return names
}

// Every task holds a slab of each of twenty arrays and has moved up by one rank,
// so that every read goes over the network.
func BenchmarkNewPlan(b *testing.B) {
	const arrays = 20
	for _, tasks := range []int{100, 1000} {
		names := hostNames("h", tasks)
		in := Input{Step: 100, Saved: &Manifest{Mesh: flat(tasks, 2), Tasks: hosts(names...)}}
		shape := []int{2 * tasks, 64}
		for a := range arrays {
			w := Array{Name: fmt.Sprint("w", a), Shape: shape, Type: "float32"}
			for d := range 2 * tasks {
				w.Parts = append(w.Parts, Part{serry.DeviceID(d), block(d, d+1, 0, 64)})
			}
			in.Arrays = append(in.Arrays, w)
		}
		for i, r := range hosts(append(names[1:], names[0])...) {
			was := (i + 1) % tasks
			x := &Inventory{Step: 100, Task: serry.TaskIndex(was)}
			for a := range arrays {
				x.Arrays = append(x.Arrays, StoredArray{Name: fmt.Sprint("w", a), Shape: shape, Type: "float32",
					Shards: []StoredShard{{Index: block(2*was, 2*was+2, 0, 64), File: "w", Bytes: 512, Digest: fmt.Sprint(was)}}})
			}
			in.Live = append(in.Live, Live{Record: r, Held: x})
		}
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			for b.Loop() {
				if p, err := NewPlan(in); err != nil || len(p.Missing) > 0 {
					b.Fatalf("NewPlan() = %v; want a whole plan", err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*arrays*tasks*2), "ns/part")
		})
	}
}
