package coord_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// sizes are the clusters that benchmarks run with.
func sizes() []int { return []int{512, 10_000} }

// BenchmarkBarrier passes one barrier of all tasks after the other.
func BenchmarkBarrier(b *testing.B) {
	for _, tasks := range sizes() {
		b.Run(fmt.Sprint("tasks=", tasks), func(b *testing.B) {
			c := newCrowd(tasks)
			calls := callsOf(c, tasks)
			b.ReportAllocs()
			counter := int64(0)
			for b.Loop() {
				for i := range calls {
					c.Step(0, coord.Barrier{Call: calls[i], ID: "b", Counter: counter, Timeout: time.Hour})
				}
				counter++
			}
			perUnit(b, tasks, "ns/arrival")
		})
	}
}

// BenchmarkAlive agrees on who is alive, over and over. Each caller sends the whole list, so that the
// work of one grows with the number of tasks.
func BenchmarkAlive(b *testing.B) {
	for _, tasks := range sizes() {
		b.Run(fmt.Sprint("tasks=", tasks), func(b *testing.B) {
			c := newCrowd(tasks)
			calls := callsOf(c, tasks)
			all := make([]serry.TaskID, tasks)
			for i := range all {
				all[i] = calls[i].Task
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range calls {
					c.Step(0, coord.GetAliveTasks{Call: calls[i], Tasks: all})
				}
			}
			perUnit(b, tasks, "ns/call")
		})
	}
}

// BenchmarkPut stores keys in a store of a million.
func BenchmarkPut(b *testing.B) {
	c := newCrowd(1)
	const keys = 1 << 20
	value := []byte("value")
	for i := range keys {
		c.Step(0, coord.InsertKeyValue{Key: fmt.Sprintf("dir%d/key%d", i%64, i), Value: value})
	}
	names := make([]string, 1024)
	for i := range names {
		at := i*(keys/len(names)) + i
		names[i] = fmt.Sprintf("dir%d/key%d", at%64, at)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Step(0, coord.InsertKeyValue{Call: coord.Call{Req: 1}, Key: names[i%len(names)], Value: value, Overwrite: true})
	}
}

func callsOf(c *crowd, tasks int) []coord.Call {
	calls := make([]coord.Call, tasks)
	for i := range calls {
		calls[i] = c.call(i)
	}
	return calls
}

// perUnit reports the time of an operation on all tasks for each of them.
func perUnit(b *testing.B, tasks int, unit string) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(tasks), unit)
}
