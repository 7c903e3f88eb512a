package server_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// FuzzServe sends bytes as requests of every method. Nothing a client sends may end the process:
// neither when it is read, nor in the machine, nor when the answer is written.
func FuzzServe(f *testing.F) {
	methods := slices.Sorted(maps.Keys(wire.Methods(1 << 20)))
	for i := range methods {
		f.Add(uint8(i), []byte{}, []byte{1, 2, 3})
	}
	for _, m := range []proto.Message{
		&xlapb.RegisterTaskRequest{SourceTaskId: 1, Incarnation: 5},
		&xlapb.BarrierRequest{BarrierId: "b", TaskIds: []int32{0, 1}, Counter: -1, BarrierTimeoutInMs: -1},
		&xlapb.WatchTasksRequest{VersionNumber: 1 << 60},
		&xlapb.ReportErrorToServiceRequest{ErrorCode: 99},
	} {
		body, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(0), body, body)
	}
	f.Fuzz(func(t *testing.T, method uint8, first, second []byte) {
		cfg := cluster(2)
		cfg.Cluster.RegisterBarrier = false
		s, err := server.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := dialFake(t, s)
		var calls []rpc.CallID
		for i := range methods {
			path := methods[(int(method)+i)%len(methods)]
			sent := []rpc.CallID{c.sendBytes(path, first), c.sendBytes(path, second)}
			if path != serrypb.CoordinationService_Do_FullMethodName { // C-REQ-2: a call sent again may go unanswered
				calls = append(calls, sent...)
			}
		}
		// What waits is withdrawn by the end of the service at the latest.
		s.Shutdown(t.Context())
		for _, call := range calls {
			if _, ok := c.reply(call); !ok {
				t.Fatalf("call %d was never answered", call)
			}
		}
	})
}
