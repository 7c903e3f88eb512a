// Package server runs a coordination service: it owns one [coord.Machine] and connects it to the
// network, to time, and to the people who look at it.
//
// Start with [New], which takes a [Config] and returns a running [Server]; [Server.Serve] then lets
// clients of both dialects in through a listener, and [Server.Stop] ends the service politely:
// every waiting call gets the service's own answer before connections close. [Server.Shutdown] ends the
// server alone, if another can go on with its journal.
//
// How it works. One goroutine, the owner, holds the machine; nobody else touches it. Transports
// (see package rpc) call the handler with each request; the handler decodes it and puts it on the
// owner's queue. The owner takes what has come, steps the machine through it, commits the batch,
// and only then lets its effects happen: replies, grouped so that each connection is flushed once a
// wave, and the tables below. A waiting call is an entry in a map, never a goroutine of ours.
//
// Heartbeats of healthy tasks do not pass through the owner: it publishes for each task what is
// known of it, and the handler answers from that with one atomic store (C-HB-8).
//
// Who is alive is judged here and not in the machine. The silence detector reads those atomic
// times and finds tasks that stopped beating (C-HB-6). The link detector counts, for each life of a
// task, the connections that carried it, and takes the end of the last one as evidence where a
// client cannot live without it (C-LOST-4). Both give every task a fresh budget when they find that
// they themselves were held up (C-LOST-6): a server that was stopped for an hour kills nobody. Only
// monotonic time is used. What they find enters the machine as [coord.Lost] or [coord.Departed].
//
// With a [Config].Journal the service outlives the server. What a wave changes is written down before
// anything of the wave leaves, by a goroutine of its own, and waves that gather meanwhile are one
// write. The next server on that journal goes on: the same service incarnation, the same keys, barriers
// and answers, deadlines extended by the outage, and a fresh budget for every task. A server that is no
// longer the leader, or cannot write, ends and says nothing more ([Server.Done], [Server.Err]).
//
// A journal that stands still holds up answers and nothing else. No goroutine that reads a connection
// waits for it, so heartbeats are read and answered; calls gather in the queue up to its limits; and the
// time of the machine stands still, so that no barrier times out because of it (see timeline.go).
//
// One server stands for many runs of a job, one after the other; the machine calls them epochs. A
// [Server] may be used from any goroutine.
package server
