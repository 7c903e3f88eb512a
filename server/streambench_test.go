package server_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
	"github.com/serry-dev/serry/wire/xlapb"
)

// A fan wakes the callers of a benchmark.
type fan struct {
	mu   sync.Mutex
	wait map[rpc.CallID]chan stream.Reply
}

func (f *fan) Reply(r stream.Reply) {
	f.mu.Lock()
	c := f.wait[r.Call]
	f.mu.Unlock()
	c <- r
}
func (f *fan) Standing(stream.Standing)     {}
func (f *fan) Epoch(serry.Incarnation)      {}
func (f *fan) Up(uint64, serry.Incarnation) {}
func (f *fan) Down(error)                   {}
func (f *fan) Flush()                       {}

// BenchmarkStreamKeys sets and reads keys over TCP, with some callers on one stream.
func BenchmarkStreamKeys(b *testing.B) {
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			s := start(b, cluster(1))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			go s.Serve(l)
			f := &fan{wait: make(map[rpc.CallID]chan stream.Reply)}
			h := stream.NewHost(stream.HostConfig{Addresses: []string{l.Addr().String()}, Kind: stream.Client, Sink: f})
			defer h.Close(context.Background())
			h.Open(1)
			var put, get []byte
			put, _ = proto.Marshal(&xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: "key", Value: make([]byte, 64)}, AllowOverwrite: true})
			get, _ = proto.Marshal(&xlapb.TryGetKeyValueRequest{Key: "key"})
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for k := range callers {
				c := make(chan stream.Reply, 1)
				id := rpc.CallID(k + 1)
				f.mu.Lock()
				f.wait[id] = c
				f.mu.Unlock()
				wg.Go(func() {
					for i := range b.N / callers {
						call := stream.Call{Conn: 1, ID: id, Method: xlapb.CoordinationService_InsertKeyValue_FullMethodName, Body: put}
						if i%2 == 1 {
							call.Method, call.Body = xlapb.CoordinationService_TryGetKeyValue_FullMethodName, get
						}
						if err := h.Call(call); err != nil {
							b.Error(err)
							return
						}
						h.Flush()
						if r := <-c; !r.Status.OK() {
							b.Errorf("reply %v", r.Status)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// A counter counts replies.
type counter struct {
	fan
	left *sync.WaitGroup
}

func (c *counter) Reply(stream.Reply) { c.left.Done() }

// BenchmarkStreamBarrier lets ten thousand tasks meet, eight behind each of 1,250 streams over TCP.
func BenchmarkStreamBarrier(b *testing.B) {
	const streams, each = 1250, 8
	cfg := cluster(streams * each)
	cfg.Cluster.HeartbeatTimeout = time.Hour
	s := start(b, cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(l)
	left := new(sync.WaitGroup)
	hosts := make([]*stream.Host, streams)
	for i := range hosts {
		hosts[i] = stream.NewHost(stream.HostConfig{Addresses: []string{l.Addr().String()}, Kind: stream.Relay, Sink: &counter{left: left}})
		defer hosts[i].Close(b.Context())
	}
	id := rpc.CallID(0)
	all := func(request func(task int) (string, []byte)) {
		id++
		left.Add(streams * each)
		for i, h := range hosts {
			for j := range each {
				task := i*each + j
				conn := stream.ConnID(task + 1)
				if id == 1 {
					h.Open(conn)
				}
				method, body := request(task)
				if err := h.Call(stream.Call{Conn: conn, ID: id, Number: uint64(id), Watermark: uint64(id - 1), Method: method, Body: body}); err != nil {
					b.Fatal(err)
				}
			}
			h.Flush()
		}
		left.Wait()
	}
	all(func(task int) (string, []byte) {
		return xlapb.CoordinationService_RegisterTask_FullMethodName, marshal(b, &xlapb.RegisterTaskRequest{SourceTaskId: int32(task), Incarnation: uint64(task + 1)})
	})
	round := 0
	for b.Loop() {
		round++
		all(func(task int) (string, []byte) {
			return xlapb.CoordinationService_Barrier_FullMethodName, marshal(b, &xlapb.BarrierRequest{
				SourceTaskId: int32(task), BarrierId: "step", BarrierTimeoutInMs: 1 << 30, Counter: int64(round - 1),
				Incarnations: &xlapb.Incarnations{TaskIncarnation: uint64(task + 1)},
			})
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(streams*each), "ns/arrival")
}
