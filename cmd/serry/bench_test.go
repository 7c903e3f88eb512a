package main

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// BenchmarkTasks measures what a command does with the answer in a job of 10,000 tasks: reading it,
// and printing it in each format. bench/cli has the times that people see.
func BenchmarkTasks(b *testing.B) {
	s := wire.Status{Version: wire.StatusVersion, Size: 10_000, Counts: map[string]int{wire.StateConnected: 10_000}}
	for i := range s.Size {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: fmt.Sprintf("worker/%d", i), State: wire.StateConnected, Incarnation: uint64(i) << 40, ForSeconds: 12.345678})
	}
	document, err := json.Marshal(s)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			var got wire.Status
			if err := json.Unmarshal(document, &got); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, f := range []format{asTable, asWide, asJSON, asYAML} {
		b.Run("print="+string(f), func(b *testing.B) {
			p := &printer{format: f, out: io.Discard, paper: paper{width: plainWidth}}
			for b.Loop() {
				if err := p.showTasks(s, defaultAddress); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("judge", func(b *testing.B) {
		for b.Loop() {
			diagnose.Judge(diagnose.Evidence{Status: s})
		}
	})
}
