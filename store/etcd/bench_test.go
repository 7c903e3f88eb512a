package etcd_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

// BenchmarkAppend is the latency of one batch: of one member through a socket, as in an etcd elsewhere,
// and through a member of this process.
func BenchmarkAppend(b *testing.B) {
	m, client := one(b, member.Config{})
	outside := open(b, etcd.Config{Client: client, Prefix: "/socket/", LeaseTTL: time.Minute, Compact: true})
	inside, err := m.Open(b.Context(), etcd.Config{Prefix: "/inside/", LeaseTTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer inside.Close()
	benchmark(b, "members=1,socket", outside)
	benchmark(b, "members=1,inside", inside)

	members, _ := three(b)
	of3, err := members["a"].Open(b.Context(), etcd.Config{LeaseTTL: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer of3.Close()
	benchmark(b, "members=3,inside", of3)
}

func benchmark(b *testing.B, name string, st store.Store) {
	r, err := st.Campaign(b.Context(), store.Candidate{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run(name+"/confirm", func(b *testing.B) {
		for b.Loop() {
			if err := r.Confirm(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, size := range []int{100, 10_000, 1_000_000} {
		batch := make([]byte, size)
		b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
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
