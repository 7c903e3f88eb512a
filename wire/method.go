package wire

import (
	"strconv"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// An Op is what a call asks for, in either dialect.
type Op int8

const (
	opNone Op = iota
	opRegister
	opHeartbeat
	opShutdown
	opReset
	opReport
	opReportToTask
	opPoll
	opWatch
	opJobState
	opTaskState
	opInsert
	opGet
	opTryGet
	opIncrement
	opDir
	opDelete
	opBarrier
	opCancel
	opAlive
	opWaitAll
	opSwap
	opWatchKeys
	opListKeys
	opSuspect
	opStatus
	opDo // a call of serry's own dialect that could not be read

	// No calls, but places in the table of answers.
	opTask // the failure of a task, wherever it is shown
	opAny  // whatever has no row of its own
)

// String is the name of the call, the same for both dialects.
func (o Op) String() string {
	names := [...]string{
		opRegister: "RegisterTask", opHeartbeat: "Heartbeat", opShutdown: "ShutdownTask", opReset: "ResetTask",
		opReport: "ReportErrorToService", opReportToTask: "ReportErrorToTask", opPoll: "PollForError",
		opWatch: "WatchTasks", opJobState: "GetJobState", opTaskState: "GetTaskState",
		opInsert: "InsertKeyValue", opGet: "GetKeyValue", opTryGet: "TryGetKeyValue",
		opIncrement: "IncrementKeyValue", opDir: "GetKeyValueDir", opDelete: "DeleteKeyValue",
		opBarrier: "Barrier", opCancel: "CancelBarrier", opAlive: "GetAliveTasks", opWaitAll: "WaitForAllTasks",
		opSwap: "SwapKeyValue", opWatchKeys: "WatchKeys", opListKeys: "ListKeys", opSuspect: "Suspect", opStatus: "GetStatus", opDo: "Do",
	}
	if o > 0 && int(o) < len(names) {
		return names[o]
	}
	return "op " + strconv.Itoa(int(o))
}

// A method is how calls of one path are read.
type method struct {
	dialect Dialect
	op      Op
	decode  func(*decoder, []byte) (coord.Event, error)
}

var methods = map[string]method{
	xlapb.CoordinationService_RegisterTask_FullMethodName:         {XLA, opRegister, (*decoder).xlaRegister},
	xlapb.CoordinationService_Heartbeat_FullMethodName:            {XLA, opHeartbeat, (*decoder).xlaHeartbeat},
	xlapb.CoordinationService_PollForError_FullMethodName:         {XLA, opPoll, (*decoder).xlaPoll},
	xlapb.CoordinationService_ReportErrorToService_FullMethodName: {XLA, opReport, (*decoder).xlaReport},
	xlapb.CoordinationService_ShutdownTask_FullMethodName:         {XLA, opShutdown, (*decoder).xlaShutdown},
	xlapb.CoordinationService_WatchTasks_FullMethodName:           {XLA, opWatch, (*decoder).xlaWatch},
	xlapb.CoordinationService_InsertKeyValue_FullMethodName:       {XLA, opInsert, (*decoder).xlaInsert},
	xlapb.CoordinationService_GetKeyValue_FullMethodName:          {XLA, opGet, (*decoder).xlaGet},
	xlapb.CoordinationService_TryGetKeyValue_FullMethodName:       {XLA, opTryGet, (*decoder).xlaTryGet},
	xlapb.CoordinationService_IncrementKeyValue_FullMethodName:    {XLA, opIncrement, (*decoder).xlaIncrement},
	xlapb.CoordinationService_GetKeyValueDir_FullMethodName:       {XLA, opDir, (*decoder).xlaDir},
	xlapb.CoordinationService_DeleteKeyValue_FullMethodName:       {XLA, opDelete, (*decoder).xlaDelete},
	xlapb.CoordinationService_Barrier_FullMethodName:              {XLA, opBarrier, (*decoder).xlaBarrier},
	xlapb.CoordinationService_CancelBarrier_FullMethodName:        {XLA, opCancel, (*decoder).xlaCancel},
	xlapb.CoordinationService_GetAliveTasks_FullMethodName:        {XLA, opAlive, (*decoder).xlaAlive},

	tfpb.CoordinationService_RegisterTask_FullMethodName:         {TF, opRegister, (*decoder).tfRegister},
	tfpb.CoordinationService_Heartbeat_FullMethodName:            {TF, opHeartbeat, (*decoder).tfHeartbeat},
	tfpb.CoordinationService_PollForError_FullMethodName:         {TF, opPoll, (*decoder).tfPoll},
	tfpb.CoordinationService_WaitForAllTasks_FullMethodName:      {TF, opWaitAll, (*decoder).tfWaitAll},
	tfpb.CoordinationService_ShutdownTask_FullMethodName:         {TF, opShutdown, (*decoder).tfShutdown},
	tfpb.CoordinationService_ResetTask_FullMethodName:            {TF, opReset, (*decoder).tfReset},
	tfpb.CoordinationService_ReportErrorToTask_FullMethodName:    {TF, opReportToTask, (*decoder).tfReportToTask},
	tfpb.CoordinationService_ReportErrorToService_FullMethodName: {TF, opReport, (*decoder).tfReport},
	tfpb.CoordinationService_GetTaskState_FullMethodName:         {TF, opTaskState, (*decoder).tfTaskState},
	tfpb.CoordinationService_GetJobState_FullMethodName:          {TF, opJobState, (*decoder).tfJobState},
	tfpb.CoordinationService_WatchJobState_FullMethodName:        {TF, opWatch, (*decoder).tfWatch},
	tfpb.CoordinationService_InsertKeyValue_FullMethodName:       {TF, opInsert, (*decoder).tfInsert},
	tfpb.CoordinationService_GetKeyValue_FullMethodName:          {TF, opGet, (*decoder).tfGet},
	tfpb.CoordinationService_TryGetKeyValue_FullMethodName:       {TF, opTryGet, (*decoder).tfTryGet},
	tfpb.CoordinationService_IncrementKeyValue_FullMethodName:    {TF, opIncrement, (*decoder).tfIncrement},
	tfpb.CoordinationService_GetKeyValueDir_FullMethodName:       {TF, opDir, (*decoder).tfDir},
	tfpb.CoordinationService_DeleteKeyValue_FullMethodName:       {TF, opDelete, (*decoder).tfDelete},
	tfpb.CoordinationService_Barrier_FullMethodName:              {TF, opBarrier, (*decoder).tfBarrier},
	tfpb.CoordinationService_CancelBarrier_FullMethodName:        {TF, opCancel, (*decoder).tfCancel},
	tfpb.CoordinationService_GetAliveTasks_FullMethodName:        {TF, opAlive, (*decoder).tfAlive},

	serrypb.CoordinationService_Do_FullMethodName: {Own, opDo, (*decoder).ownDo},
}

const (
	maxRequestBytes = 64 << 20 // of a request without a value (C-LIM-2)
	valueSlackBytes = 2 << 20  // room for the key and the frame around a value
)

// Methods says which methods exist in all dialects, and how large a request of each may be where a
// value may have maxValueBytes (C-LIM-2).
func Methods(maxValueBytes int64) rpc.Methods {
	all := make(rpc.Methods, len(methods))
	for path, m := range methods {
		limit := int64(maxRequestBytes)
		if m.op == opInsert || m.op == opDo {
			limit = max(limit, maxValueBytes+valueSlackBytes)
		}
		all[path] = rpc.Method{MaxRequestBytes: limit}
	}
	all[LeadMethod] = rpc.Method{MaxRequestBytes: maxLeadBytes}
	return all
}
