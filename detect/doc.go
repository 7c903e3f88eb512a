// Package detect decides which lives of tasks are lost: it turns what a server notices about
// connections, hosts, processes and heartbeats into the events [coord.Lost] and [coord.Departed].
//
// Start with [Detector]. The server tells it what happens, one method for each kind of observation:
// a connection carries a life or does not any more, a host fell silent, a witness saw a process exit.
// [Detector.Next] then returns the events for the machine. The server steps the machine with each,
// reports back what changed ([Detector.Changed]), and asks again until Next returns nil: a task that
// has just been declared lost may have departed by that.
//
// [Silence] is the second type. It decides whether a heartbeat is overdue, and whether the scan itself
// came so late that the server must have stood still.
//
// # Suspicion and evidence
//
// A wrong verdict ends a healthy job, and a missing one leaves it hanging until the heartbeat timeout.
// So each observation counts for exactly what it proves:
//
//   - A closed connection proves little. It counts if no other connection carries the life, the client
//     cannot live without it, and a grace has passed (C-LOST-4).
//   - A silent host counts for every life that came by it last, and that no connection carries (C-LOST-5).
//   - An exited process counts at once, unless a connection still carries the life: then the process
//     was probably another one.
//   - Silence counts after the heartbeat timeout (C-HB-6).
//   - Nothing counts for the time in which the server itself did not run (C-LOST-6).
//
// A life that is connected can be lost. A life that has left or failed can only depart: the machine
// must know when it is over for good, because that decides when the next epoch may open (C-EPOCH-3).
//
// # Promises
//
// The package is pure: no clock, no I/O, no goroutine, no lock. Time is handed in with each
// observation, and the same observations give the same events in the same order. testdata has
// transcripts. A [Detector] belongs to one goroutine at a time. Its tables hold the lives that a
// connection or a former leader vouches for, and are bounded by those.
//
// Read detector.go first, then link.go.
package detect
