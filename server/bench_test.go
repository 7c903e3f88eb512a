package server_test

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A countingConn counts replies down; it is a transport that costs nothing.
type countingConn struct{ left *sync.WaitGroup }

func (c *countingConn) Reply(rpc.CallID, []byte, rpc.Status) { c.left.Done() }
func (c *countingConn) Flush()                               {}
func (c *countingConn) RemoteAddr() net.Addr                 { return nil }

func marshal(b *testing.B, m proto.Message) []byte {
	b.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// registered starts a server with n tasks, and a journal or nil, each on a connection of its own.
func registered(b *testing.B, n int, journal store.Reign) (*server.Server, []*countingConn, *sync.WaitGroup) {
	b.Helper()
	cfg := cluster(n)
	cfg.Cluster.HeartbeatTimeout = time.Hour
	cfg.Journal = journal
	s := start(b, cfg)
	left := new(sync.WaitGroup)
	conns := make([]*countingConn, n)
	left.Add(n)
	for i := range conns {
		conns[i] = &countingConn{left}
		s.Handler().Open(conns[i])
		s.Handler().Serve(conns[i], 1, xlapb.CoordinationService_RegisterTask_FullMethodName,
			marshal(b, &xlapb.RegisterTaskRequest{SourceTaskId: int32(i), Incarnation: uint64(i + 1)}))
		s.Handler().Served(conns[i])
	}
	left.Wait()
	return s, conns, left
}

func BenchmarkHeartbeat(b *testing.B) {
	s, conns, left := registered(b, 1, nil)
	body := marshal(b, &xlapb.HeartbeatRequest{Incarnation: 1, Incarnations: &xlapb.Incarnations{TaskIncarnation: 1}})
	call := rpc.CallID(1)
	b.ReportAllocs()
	for b.Loop() {
		left.Add(1)
		call++
		s.Handler().Serve(conns[0], call, xlapb.CoordinationService_Heartbeat_FullMethodName, body)
		s.Handler().Served(conns[0])
	}
}

// BenchmarkBarrier is one barrier after the other; what counts is the cost of an arrival, reply
// included.
func BenchmarkBarrier(b *testing.B) {
	for _, n := range []int{16, 1024, 10240} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) { barriers(b, n, nil) })
	}
}

// barriers lets n tasks meet again and again.
func barriers(b *testing.B, n int, journal store.Reign) {
	s, conns, left := registered(b, n, journal)
	counter, call := int64(0), rpc.CallID(1)
	bodies := make([][]byte, n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range bodies {
			bodies[i] = marshal(b, &xlapb.BarrierRequest{
				SourceTaskId: int32(i), BarrierId: "step", Counter: counter, BarrierTimeoutInMs: 1 << 40,
				Incarnations: &xlapb.Incarnations{TaskIncarnation: uint64(i + 1)},
			})
		}
		counter++
		call++
		left.Add(n)
		b.StartTimer()
		for i, c := range conns {
			s.Handler().Serve(c, call, xlapb.CoordinationService_Barrier_FullMethodName, bodies[i])
			s.Handler().Served(c)
		}
		left.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/arrival")
}

// BenchmarkJournal is one barrier after the other with a journal that outlives the process.
func BenchmarkJournal(b *testing.B) {
	for _, n := range []int{16, 512} {
		b.Run(fmt.Sprintf("file/tasks=%d", n), func(b *testing.B) {
			st, err := store.File(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { st.Close() })
			reign, err := st.Campaign(b.Context(), store.Candidate{})
			if err != nil {
				b.Fatal(err)
			}
			barriers(b, n, reign)
		})
	}
}
