package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/wire/xlapb"
)

// The methods used, as paths.
const (
	registerTask  = xlapb.CoordinationService_RegisterTask_FullMethodName
	barrier       = xlapb.CoordinationService_Barrier_FullMethodName
	insertKey     = xlapb.CoordinationService_InsertKeyValue_FullMethodName
	tryGetKey     = xlapb.CoordinationService_TryGetKeyValue_FullMethodName
	getAliveTasks = xlapb.CoordinationService_GetAliveTasks_FullMethodName
	watchTasks    = xlapb.CoordinationService_WatchTasks_FullMethodName
	pollForError  = xlapb.CoordinationService_PollForError_FullMethodName
	reportError   = xlapb.CoordinationService_ReportErrorToService_FullMethodName
	heartbeat     = xlapb.CoordinationService_Heartbeat_FullMethodName
)

// encode writes a message that is well-formed by construction.
func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %v: %v", m, err))
	}
	return b
}

// incarnation of a task; any number will do that is not zero.
func incarnation(task int) uint64 { return 0x5e44_0000_0000_0000 + uint64(task) }

func (c *cluster) incarnations(task int) *xlapb.Incarnations {
	return &xlapb.Incarnations{TaskIncarnation: incarnation(task), ServiceIncarnation: c.service}
}

// each makes the request of every task.
func (c *cluster) each(request func(task int) proto.Message) [][]byte {
	all := make([][]byte, c.tasks)
	for i := range all {
		all[i] = encode(request(i))
	}
	return all
}

func (c *cluster) polls() [][]byte {
	return c.each(func(task int) proto.Message {
		return &xlapb.PollForErrorRequest{Incarnations: c.incarnations(task), SourceTaskId: int32(task)}
	})
}

func (c *cluster) heartbeats() [][]byte {
	return c.each(func(task int) proto.Message {
		return &xlapb.HeartbeatRequest{Incarnations: c.incarnations(task), Incarnation: incarnation(task), SourceTaskId: int32(task)}
	})
}

func (c *cluster) arrivals(id string) [][]byte {
	return c.each(func(task int) proto.Message {
		return &xlapb.BarrierRequest{Incarnations: c.incarnations(task), BarrierId: id,
			BarrierTimeoutInMs: patience.Milliseconds(), SourceTaskId: int32(task)}
	})
}

func (c *cluster) aliveCalls() [][]byte {
	ids := make([]int32, c.tasks)
	for i := range ids {
		ids[i] = int32(i)
	}
	return c.each(func(task int) proto.Message {
		return &xlapb.GetAliveTasksRequest{Incarnations: c.incarnations(task), RequestingTaskId: int32(task), TaskIds: ids}
	})
}

func (c *cluster) watches(version int64) [][]byte {
	return c.each(func(task int) proto.Message {
		return &xlapb.WatchTasksRequest{Incarnations: c.incarnations(task), VersionNumber: version}
	})
}

// failure is the report of a task that breaks.
func (c *cluster) failure(task int) []byte {
	inc := c.incarnations(task)
	inc.TaskId = int32(task)
	return encode(&xlapb.ReportErrorToServiceRequest{Incarnations: inc, SourceTaskId: int32(task),
		ErrorCode: 13, ErrorMessage: "out of memory"})
}

// valueBytes is the size of the values that are set and read.
const valueBytes = 64

func (c *cluster) set(task int, key string) []byte {
	return encode(&xlapb.InsertKeyValueRequest{Incarnations: c.incarnations(task), AllowOverwrite: true,
		Kv: &xlapb.KeyValueEntry{Key: key, Value: []byte(strings.Repeat("v", valueBytes))}})
}

func (c *cluster) get(task int, key string) []byte {
	return encode(&xlapb.TryGetKeyValueRequest{Incarnations: c.incarnations(task), Key: key})
}
