package load

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/wire/xlapb"
)

// The methods used, as paths.
const (
	RegisterTask  = xlapb.CoordinationService_RegisterTask_FullMethodName
	Barrier       = xlapb.CoordinationService_Barrier_FullMethodName
	InsertKey     = xlapb.CoordinationService_InsertKeyValue_FullMethodName
	TryGetKey     = xlapb.CoordinationService_TryGetKeyValue_FullMethodName
	GetAliveTasks = xlapb.CoordinationService_GetAliveTasks_FullMethodName
	WatchTasks    = xlapb.CoordinationService_WatchTasks_FullMethodName
	PollForError  = xlapb.CoordinationService_PollForError_FullMethodName
	ReportError   = xlapb.CoordinationService_ReportErrorToService_FullMethodName
	Heartbeat     = xlapb.CoordinationService_Heartbeat_FullMethodName
)

// Encode writes a message that is well-formed by construction.
func Encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %v: %v", m, err))
	}
	return b
}

// Incarnation of a task; any number will do that is not zero.
func Incarnation(task int) uint64 { return 0x5e44_0000_0000_0000 + uint64(task) }

func (c *Cluster) incarnations(task int) *xlapb.Incarnations {
	return &xlapb.Incarnations{TaskIncarnation: Incarnation(task), ServiceIncarnation: c.Service}
}

// Each makes the request of every task.
func (c *Cluster) Each(request func(task int) proto.Message) [][]byte {
	all := make([][]byte, c.Tasks)
	for i := range all {
		all[i] = Encode(request(i))
	}
	return all
}

// Polls are the error polls of all tasks.
func (c *Cluster) Polls() [][]byte {
	return c.Each(func(task int) proto.Message {
		return &xlapb.PollForErrorRequest{Incarnations: c.incarnations(task), SourceTaskId: int32(task)}
	})
}

// Heartbeats are those of all tasks.
func (c *Cluster) Heartbeats() [][]byte {
	return c.Each(func(task int) proto.Message {
		return &xlapb.HeartbeatRequest{Incarnations: c.incarnations(task), Incarnation: Incarnation(task), SourceTaskId: int32(task)}
	})
}

// Arrivals are those of all tasks at a barrier.
func (c *Cluster) Arrivals(id string) [][]byte {
	return c.Each(func(task int) proto.Message {
		return &xlapb.BarrierRequest{Incarnations: c.incarnations(task), BarrierId: id,
			BarrierTimeoutInMs: Patience.Milliseconds(), SourceTaskId: int32(task)}
	})
}

// AliveCalls ask for the live set of all tasks, one for each.
func (c *Cluster) AliveCalls() [][]byte {
	ids := make([]int32, c.Tasks)
	for i := range ids {
		ids[i] = int32(i)
	}
	return c.Each(func(task int) proto.Message {
		return &xlapb.GetAliveTasksRequest{Incarnations: c.incarnations(task), RequestingTaskId: int32(task), TaskIds: ids}
	})
}

// Watches ask for the state of all tasks once it is newer than a version, one for each task.
func (c *Cluster) Watches(version int64) [][]byte {
	return c.Each(func(task int) proto.Message {
		return &xlapb.WatchTasksRequest{Incarnations: c.incarnations(task), VersionNumber: version}
	})
}

// Failure is the report of a task that breaks.
func (c *Cluster) Failure(task int) []byte {
	inc := c.incarnations(task)
	inc.TaskId = int32(task)
	return Encode(&xlapb.ReportErrorToServiceRequest{Incarnations: inc, SourceTaskId: int32(task),
		ErrorCode: 13, ErrorMessage: "out of memory"})
}

// ValueBytes is the size of the values that are set and read.
const ValueBytes = 64

// Set sets a key to a value of ValueBytes.
func (c *Cluster) Set(task int, key string) []byte {
	return Encode(&xlapb.InsertKeyValueRequest{Incarnations: c.incarnations(task), AllowOverwrite: true,
		Kv: &xlapb.KeyValueEntry{Key: key, Value: []byte(strings.Repeat("v", ValueBytes))}})
}

// Get reads a key.
func (c *Cluster) Get(task int, key string) []byte {
	return Encode(&xlapb.TryGetKeyValueRequest{Incarnations: c.incarnations(task), Key: key})
}
