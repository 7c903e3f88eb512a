package wire

import (
	"strconv"

	"google.golang.org/protobuf/proto"

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

// A request is the message of a call in the dialect of others.
type request[M any] interface {
	*M
	proto.Message
}

// reading makes the decode of a method of a function that reads the parsed message.
func reading[M any, P request[M]](read func(*decoder, P) (coord.Event, error)) func(*decoder, []byte) (coord.Event, error) {
	return func(d *decoder, body []byte) (coord.Event, error) {
		m := P(new(M))
		if err := d.parse(body, m); err != nil {
			return nil, err
		}
		return read(d, m)
	}
}

// listing is reading for a message with a list of tasks, whose length is checked before memory is spent on it.
func listing[M any, P request[M]](l list, read func(*decoder, P) (coord.Event, error)) func(*decoder, []byte) (coord.Event, error) {
	parse := reading(read)
	return func(d *decoder, body []byte) (coord.Event, error) {
		if err := d.checkList(l.len(body)); err != nil {
			return nil, err
		}
		return parse(d, body)
	}
}

var methods = map[string]method{
	xlapb.CoordinationService_RegisterTask_FullMethodName:         {XLA, opRegister, reading((*decoder).xlaRegister)},
	xlapb.CoordinationService_Heartbeat_FullMethodName:            {XLA, opHeartbeat, reading((*decoder).xlaHeartbeat)},
	xlapb.CoordinationService_PollForError_FullMethodName:         {XLA, opPoll, reading((*decoder).xlaPoll)},
	xlapb.CoordinationService_ReportErrorToService_FullMethodName: {XLA, opReport, reading((*decoder).xlaReport)},
	xlapb.CoordinationService_ShutdownTask_FullMethodName:         {XLA, opShutdown, reading((*decoder).xlaShutdown)},
	xlapb.CoordinationService_WatchTasks_FullMethodName:           {XLA, opWatch, reading((*decoder).xlaWatch)},
	xlapb.CoordinationService_InsertKeyValue_FullMethodName:       {XLA, opInsert, reading((*decoder).xlaInsert)},
	xlapb.CoordinationService_GetKeyValue_FullMethodName:          {XLA, opGet, reading(readGet[*xlapb.GetKeyValueRequest])},
	xlapb.CoordinationService_TryGetKeyValue_FullMethodName:       {XLA, opTryGet, reading(readTryGet[*xlapb.TryGetKeyValueRequest])},
	xlapb.CoordinationService_IncrementKeyValue_FullMethodName:    {XLA, opIncrement, reading(readIncrement[*xlapb.IncrementKeyValueRequest])},
	xlapb.CoordinationService_GetKeyValueDir_FullMethodName:       {XLA, opDir, reading(readDir[*xlapb.GetKeyValueDirRequest])},
	xlapb.CoordinationService_DeleteKeyValue_FullMethodName:       {XLA, opDelete, reading(readDelete[*xlapb.DeleteKeyValueRequest])},
	xlapb.CoordinationService_Barrier_FullMethodName:              {XLA, opBarrier, listing(list{field: 4, numbers: true}, (*decoder).xlaBarrier)},
	xlapb.CoordinationService_CancelBarrier_FullMethodName:        {XLA, opCancel, reading((*decoder).xlaCancel)},
	xlapb.CoordinationService_GetAliveTasks_FullMethodName:        {XLA, opAlive, (*decoder).xlaAlive},

	tfpb.CoordinationService_RegisterTask_FullMethodName:         {TF, opRegister, reading((*decoder).tfRegister)},
	tfpb.CoordinationService_Heartbeat_FullMethodName:            {TF, opHeartbeat, reading((*decoder).tfHeartbeat)},
	tfpb.CoordinationService_PollForError_FullMethodName:         {TF, opPoll, reading((*decoder).tfPoll)},
	tfpb.CoordinationService_WaitForAllTasks_FullMethodName:      {TF, opWaitAll, reading((*decoder).tfWaitAll)},
	tfpb.CoordinationService_ShutdownTask_FullMethodName:         {TF, opShutdown, reading((*decoder).tfShutdown)},
	tfpb.CoordinationService_ResetTask_FullMethodName:            {TF, opReset, reading((*decoder).tfReset)},
	tfpb.CoordinationService_ReportErrorToTask_FullMethodName:    {TF, opReportToTask, (*decoder).tfReportToTask},
	tfpb.CoordinationService_ReportErrorToService_FullMethodName: {TF, opReport, reading((*decoder).tfReport)},
	tfpb.CoordinationService_GetTaskState_FullMethodName:         {TF, opTaskState, listing(list{field: 1}, (*decoder).tfTaskState)},
	tfpb.CoordinationService_GetJobState_FullMethodName:          {TF, opJobState, reading((*decoder).tfJobState)},
	tfpb.CoordinationService_WatchJobState_FullMethodName:        {TF, opWatch, reading((*decoder).tfWatch)},
	tfpb.CoordinationService_InsertKeyValue_FullMethodName:       {TF, opInsert, reading((*decoder).tfInsert)},
	tfpb.CoordinationService_GetKeyValue_FullMethodName:          {TF, opGet, reading(readGet[*tfpb.GetKeyValueRequest])},
	tfpb.CoordinationService_TryGetKeyValue_FullMethodName:       {TF, opTryGet, reading(readTryGet[*tfpb.TryGetKeyValueRequest])},
	tfpb.CoordinationService_IncrementKeyValue_FullMethodName:    {TF, opIncrement, reading(readIncrement[*tfpb.IncrementKeyValueRequest])},
	tfpb.CoordinationService_GetKeyValueDir_FullMethodName:       {TF, opDir, reading(readDir[*tfpb.GetKeyValueDirRequest])},
	tfpb.CoordinationService_DeleteKeyValue_FullMethodName:       {TF, opDelete, reading(readDelete[*tfpb.DeleteKeyValueRequest])},
	tfpb.CoordinationService_Barrier_FullMethodName:              {TF, opBarrier, listing(list{field: 3}, (*decoder).tfBarrier)},
	tfpb.CoordinationService_CancelBarrier_FullMethodName:        {TF, opCancel, reading((*decoder).tfCancel)},
	tfpb.CoordinationService_GetAliveTasks_FullMethodName:        {TF, opAlive, listing(list{field: 2}, (*decoder).tfAlive)},

	serrypb.CoordinationService_Do_FullMethodName: {Serry, opDo, (*decoder).serryDo},
}

// A methodKey is what a client knows of a method.
type methodKey struct {
	dialect Dialect
	op      Op
}

// paths has the path of each method in [methods].
var paths = func() map[methodKey]string {
	all := make(map[methodKey]string, len(methods))
	for path, m := range methods {
		all[methodKey{m.dialect, m.op}] = path
	}
	return all
}()

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
	evidenceMethods(all)
	return all
}
