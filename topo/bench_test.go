package topo

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/serry-dev/serry"
)

// jobOf makes what the tasks of a job with eight devices each publish.
func jobOf(tasks int) locals {
	var in locals
	for i := range serry.TaskIndex(tasks) {
		in = append(in, local(i, fmt.Sprintf("boot-%d", i), 0, 1, 2, 3, 4, 5, 6, 7))
	}
	return in
}

func BenchmarkBuild(b *testing.B) {
	for _, tasks := range []int{1000, 10000} {
		in := jobOf(tasks)
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			for b.Loop() {
				if _, err := build(in, true); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tasks*8), "ns/device")
		})
	}
}

// What the service pays for the second insert of a global topology: nothing much
// if the bytes are equal or a task differs, the whole for one that is equal in
// other bytes.
func BenchmarkRepublished(b *testing.B) {
	const key, tasks = "cuda:global_topology/cuda", 10000
	g, err := build(jobOf(tasks), true)
	if err != nil {
		b.Fatal(err)
	}
	stored, _ := Encode(g)
	later := append(bytes.Clone(stored), 0x78, 1)
	g.Processes[5].BootId = "elsewhere"
	other, _ := Encode(g)
	for _, bench := range []struct {
		name            string
		stored, offered []byte
		want            bool
	}{{"equal bytes", stored, bytes.Clone(stored), true}, {"one task differs", stored, other, false}, {"all is parsed", stored, later, false}} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Republished(key, bench.stored, bench.offered) != bench.want {
					b.Fatalf("Republished() = %v; want %v", !bench.want, bench.want)
				}
			}
		})
	}
}

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
			now  []TaskRecord
		}{{"same", was}, {"new", hosts(hostNames("b", tasks)...)}} {
			b.Run(fmt.Sprintf("%s/tasks=%d", bench.name, tasks), func(b *testing.B) {
				for b.Loop() {
					if _, err := Assign(was, bench.now, AssignOptions{Tasks: tasks, Final: true}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
