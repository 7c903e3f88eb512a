package relay

import (
	"context"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// benchRelay starts a relay with one task that has registered.
func benchRelay(b *testing.B) (rpc.Handler, *direct, coord.Call) {
	b.Helper()
	up := newUpstream(nil)
	r, err := New(Config{Upstream: []string{"a:1"}, Dial: up.dial})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		r.Shutdown(context.Background())
		up.close()
	})
	c := &direct{replies: make(chan struct{}, 1024)}
	h := r.Handler()
	h.Open(c)
	who := coord.Call{Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 11}
	path, body, err := wire.XLA.Request(coord.RegisterTask{Call: who})
	if err != nil {
		b.Fatal(err)
	}
	h.Serve(c, 1, path, body)
	h.Served(c)
	<-c.replies
	who.Service = 77
	return h, c, who
}

// BenchmarkHeartbeat is a heartbeat that the relay answers itself.
func BenchmarkHeartbeat(b *testing.B) {
	h, c, who := benchRelay(b)
	path, body, err := wire.XLA.Request(coord.Heartbeat{Call: who})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		h.Serve(c, 2, path, body)
		<-c.replies
	}
}

// BenchmarkCall is a read that goes upstream, with so many of them under way at once. The service is the
// script of the tests, on a pipe in memory.
func BenchmarkCall(b *testing.B) {
	h, c, who := benchRelay(b)
	path, body, err := wire.XLA.Request(coord.TryGetKeyValue{Call: who, Key: "k"})
	if err != nil {
		b.Fatal(err)
	}
	const wave = 64
	b.ReportAllocs()
	id := rpc.CallID(1)
	for b.Loop() {
		for range wave {
			id++
			h.Serve(c, id, path, body)
		}
		h.Served(c)
		for range wave {
			<-c.replies
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/wave, "ns/call")
}
