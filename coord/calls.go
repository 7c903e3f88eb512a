package coord

// A Kind says which event an event is. Its number is the first byte of the event's record in a
// journal, so a number is never used for another event.
type Kind uint8

// The kinds of events. A new one gets the next number, whether a journal may hold it or not: a
// call that only reads today may change state tomorrow. First come those that a journal may hold,
// in the order in which they came into the format, then the calls that only read.
const (
	KindRegisterTask      Kind = 1
	KindHeartbeat         Kind = 2
	KindShutdownTask      Kind = 3
	KindResetTask         Kind = 4
	KindReportError       Kind = 5
	KindPollForError      Kind = 6
	KindInsertKeyValue    Kind = 7
	KindIncrementKeyValue Kind = 8
	KindDeleteKeyValue    Kind = 9
	KindSwapKeyValue      Kind = 10
	KindBarrier           Kind = 11
	KindCancelBarrier     Kind = 12
	KindGetAliveTasks     Kind = 13
	kindOldSuspect        Kind = 14 // of version 1, as are the other old ones; see [Lost]
	KindWaitForAllTasks   Kind = 15
	kindTick              Kind = 16
	kindCancel            Kind = 17
	kindOldLost           Kind = 18
	kindExited            Kind = 19
	kindOldDeparted       Kind = 20
	kindAcknowledge       Kind = 21
	kindOpenEpoch         Kind = 22
	kindStop              Kind = 23
	kindResume            Kind = 24
	KindSuspect           Kind = 25
	kindLost              Kind = 26
	kindDeparted          Kind = 27

	KindWatchTasks     Kind = 28
	KindGetTaskState   Kind = 29
	KindGetKeyValue    Kind = 30
	KindTryGetKeyValue Kind = 31
	KindGetKeyValueDir Kind = 32
	KindWatchKeys      Kind = 33
	KindListKeys       Kind = 34
	KindGetStatus      Kind = 35

	// Kinds is one more than the last kind.
	Kinds = 36
)

// A Row is what all parts must know of a call without knowing its meaning. The machine, the
// journal, the dialects, the relay and the server decide by the row, so that they cannot
// disagree. Who may make a call is a policy of the server.
//
// For example, the row of Barrier says: it changes state, so it has a record; it must take effect
// once, so a relay gives it a request id; it waits at a barrier, so limits on waiting calls count
// it and a person may ask who is missing; it acts for a task, so its caller must be that task; it
// is not vital, so a full server may refuse it.
type Row struct {
	Name string // of the call, as in the events of this package

	// Changes: the call can change state, so it has a record in the journal.
	Changes bool

	// Once: the call must not take effect twice. It is sent with a request id, and the machine
	// remembers it by that (C-REQ-1). Heartbeats and polls change state, too, but to hear one
	// twice does no harm.
	Once bool

	// Vital: the call is never refused for a limit (C-LIM-1). A client that cannot make it fails,
	// and takes the job with it.
	Vital bool

	// Waits: the answer may come much later than the call. Meets: it comes when other tasks have
	// arrived at a barrier, so that a person wants to know which are missing.
	Waits, Meets bool

	// ForTask: the call acts for the task that it names, and means nothing without one.
	ForTask bool

	// Large: the request carries a value, so that it may be as large as a value (C-LIM-2).
	Large bool

	Keeps Keeps
}

// Limited says whether limits on waiting calls count the call.
func (r Row) Limited() bool { return r.Waits && !r.Vital }

// Keeps is how much a call leaves in the machine and its journal, for a store of limited size.
type Keeps uint8

// What calls leave. A server that runs out of room refuses those that keep values first
// (C-LIM-1).
const (
	KeepsLittle Keeps = iota // nothing, or nothing that could amount to much
	KeepsState               // the state of a barrier, an alive set or an error
	KeepsValue               // a key and its value, until they are deleted
)

