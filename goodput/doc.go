// Package goodput says how much of a job's time went into its work, what the rest was lost to, and which ranks hold the
// others up.
//
// An [Account] takes what the coordination service sees of a job: arrivals at barriers, which cost the program nothing, and
// steps, where the program reports some (see [ReadStep]). It has two parts. A [Pace] finds stragglers, ranks that come later
// than the others again and again, by medians, so that the one slow step of a thousand names no rank. A [Ledger] divides the
// time since the launch into productive time and lost time by cause; the parts add up to the whole.
//
// All of it is plain values without a clock: the caller says when something happened. An Account belongs to one goroutine at
// a time. Read pace.go first.
package goodput
