// Package coord is the coordination service as a value.
//
// A [Machine] takes one [Event] at one [Time] and returns the [Effect]s that must happen: replies
// to calls, changes to publish, notes to log. It holds tasks, barriers, keys, watches, alive sets
// and errors of a job, and nothing else: no I/O, no clock, no goroutine, no lock, no randomness
// and no map order. The same events at the same times give the same effects, byte for byte. So
// one goroutine owns a Machine (package server), a test can drive it by a script, and a journal
// of events is the whole truth about a job.
//
// Start with [Machine.Step], then read the events in event.go: one for each call that a client
// can make, and a few that only the owner sends: [Tick], [Cancel], [Lost], [Exited], [Departed],
// [Acknowledge], [OpenEpoch], [Stop], [Resume].
//
// A call that has to wait is kept as its [Req], a number the owner chose; its reply is an effect
// of some later Step. Every Req is answered exactly once, unless it is cancelled first or its
// caller is lost. For example, two tasks meet at a barrier:
//
//	m.Step(1, Barrier{Call: Call{Req: 7, Task: zero}, ID: "step-1"})  // no effect: the call waits
//	m.Step(2, Barrier{Call: Call{Req: 9, Task: one}, ID: "step-1"})   // Reply{7, Passed{0}}, Reply{9, Passed{0}}
//
// A job outlives its machine by a journal: a [Machine.Snapshot], then a record ([AppendRecord])
// of each event that [Machine.Journaled] asks for. A successor calls [Restore], steps the records
// ([ReadRecord]), and then Resume: callers that waited ask again, and find by their [RequestID],
// or as members of a barrier, what they had done.
//
// Who is alive is not decided here: detectors outside send their verdict as [Lost], and it counts
// only against the incarnation it names. Texts and codes that clients see are not made here
// either: replies carry the errors of package serry, and package wire gives them their words.
//
// What must hold after every step, and is tested after every event of random histories:
//
//   - a call is answered once, and never after it was cancelled
//   - an event that changes the bytes of a snapshot has a record, and the records alone lead to
//     the same snapshot
//   - a refused call leaves nothing behind
//   - memory is bounded by [Limits], whatever clients send
//   - a step costs what it touches, however many tasks, keys and calls there are
//
// The files: calls.go has the table of calls, event.go the events, effect.go what comes out.
// machine.go steps; request.go and waiter.go handle what all calls have in common. register.go,
// leave.go, task.go and epoch.go are about tasks; barrier.go, instance.go, members.go, devices.go
// and unsynced.go about barriers; kv.go and keywatch.go about keys; alive.go and watch.go about
// the live set and the state of tasks. record.go, snapshot.go, snapshot_waits.go, pool.go and
// coder.go are the journal's format. Read machine.go first.
package coord
