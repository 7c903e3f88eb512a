package transfer_test

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// BenchmarkGroup moves groups of buffers of 1 KiB between two engines of this process, over TCP.
func BenchmarkGroup(b *testing.B) {
	for _, count := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("buffers=%d", count), func(b *testing.B) {
			w := &world{job: newJob(), t: b, link: link.Options{TCPOnly: true}}
			from, to := w.pair()
			data := make([]byte, 1024)
			key := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				halves := func(p *process, definition *transfer.Event) []transfer.Op {
					var ops []transfer.Op
					for i := range count {
						m := transfer.Memory{Region: memory.Of(data), Device: p.device}
						buffer, err := p.Pool().Buffer(bytesSpec(len(data)), m)
						if err != nil {
							b.Fatal(err)
						}
						if definition != nil {
							buffer.Define(definition)
						}
						ops = append(ops, transfer.Op{Key: transfer.Key{Seq: key + uint64(i)}, Src: from.device, Dst: to.device, Buffer: buffer})
					}
					return ops
				}
				got, err := to.Transfer(b.Context(), halves(to, nil))
				if err != nil {
					b.Fatal(err)
				}
				sent, err := from.Transfer(b.Context(), halves(from, from.Pool().Ready()))
				if err != nil {
					b.Fatal(err)
				}
				for _, g := range []*transfer.Group{sent, got} {
					if err := g.Done().Wait(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				key += uint64(count)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*count), "us/buffer")
		})
	}
}
