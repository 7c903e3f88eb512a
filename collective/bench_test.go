package collective_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/memory"
)

// Two groups of one process sum over sockets of the system.
func BenchmarkAllReduce(b *testing.B) {
	for _, size := range []int{8, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			w := &world{job: newJob(), t: b}
			comms := w.clique(w.startAll(2), devices(2))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var all sync.WaitGroup
			n := b.N
			b.ResetTimer()
			for _, c := range comms {
				op := collective.AllReduce{In: memory.Of(make([]byte, size)), Out: memory.Of(make([]byte, size)), Count: int64(size / 4), Type: memory.F32, Reduction: collective.Sum}
				all.Go(func() {
					for range n {
						if err := c.Do(b.Context(), op); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
