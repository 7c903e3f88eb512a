package store_test

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/store"
)

// BenchmarkAppend is the latency of one batch: a wave of a barrier is some kilobytes.
func BenchmarkAppend(b *testing.B) {
	for _, kind := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"memory", func(*testing.B) store.Store { return shareddisk.New(shareddisk.Config{}).Open() }},
		{"file", func(b *testing.B) store.Store {
			st, err := store.File(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			return st
		}},
	} {
		for _, size := range []int{100, 10_000, 1_000_000} {
			b.Run(fmt.Sprintf("store=%s/bytes=%d", kind.name, size), func(b *testing.B) {
				st := kind.open(b)
				defer st.Close()
				r, err := st.Campaign(b.Context(), store.Candidate{})
				if err != nil {
					b.Fatal(err)
				}
				batch := make([]byte, size)
				written := 0
				b.ReportAllocs()
				for b.Loop() {
					if err := r.Append(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
					if written += size; written > 64<<20 { // as a server would
						b.StopTimer()
						if err := r.Save(b.Context(), r.Mark(), nil, nil); err != nil {
							b.Fatal(err)
						}
						written = 0
						b.StartTimer()
					}
				}
			})
		}
	}
}