// rows has one row for each call of a client. Events of the owner have none.
var rows = [Kinds]Row{
	// Membership. These are what keeps a client alive, so most of them are vital.
	KindRegisterTask: {Name: "RegisterTask", Changes: true, Once: true, Vital: true, Waits: true, Meets: true, ForTask: true},
	KindHeartbeat:    {Name: "Heartbeat", Changes: true, Vital: true, ForTask: true},
	KindShutdownTask: {Name: "ShutdownTask", Changes: true, Once: true, Vital: true, Waits: true, Meets: true, ForTask: true},
	KindResetTask:    {Name: "ResetTask", Changes: true, Once: true, ForTask: true},
	KindReportError:  {Name: "ReportError", Changes: true, Once: true, ForTask: true, Keeps: KeepsState},
	KindPollForError: {Name: "PollForError", Changes: true, Vital: true, Waits: true, ForTask: true},
	KindSuspect:      {Name: "Suspect", Changes: true, Once: true},

	// Questions about the job.
	KindWatchTasks:   {Name: "WatchTasks", Waits: true},
	KindGetTaskState: {Name: "GetTaskState"},
	KindGetStatus:    {Name: "GetStatus"},

	// Keys. They need no task, and values are what fills a store.
	KindInsertKeyValue:    {Name: "InsertKeyValue", Changes: true, Once: true, Large: true, Keeps: KeepsValue},
	KindSwapKeyValue:      {Name: "SwapKeyValue", Changes: true, Once: true, Large: true, Keeps: KeepsValue},
	KindIncrementKeyValue: {Name: "IncrementKeyValue", Changes: true, Once: true, Keeps: KeepsValue},
	KindDeleteKeyValue:    {Name: "DeleteKeyValue", Changes: true, Once: true},
	KindGetKeyValue:       {Name: "GetKeyValue", Waits: true},
	KindTryGetKeyValue:    {Name: "TryGetKeyValue"},
	KindGetKeyValueDir:    {Name: "GetKeyValueDir"},
	KindListKeys:          {Name: "ListKeys"},
	KindWatchKeys:         {Name: "WatchKeys", Waits: true},

	// Meetings of tasks.
	KindBarrier:         {Name: "Barrier", Changes: true, Once: true, Waits: true, Meets: true, ForTask: true, Keeps: KeepsState},
	KindCancelBarrier:   {Name: "CancelBarrier", Changes: true, Once: true, ForTask: true, Keeps: KeepsState},
	KindWaitForAllTasks: {Name: "WaitForAllTasks", Changes: true, Once: true, Waits: true, Meets: true, ForTask: true, Keeps: KeepsState},
	KindGetAliveTasks:   {Name: "GetAliveTasks", Changes: true, Once: true, Waits: true, ForTask: true, Keeps: KeepsState},
}

// Row returns the row of a call. For kinds that are no calls it is the zero Row: such an event
// changes nothing by a client's will, is not vital and never waits.
func (k Kind) Row() Row {
	if k < Kinds {
		return rows[k]
	}
	return Row{}
}

// KindOf returns the kind of an event.
func KindOf(ev Event) Kind { return ev.kind() }

// A clientCall is an event that a client sends. It has a row.
type clientCall interface {
	Event
	common() Call

	// serve does what the call asks for, and returns the answer. If it returns neither result nor
	// error, the call waits, or has been answered on the way. The call has passed the checks that
	// all calls have in common, see [Machine.serve].
	serve(m *Machine, w *waiter) (Result, error)
}

func (c Call) common() Call { return c }

// CallOf returns the part of a client's call that all calls have; ok is false for other events.
func CallOf(ev Event) (c Call, ok bool) {
	if e, ok := ev.(clientCall); ok {
		return e.common(), true
	}
	return Call{}, false
}

func (RegisterTask) kind() Kind      { return KindRegisterTask }
func (Heartbeat) kind() Kind         { return KindHeartbeat }
func (ShutdownTask) kind() Kind      { return KindShutdownTask }
func (ResetTask) kind() Kind         { return KindResetTask }
func (ReportError) kind() Kind       { return KindReportError }
func (PollForError) kind() Kind      { return KindPollForError }
func (WatchTasks) kind() Kind        { return KindWatchTasks }
func (GetTaskState) kind() Kind      { return KindGetTaskState }
func (InsertKeyValue) kind() Kind    { return KindInsertKeyValue }
func (GetKeyValue) kind() Kind       { return KindGetKeyValue }
func (TryGetKeyValue) kind() Kind    { return KindTryGetKeyValue }
func (IncrementKeyValue) kind() Kind { return KindIncrementKeyValue }
func (GetKeyValueDir) kind() Kind    { return KindGetKeyValueDir }
func (DeleteKeyValue) kind() Kind    { return KindDeleteKeyValue }
func (SwapKeyValue) kind() Kind      { return KindSwapKeyValue }
func (WatchKeys) kind() Kind         { return KindWatchKeys }
func (ListKeys) kind() Kind          { return KindListKeys }
func (Barrier) kind() Kind           { return KindBarrier }
func (CancelBarrier) kind() Kind     { return KindCancelBarrier }
func (GetAliveTasks) kind() Kind     { return KindGetAliveTasks }
func (Suspect) kind() Kind           { return KindSuspect }
func (GetStatus) kind() Kind         { return KindGetStatus }
func (WaitForAllTasks) kind() Kind   { return KindWaitForAllTasks }
func (Tick) kind() Kind              { return kindTick }
func (Cancel) kind() Kind            { return kindCancel }
func (Lost) kind() Kind              { return kindLost }
func (Exited) kind() Kind            { return kindExited }
func (Departed) kind() Kind          { return kindDeparted }
func (Acknowledge) kind() Kind       { return kindAcknowledge }
func (OpenEpoch) kind() Kind         { return kindOpenEpoch }
func (Stop) kind() Kind              { return kindStop }
func (Resume) kind() Kind            { return kindResume }
