package wire

import (
	"strconv"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// An Op is what a call asks for, in any dialect: a kind of call, or one of the few below that the machine
// does not know.
type Op coord.Kind

// The operations that have a name in this package: those of the dialects of others. A call that only serry's
// own dialect has is known by its kind.
const (
	opNone      Op = 0
	opRegister     = Op(coord.KindRegisterTask)
	opHeartbeat    = Op(coord.KindHeartbeat)
	opShutdown     = Op(coord.KindShutdownTask)
	opReset        = Op(coord.KindResetTask)
	opReport       = Op(coord.KindReportError)
	opPoll         = Op(coord.KindPollForError)
	opWatch        = Op(coord.KindWatchTasks)
	opTaskState    = Op(coord.KindGetTaskState)
	opInsert       = Op(coord.KindInsertKeyValue)
	opGet          = Op(coord.KindGetKeyValue)
	opTryGet       = Op(coord.KindTryGetKeyValue)
	opIncrement    = Op(coord.KindIncrementKeyValue)
	opDir          = Op(coord.KindGetKeyValueDir)
	opDelete       = Op(coord.KindDeleteKeyValue)
	opBarrier      = Op(coord.KindBarrier)
	opCancel       = Op(coord.KindCancelBarrier)
	opAlive        = Op(coord.KindGetAliveTasks)
	opWaitAll      = Op(coord.KindWaitForAllTasks)
)

const (
	opReportToTask Op = coord.Kinds + iota // refused: it is a call to a task
	opJobState                             // of TF: the tasks of a job as they are, so a WatchTasks that does not wait
	opDo                                   // a call of serry's own dialect that could not be read

	// No calls, but places in the table of answers.
	opTask // the failure of a task, wherever it is shown
	opAny  // whatever has no row of its own
)

// String is the name of the call in the dialects XLA and TF, where they have it.
func (o Op) String() string {
	switch o {
	case opReport:
		return "ReportErrorToService"
	case opReportToTask:
		return "ReportErrorToTask"
	case opJobState:
		return "GetJobState"
	case opDo:
		return "Do"
	}
	if name := coord.Kind(o).Row().Name; name != "" {
		return name
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

	serrypb.CoordinationService_Do_FullMethodName: {Serry, opDo, (*decoder).serryDo},
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
		if m.op == opDo || coord.Kind(m.op).Row().Large {
			limit = max(limit, maxValueBytes+valueSlackBytes)
		}
		all[path] = rpc.Method{MaxRequestBytes: limit}
	}
	all[LeadMethod] = rpc.Method{MaxRequestBytes: maxLeadBytes}
	return all
}
