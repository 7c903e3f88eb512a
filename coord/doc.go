// Package coord is the coordination service as a value.
//
// A [Machine] takes one [Event] at one [Time] and returns the [Effect]s that must happen: replies to
// calls, changes to publish, notes to log. It holds tasks, barriers, keys, watches, alive sets and
// errors of a job, and nothing else: no I/O, no clock, no goroutine, no lock, no randomness and no
// map order. The same events at the same times give the same effects, byte for byte. So one
// goroutine owns a Machine (package server), a test can drive it by a script, and a journal of
// events is the whole truth about a job.
//
// Start with [Machine.Step], then read the events in event.go: one for each thing a client can
// ask, and a few that only the owner sends: [Tick], [Cancel], [Lost], [Departed], [OpenEpoch],
// [Stop], [Resume].
//
// A call that has to wait is kept as its [Req], a number the owner chose; its reply is an effect of
// some later Step. Every Req is answered exactly once, unless it is cancelled first or its caller is
// lost.
//
// A job outlives its machine by a journal: a [Machine.Snapshot], then a record ([AppendRecord]) of each
// event that [Machine.Journaled] asks for. Whoever takes over calls [Restore], steps the records
// ([ReadRecord]), and then Resume: callers that waited ask again, and find by their [RequestID], or as
// members of a barrier, what they had done.
//
// Who is alive is not decided here: detectors outside send their verdict as [Lost], and it counts
// only against the incarnation it names. Texts and codes that clients see are not made here either:
// replies carry the errors of package serry, and package wire gives them their words.
package coord
