package remap

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
)

func hostNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return names
}

func BenchmarkAssign(b *testing.B) {
	for _, tasks := range []int{1000, 10000} {
		was := hosts(hostNames("a", tasks)...)
		for _, bench := range []struct {
			name string
			now  []topo.TaskRecord
		}{{"same", was}, {"new", hosts(hostNames("b", tasks)...)}} {
			b.Run(fmt.Sprintf("%s/tasks=%d", bench.name, tasks), func(b *testing.B) {
				for b.Loop() {
					if _, err := Assign(was, bench.now, Seating{Tasks: tasks, Final: true}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Every task holds a slab of each of twenty arrays and has moved up by one rank,
// so that every read goes over the network.
func BenchmarkPlanRestore(b *testing.B) {
	const arrays = 20
	for _, tasks := range []int{100, 1000} {
		names := hostNames("h", tasks)
		in := Input{Step: 100, Saved: &Manifest{Mesh: flat(tasks, 2), Tasks: hosts(names...)}}
		shape := []int64{int64(2 * tasks), 64}
		for a := range arrays {
			w := Array{Name: fmt.Sprint("w", a), Shape: shape, Type: "float32"}
			for d := range 2 * tasks {
				w.Parts = append(w.Parts, Part{serry.DeviceID(d), Box{{int64(d), int64(d) + 1}, {0, 64}}})
			}
			in.Arrays = append(in.Arrays, w)
		}
		for i, r := range hosts(append(names[1:], names[0])...) {
			was := int64(i+1) % int64(tasks)
			x := &Index{Step: 100, Task: serry.TaskIndex(was)}
			for a := range arrays {
				x.Arrays = append(x.Arrays, Stored{Name: fmt.Sprint("w", a), Shape: shape, Type: "float32",
					Shards: []Shard{{Box: Box{{2 * was, 2*was + 2}, {0, 64}}, File: "w", Bytes: 512, Digest: fmt.Sprint(was)}}})
			}
			in.Live = append(in.Live, Live{Record: r, Index: x})
		}
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			for b.Loop() {
				if p, err := PlanRestore(in); err != nil || len(p.Missing) > 0 {
					b.Fatalf("PlanRestore() = %v; want a whole plan", err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*arrays*tasks*2), "ns/part")
		})
	}
}
