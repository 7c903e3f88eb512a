package web

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// large is a job of many ranks, eight on a host, that wait for one.
func large(ranks int) *fakeSource {
	f := &fakeSource{}
	s := wire.Status{
		Version: wire.StatusVersion, Epoch: 1, Service: 7, UpSeconds: 100, Size: ranks, Jobs: []wire.JobStatus{{Name: "worker", Tasks: ranks}},
		Counts:   map[string]int{wire.StateConnected: ranks},
		Barriers: []wire.BarrierStatus{{ID: "save-100", Arrived: ranks - 1, Members: ranks, Missing: []string{"worker/3"}, ForSeconds: 41}},
	}
	for i := range ranks {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, From: fmt.Sprintf("10.0.%d.%d:4711", i/2000, i/8%250), LastCall: "Barrier", LastOf: "save-100", CallSeconds: 41, CallWaits: i != 3})
		s.Steps = append(s.Steps, int64(100))
	}
	f.mu.evidence = diagnose.Evidence{Status: s}
	return f
}

// BenchmarkQuestion is what one answer of the service costs the page, of which there are two a second at most: to judge it, and
// to encode what has changed.
func BenchmarkQuestion(b *testing.B) {
	for _, ranks := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			h := &hub{source: large(ranks)}
			h.mu.next, h.mu.changed, h.mu.topics = make(chan struct{}), make(chan struct{}), make(map[string]topic)
			b.ReportAllocs()
			for b.Loop() {
				h.look(b.Context())
			}
		})
	}
}

// BenchmarkViewers is what a change costs for each of 100 viewers, without the writing.
func BenchmarkViewers(b *testing.B) {
	const viewers = 100
	h := &hub{source: large(10_000)}
	h.mu.next, h.mu.changed, h.mu.topics = make(chan struct{}), make(chan struct{}), make(map[string]topic)
	h.look(b.Context())
	_, seen, _, _ := h.after(cursor{}, topicNames)
	seen.number -= 5
	b.ReportAllocs()
	for b.Loop() {
		for range viewers {
			h.after(seen, topicNames)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*viewers), "ns/viewer")
}
