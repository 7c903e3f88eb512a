package wire

import (
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
)

// An answerKey is what an answer is looked up by. The same cause is told differently to different
// calls (C-WIRE-17): a death is INTERNAL at a barrier, UNAVAILABLE in a poll and ABORTED in a
// heartbeat.
type answerKey struct {
	op    Op
	cause error // a sentinel of package serry, or a variant of one
}

// An answer is what a client sees.
type answer struct {
	code    codes.Code
	payload payload
	phrase  string // part of text that clients match on, and by which errors are known again
	text    string // with facts in braces; see facts.print
}

// A payload is what the trailer of an answer carries.
type payload int8

const (
	noPayload      payload = iota // no trailer at all
	emptyPayload                  // CoordinationServiceError without a source
	taskPayload                   // CoordinationServiceError with its source
	reportPayload                 // the same, and the source said it itself
	barrierPayload                // BarrierError, and emptyPayload
	servicePayload                // ServiceMismatchError, and emptyPayload
)

// A variant is a cause that is told in several ways, depending on its facts.
type variant struct {
	base error // the sentinel
	name string
}

func (v *variant) Error() string { return v.name }
func (v *variant) Unwrap() error { return v.base }

var (
	oldEpoch         = &variant{serry.ErrMismatch, "dialect TF"}
	seenDead         = &variant{serry.ErrTaskDead, "with evidence"}
	severalSilent    = &variant{serry.ErrTaskDead, "several, all silent"}
	severalDead      = &variant{serry.ErrTaskDead, "several"}
	timeoutEmpty     = &variant{serry.ErrTimeout, "nobody arrived"}
	counterRestart   = &variant{serry.ErrCounter, "one of them is 0"}
	memberLeft       = &variant{serry.ErrMemberLost, "it left"}
	withdrawnFailed  = &variant{serry.ErrWithdrawn, "it failed"}
	withdrawnLeft    = &variant{serry.ErrWithdrawn, "it left"}
	serviceNotReady  = &variant{serry.ErrStopped, "not started yet"}
	outOfReach       = &variant{serry.ErrStopped, "out of reach"}
	registeredBefore = &variant{serry.ErrAlreadyFailed, "in registering, told to others"}
)

