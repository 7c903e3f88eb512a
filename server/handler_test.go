package server

import (
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/xlapb"
)

// codesConn keeps how calls ended.
type codesConn map[rpc.CallID]codes.Code

func (c codesConn) Reply(call rpc.CallID, _ []byte, st rpc.Status) { c[call] = st.Code }
func (c codesConn) Flush()                                         {}
func (c codesConn) RemoteAddr() net.Addr                           { return nil }

// TestFullQueue has a handler whose owner does not run, so that its queue fills.
func TestFullQueue(t *testing.T) {
	clause.Cite(t, "C-LIM-1", "NEW-62")
	jobs := []coord.Job{{Name: "worker", Tasks: 1}}
	limits := Limits{QueueEvents: 1, QueueBytes: 1 << 10, Connections: 1}
	h := &handler{limits: limits, queue: newQueue(limits, clock{}), stats: newStats(), inquiries: newInquiries(binding{})}
	h.epoch.Store(newEpoch(coord.Opened{Service: 9, Jobs: jobs}, wire.NewCodec(jobs)))
	c := &struct{ codesConn }{codesConn{}}
	h.Open(c)
	send := func(call rpc.CallID, method string, m proto.Message) {
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		h.Serve(c, call, method, body)
	}
	insert := func(call rpc.CallID, bytes int) {
		send(call, xlapb.CoordinationService_InsertKeyValue_FullMethodName,
			&xlapb.InsertKeyValueRequest{Kv: &xlapb.KeyValueEntry{Key: "k", Value: make([]byte, bytes)}})
	}
	insert(1, 2<<10)
	insert(2, 10)
	insert(3, 10)
	send(4, xlapb.CoordinationService_RegisterTask_FullMethodName, &xlapb.RegisterTaskRequest{Incarnation: 7})
	send(5, xlapb.CoordinationService_Heartbeat_FullMethodName, &xlapb.HeartbeatRequest{Incarnation: 7})
	send(6, xlapb.CoordinationService_PollForError_FullMethodName, &xlapb.PollForErrorRequest{})
	send(7, xlapb.CoordinationService_ShutdownTask_FullMethodName, &xlapb.ShutdownTaskRequest{})

	if len(c.codesConn) != 2 || c.codesConn[1] != codes.ResourceExhausted || c.codesConn[3] != codes.ResourceExhausted {
		t.Errorf("answers %v; want RESOURCE_EXHAUSTED for call 1, too many bytes, and 3, too many events", c.codesConn)
	}
	items, _ := h.queue.drain(nil)
	if len(items) != 5 {
		t.Errorf("%d items queued; want 5, those that must not be refused among them", len(items))
	}
	insert(10, 10)
	if c.codesConn[10] != codes.ResourceExhausted {
		t.Errorf("an insert while drained items have not been stepped = %v; want RESOURCE_EXHAUSTED", c.codesConn[10])
	}
	h.queue.stepped(items)
	insert(8, 10)
	if _, refused := c.codesConn[8]; refused {
		t.Errorf("an insert after the queue was drained was refused: %v", c.codesConn[8])
	}

	h.queue.close()
	insert(9, 10)
	if c.codesConn[9] != codes.Internal {
		t.Errorf("a call to a server that has ended = %v; want INTERNAL", c.codesConn[9])
	}
	if err := h.queue.push(viewWanted{}); !errors.Is(err, serry.ErrStopped) {
		t.Errorf("push() on a closed queue = %v; want %v", err, serry.ErrStopped)
	}
}
