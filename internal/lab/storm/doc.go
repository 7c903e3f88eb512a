// Package storm runs jobs through outages, in virtual time: the real service on a journal that several
// servers share, real relays, and clients that follow the rules of the stock client to the letter (any
// error of the poll but CANCELLED, or a failed heartbeat, is death). What goes wrong when is drawn from a
// seed: servers crash before a write, after it, between two replies, in the midst of a snapshot or of a
// replay; they freeze, and thaw when another leads; leaderships are lost and handed over; links break
// and stall; relays and clients die, and come back.
//
// [Run] plays one schedule inside a testing/synctest bubble and returns a [Report]; [Report.Check], which
// may be called outside of it, says whether everything that the clients saw can be true, and whether
// anybody died who should not. The same seed draws the same schedule; which of two goroutines is first
// at one moment of virtual time is up to the Go scheduler, so a failure that hangs on that may take a few
// repetitions to show again.
//
// # Who owns what
//
// A world has sites, where servers run (bare ones that campaign as the schedule has it, or nodes of package
// node), hosts, each with a relay, and procs: stock clients behind a relay, or Go programs. All talk over a fabric of connections in memory. Each has a lock of its own, and none is held while another
// is called. Randomness comes in streams, one for each purpose, so that what one part draws does not
// change what another does.
package storm