// answers says what a client of either dialect sees, by call and cause. Texts are ours around the
// words that clients look for. A call without a row of its own for a cause has that of opTask for
// the failure of a task, that of opBarrier for a failed barrier, or else that of opAny.
var answers = map[answerKey]answer{
	// C-INC-1, 2, 3, 4, C-EPOCH-5, C-LIM-1, C-VER-5: any call.
	{opAny, serry.ErrMismatch}:    {codes.Internal, servicePayload, "wrong service incarnation", "wrong service incarnation: requested {requested}, currently {current}"},
	{opAny, oldEpoch}:             {codes.Aborted, emptyPayload, "earlier epoch", "The caller belongs to an earlier epoch of the service: {requested}, currently {current}"},
	{opAny, serry.ErrStale}:       {codes.Aborted, emptyPayload, "replaced by a newer incarnation", "The caller was replaced by a newer incarnation of the same task."},
	{opAny, serry.ErrInvalid}:     {codes.InvalidArgument, emptyPayload, "Invalid request", "Invalid request: {what}"},
	{opAny, serry.ErrLimit}:       {codes.ResourceExhausted, noPayload, "Limit reached", "Limit reached: {limit} is {max}"},
	{opAny, serry.ErrUnknownTask}: {codes.InvalidArgument, emptyPayload, "Unexpected task", "Unexpected task or job, it is not in the cluster."},
	{opAny, serry.ErrLeft}:        {codes.FailedPrecondition, emptyPayload, "already disconnected", "The task is already disconnected."},
	{opAny, serry.ErrStopped}:     {codes.Internal, noPayload, "has been shut down", "Coordination service has been shut down."},
	{opAny, serviceNotReady}:      {codes.Internal, emptyPayload, "is not enabled", "Coordination service is not enabled."},
	{opAny, outOfReach}:           {codes.Unavailable, emptyPayload, "is out of reach", "Coordination service is out of reach, and has been for too long."}, // A-SIDE-10
	{opAny, errNoMethod}:          {codes.Unimplemented, noPayload, "No such method", "No such method."},
	{opReportToTask, errNotATask}: {codes.Internal, emptyPayload, "is uninitialized or has already shutdown", "The agent is uninitialized or has already shutdown: this is the service."}, // C-ERR-5

	// C-REG-2, 3, 10, 14.
	{opRegister, serry.ErrStopped}:       {codes.Internal, emptyPayload, "RegisterTask()", "Coordination service has stopped. RegisterTask() of task {caller} failed."},
	{opRegister, serry.ErrUnknownTask}:   {codes.InvalidArgument, emptyPayload, "Unexpected task registered", "Unexpected task registered: {caller} is not in the cluster."},
	{opRegister, serry.ErrSuperseded}:    {codes.AlreadyExists, emptyPayload, "request from a newer incarnation", "Task {caller} no longer registers by this call: a request from a newer incarnation took its place."},
	{opRegister, serry.ErrAlreadyFailed}: {codes.Aborted, taskPayload, "already in error", "Task {task} cannot register, it is already in error: {reason}"},
	{opTask, registeredBefore}:           {codes.Aborted, taskPayload, "already in error", "Task {task} cannot register, it is already in error: {reason}"},

	// C-HB-1, 2, 3.
	{opHeartbeat, serry.ErrStopped}:       {codes.Internal, emptyPayload, "RecordHeartbeat()", "Coordination service has stopped. RecordHeartbeat() of task {caller} failed."},
	{opHeartbeat, serry.ErrUnknownTask}:   {codes.InvalidArgument, emptyPayload, "Unexpected heartbeat request from task", "Unexpected heartbeat request from task {caller}, it is not in the cluster."},
	{opHeartbeat, serry.ErrAlreadyFailed}: {codes.Aborted, emptyPayload, "already-in-error task", "Heartbeat of already-in-error task {task}: {reason}"},
	{opHeartbeat, serry.ErrNotRegistered}: {codes.InvalidArgument, emptyPayload, "must be registered before sending heartbeat", "Task {caller} must be registered before sending heartbeat messages."},

	// C-SHUT-2, 9, C-RST-1.
	{opShutdown, serry.ErrStopped}:     {codes.Internal, emptyPayload, "ShutdownTaskAsync() failed", "Coordination service has stopped. ShutdownTaskAsync() failed for task {caller}."},
	{opShutdown, serry.ErrUnknownTask}: {codes.InvalidArgument, emptyPayload, "Unexpected disconnect request", "Unexpected disconnect request of task {caller}, it is not in the cluster."},
	{opShutdown, serry.ErrNotMember}:   {codes.InvalidArgument, emptyPayload, "is not awaited", "Task {caller} is not awaited at the shutdown barrier."},
	{opReset, serry.ErrStopped}:        {codes.Internal, emptyPayload, "DisconnectTask()", "Coordination service has stopped. DisconnectTask() failed for task {caller}."},
	{opReset, serry.ErrUnknownTask}:    {codes.InvalidArgument, emptyPayload, "Unexpected disconnect request", "Unexpected disconnect request of task {caller}, it is not in the cluster."},

	// C-ERR-2.
	{opReport, serry.ErrStopped}:      {codes.Internal, emptyPayload, "ReportTaskError() failed", "Coordination service has stopped. ReportTaskError() failed for task {caller}."},
	{opReport, serry.ErrUnknownTask}:  {codes.InvalidArgument, emptyPayload, "Unexpected request from task", "Unexpected request from task {caller}, it is not in the cluster."},
	{opReport, serry.ErrNotConnected}: {codes.FailedPrecondition, emptyPayload, "not connected or already has an error", "Task {caller} is not connected or already has an error."},

	// C-POLL-2, 3, 5, 7, 8, 11. The poll of a task that is told to be silent ends in CANCELLED.
	{opPoll, serry.ErrStopped}:       {codes.Internal, emptyPayload, "after coordination service has shut down", "Task {caller} polled for errors after coordination service has shut down."},
	{opPoll, serry.ErrUnknownTask}:   {codes.InvalidArgument, emptyPayload, "not in the cluster", "Task {caller} polled for errors but is not in the cluster."},
	{opPoll, serry.ErrNotRegistered}: {codes.FailedPrecondition, emptyPayload, "has not been registered or has disconnected", "Task {caller} polled for errors but has not been registered or has disconnected."},
	{opPoll, serry.ErrAlreadyFailed}: {codes.FailedPrecondition, emptyPayload, "already in error state", "Task {task} polled for errors but is already in error state: {reason}"},
	{opPoll, serry.ErrSuperseded}:    {codes.Canceled, emptyPayload, "new request from the same task", "The poll for errors ended for a new request from the same task {caller}."},
	{opPoll, serry.ErrLeft}:          {codes.Canceled, emptyPayload, "task has disconnected", "The poll for errors ended, the task has disconnected."},
	{opPoll, serry.ErrStopping}:      {codes.Canceled, noPayload, "Coordination service is shutting down", "Coordination service is shutting down."},
	{opPoll, serry.ErrCancelled}:     {codes.Canceled, emptyPayload, "delivered by heartbeat", "Errors are delivered by heartbeat, not by poll."},

	// Failures of tasks: C-HB-5, 6, C-LOST-1, C-ERR-1, C-REG-11, 14, C-PROP-3, C-SHUT-5.
	{opTask, serry.ErrTaskDead}:           {codes.Unavailable, emptyPayload, "heartbeat timeout", "Task {task} heartbeat timeout"},
	{opTask, seenDead}:                    {codes.Unavailable, emptyPayload, "lost before its heartbeat timeout", "Task {task} lost before its heartbeat timeout: {evidence}"},
	{opTask, severalSilent}:               {codes.Unavailable, emptyPayload, "stopped sending heartbeats", "The following tasks are unhealthy (stopped sending heartbeats):{lost}"},
	{opTask, severalDead}:                 {codes.Unavailable, emptyPayload, "The following tasks are unhealthy:", "The following tasks are unhealthy:{lost}"},
	{opTask, serry.ErrReported}:           {codes.Unknown, reportPayload, "", "{text}"}, // the code is the task's own
	{opTask, serry.ErrRestarted}:          {codes.Aborted, taskPayload, "different incarnation", "Task {task} registered with a different incarnation: {now} in place of {was}. It has most likely restarted."},
	{opTask, serry.ErrWrongBeat}:          {codes.Aborted, emptyPayload, "Incarnation ID mismatch", "Incarnation ID mismatch: expecting {was} but got {now}, in a heartbeat of task {task}."},
	{opTask, serry.ErrPeerFailed}:         {codes.Internal, emptyPayload, "unable to inform clients", "A task failed, and the service was unable to inform clients by poll: {reason}"},
	{opTask, serry.ErrRegistrationFailed}: {codes.Internal, emptyPayload, "Cluster registration failed", "Cluster registration failed: {reason}"},
	{opTask, serry.ErrShutdownFailed}:     {codes.Internal, emptyPayload, "Shutdown barrier has failed.", "Shutdown barrier has failed. {reason}"},

	// C-BAR-3, 5, 6, 9, 10, 11, 15, 16, 18, 20, 23, C-CAN-4.
	{opBarrier, serry.ErrStopped}:      {codes.Internal, barrierPayload, "requested after coordination service has shut down", "Barrier {barrier} was requested after coordination service has shut down."},
	{opBarrier, serry.ErrUnknownTask}:  {codes.InvalidArgument, barrierPayload, "not in the cluster", "Task {task} is not in the cluster. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrReservedName}: {codes.InvalidArgument, barrierPayload, "used by the service itself", "Barrier {barrier} is used by the service itself."},
	{opBarrier, serry.ErrMemberFailed}: {codes.Internal, barrierPayload, "already in error before the barrier was called", "Task {task} is already in error before the barrier was called. Barrier Id: {barrier}. Task error: {reason}"},
	{opBarrier, serry.ErrSuperseded}:   {codes.Canceled, noPayload, "more recent barrier call", "Task {task} made a more recent barrier call. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrCounter}:      {codes.Internal, barrierPayload, "the service thinks it is the", "Task {task} called instance {sent} of barrier {barrier}, but the service thinks it is the {counter}-th instance. The task is too quick / slow."},
	{opBarrier, counterRestart}:        {codes.Internal, barrierPayload, "restarted", "Task {task} called instance {sent} of barrier {barrier}, but the service thinks it is the {counter}-th instance. The task or the service has likely restarted."},
	{opBarrier, serry.ErrNoMembers}:    {codes.InvalidArgument, barrierPayload, "No tasks were specified", "No tasks were specified by task {task} for a barrier that is not one of all tasks. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrMembers}:      {codes.InvalidArgument, barrierPayload, "Conflicting tasks specified", "Conflicting tasks specified by task {task} for one barrier. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrNotMember}:    {codes.InvalidArgument, barrierPayload, "non-participating task", "A non-participating task ({task}) called the barrier. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrTimeout}:      {codes.DeadlineExceeded, barrierPayload, "Barrier timed out", "Barrier timed out. Id: {barrier}. Arrived: {arrived}/{members}, first task {first}. Missing: {missing}"},
	{opBarrier, timeoutEmpty}:          {codes.DeadlineExceeded, barrierPayload, "Barrier timed out", "Barrier timed out. Id: {barrier}. Arrived: {arrived}/{members}. Missing: {missing}"},
	{opBarrier, serry.ErrMemberLost}:   {codes.Internal, barrierPayload, "Barrier failed because", "Barrier failed because of task {task}: task is set to ERROR: {reason}. Barrier Id: {barrier}"},
	{opBarrier, memberLeft}:            {codes.Internal, barrierPayload, "task disconnected", "Barrier failed because of task {task}: task disconnected. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrWithdrawn}:    {codes.Canceled, barrierPayload, "silently connected again", "Stale barrier invocation is cancelled: task {task} silently connected again. Barrier Id: {barrier}"},
	{opBarrier, withdrawnFailed}:       {codes.Canceled, barrierPayload, "Stale barrier invocation is cancelled", "Stale barrier invocation is cancelled for task {task}: task is set to ERROR: {reason}. Barrier Id: {barrier}"},
	{opBarrier, withdrawnLeft}:         {codes.Canceled, barrierPayload, "task disconnected", "Stale barrier invocation is cancelled for task {task}: task disconnected. Barrier Id: {barrier}"},
	{opBarrier, serry.ErrCancelled}:    {codes.Canceled, barrierPayload, "is cancelled by task", "Barrier {barrier} is cancelled by task {task}."},
	{opBarrier, serry.ErrStopping}:     {codes.Aborted, barrierPayload, "service is shutting down", "Barrier {barrier} failed because service is shutting down."},

	// C-CAN-1, 2, 3.
	{opCancel, serry.ErrStopped}:       {codes.Internal, barrierPayload, "CancelBarrier() for", "Coordination service has stopped. CancelBarrier() for {barrier} failed."},
	{opCancel, serry.ErrCounter}:       {codes.FailedPrecondition, barrierPayload, "likely due to a restart", "Task {task} cannot cancel instance {sent} of barrier {barrier}, likely due to a restart."},
	{opCancel, counterRestart}:         {codes.FailedPrecondition, barrierPayload, "likely due to a restart", "Task {task} cannot cancel instance {sent} of barrier {barrier}, likely due to a restart."},
	{opCancel, serry.ErrAlreadyPassed}: {codes.FailedPrecondition, barrierPayload, "already been passed", "Barrier {barrier} has already been passed."},

	// C-KV-3, 5, 6, 11.
	{opAny, serry.ErrExists}:    {codes.AlreadyExists, noPayload, "already exists", "key {key} already exists."},
	{opAny, serry.ErrNotFound}:  {codes.NotFound, emptyPayload, "Config key", "Config key {key} not found."},
	{opAny, serry.ErrNotNumber}: {codes.FailedPrecondition, emptyPayload, "Failed to parse value", "Failed to parse value of key {key} as a number that can be incremented: {value}"},
	{opGet, serry.ErrStopping}:  {codes.Canceled, noPayload, "KeyValueStore destructed", "KeyValueStore destructed."},

	// C-ALIVE-1, 6, C-WAT-1.
	{opAlive, serry.ErrNotMember}: {codes.InvalidArgument, noPayload, "is not one of the tasks specified", "Task {caller} is not one of the tasks specified."},
	{opAlive, serry.ErrStopping}:  {codes.Canceled, noPayload, "ended while alive tasks were awaited", "Coordination service ended while alive tasks were awaited."},
	{opWaitAll, serry.ErrStopped}: {codes.Internal, emptyPayload, "WaitForAllTasks() failed", "Coordination service has stopped. WaitForAllTasks() failed for task {caller}."},
}
