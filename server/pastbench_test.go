package server

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// A heapJournal is one in memory.
type heapJournal struct {
	store.Journal
	snapshot []byte
	batch    []byte
}

func (j heapJournal) Load(context.Context) ([]byte, iter.Seq2[[]byte, error], error) {
	return j.snapshot, func(yield func([]byte, error) bool) { yield(j.batch, nil) }, nil
}

// longJournal is a history of as many bytes as a journal has before a snapshot takes its place: keys are written, one each millisecond.
func longJournal(b *testing.B, tasks int) heapJournal {
	b.Helper()
	cfg := coord.Config{Service: 1, Jobs: []coord.Job{{Name: "worker", Tasks: tasks}}}
	m := coord.New(cfg)
	empty := history{}
	j := heapJournal{snapshot: m.AppendSnapshot(empty.header(settings{Jobs: cfg.Jobs}, time.Now()).append(nil), nil)}
	for i := 1; len(j.batch) < DefaultSnapshotBytes; i++ {
		m.Step(coord.Time(i)*coord.Time(time.Millisecond), coord.IncrementKeyValue{Call: coord.Call{Req: coord.Req(i)}, Key: fmt.Sprintf("step/%d", i%100), By: 1})
		ev, ok := m.Journaled()
		if !ok {
			b.Fatalf("event %d is not journaled", i)
		}
		j.batch = m.AppendRecord(j.batch, ev, nil)
	}
	return j
}

// BenchmarkPast is what it costs to open a long journal, and to look at its end after its beginning, which is the longest way of a slider.
func BenchmarkPast(b *testing.B) {
	for _, tasks := range []int{100, 10_000} {
		j := longJournal(b, tasks)
		b.Run(fmt.Sprintf("open/tasks=%d", tasks), func(b *testing.B) {
			for b.Loop() {
				p, err := OpenPast(b.Context(), j, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(p.Span().Records), "records")
			}
		})
		b.Run(fmt.Sprintf("look/tasks=%d", tasks), func(b *testing.B) {
			p, err := OpenPast(b.Context(), j, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			for b.Loop() {
				for _, at := range []coord.Time{p.Span().Begin, p.Span().End} {
					if _, err := p.At(b.Context(), at); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
