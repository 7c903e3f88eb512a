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

// BenchmarkPutWatched stores a key that one of ten thousand watchers waits for, in a store of ten thousand
// keys, after more writes elsewhere than the history holds. The watcher then watches again.
func BenchmarkPutWatched(b *testing.B) {
	const many = 10_000
	c := newCrowd(1)
	value := []byte("value")
	dir := func(i int) string { return fmt.Sprint("job/dir", i) }
	for i := range many {
		c.Step(0, coord.InsertKeyValue{Key: dir(i) + "/key", Value: value})
		c.Step(0, coord.WatchKeys{Call: c.call(0), Dir: dir(i), After: int64(i + 1)})
	}
	revision := int64(many)
	for i := range 2 * many {
		c.Step(0, coord.InsertKeyValue{Key: fmt.Sprint("elsewhere/", i), Value: value})
		revision++
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := dir(i % many)
		revision++
		if told := len(c.Step(0, coord.InsertKeyValue{Key: at + "/key", Value: value, Overwrite: true})); told != 1 {
			b.Fatalf("a put was told to %d watchers; want 1", told)
		}
		c.Step(0, coord.WatchKeys{Call: c.call(0), Dir: at, After: revision})
	}
}

// BenchmarkRecord writes the events of a barrier and of an alive round into a journal.
func BenchmarkRecord(b *testing.B) {
	for _, tasks := range sizes() {
		c := newCrowd(tasks)
		calls := callsOf(c, tasks)
		all := make([]serry.TaskID, tasks)
		for i := range all {
			calls[i].ID = coord.RequestID{Requester: 1 << 60, Number: 1000, Watermark: 999}
			all[i] = calls[i].Task
		}
		for name, event := range map[string]func(coord.Call) coord.Event{
			"barrier": func(call coord.Call) coord.Event { return coord.Barrier{Call: call, ID: "step", Timeout: time.Hour} },
			"alive":   func(call coord.Call) coord.Event { return coord.GetAliveTasks{Call: call, Tasks: all} },
		} {
			b.Run(fmt.Sprintf("%s/tasks=%d", name, tasks), func(b *testing.B) {
				var journal []byte
				b.ReportAllocs()
				for b.Loop() {
					journal = journal[:0]
					for i := range calls {
						journal = coord.AppendRecord(journal, 0, event(calls[i]), nil)
					}
				}
				perUnit(b, tasks, "ns/record")
				b.ReportMetric(float64(len(journal))/float64(tasks), "bytes/record")
			})
		}
	}
}

// BenchmarkSnapshot writes down and restores a cluster in which every task has a barrier call, an alive
// round and a key behind it.
func BenchmarkSnapshot(b *testing.B) {
	for _, tasks := range sizes() {
		c := newCrowd(tasks)
		calls := callsOf(c, tasks)
		all := make([]serry.TaskID, tasks)
		for i := range all {
			all[i] = calls[i].Task
		}
		for i, call := range calls {
			call.ID = coord.RequestID{Requester: 1<<60 + uint64(i), Number: 1}
			c.Step(0, coord.Barrier{Call: call, ID: "step", Timeout: time.Hour})
			call.ID.Number = 2
			c.Step(0, coord.GetAliveTasks{Call: call, Tasks: all})
			c.Step(0, coord.InsertKeyValue{Key: fmt.Sprint("key/", i), Value: make([]byte, 1024)})
		}
		snapshot := c.Snapshot(nil)
		b.Run(fmt.Sprint("write/tasks=", tasks), func(b *testing.B) {
			b.SetBytes(int64(len(snapshot)))
			b.ReportAllocs()
			for b.Loop() {
				c.Snapshot(nil)
			}
			b.ReportMetric(float64(len(snapshot))/float64(tasks), "bytes/task")
		})
		b.Run(fmt.Sprint("restore/tasks=", tasks), func(b *testing.B) {
			b.SetBytes(int64(len(snapshot)))
			b.ReportAllocs()
			cfg := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: tasks}}, Service: 100}
			for b.Loop() {
				if _, err := coord.Restore(cfg, snapshot, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
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
