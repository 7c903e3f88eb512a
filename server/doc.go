// Package server runs a coordination service: it owns one [coord.Machine] and connects it to the
// network, to time, to a journal, and to the people who look at it.
//
// Start with [New], which takes a [Config] and returns a running [Server]; [Server.Serve] then lets
// clients of all dialects in through a listener, and [Server.Stop] ends the service politely: every
// waiting call gets the service's own answer before connections close. [Server.Shutdown] ends the
// server alone, if another can go on with its journal. A [Server] may be used from any goroutine.
//
// # The way of a call
//
// A transport (package wire/front, or wire/stream for relays and serry's own clients) reads a call and
// gives it to the handler. The handler decodes it into an event and puts it on the owner's queue,
// with a note of where the reply goes. The owner takes what has come, steps the machine through it,
// and gathers the effects in a wave. When the wave is committed, the performer lets it happen: it
// publishes the tables below, hands each reply to its connection, and flushes each connection once.
// A call that must wait is an entry in a map, and costs no goroutine.
//
// # Who holds the machine
//
// The machine belongs to whichever goroutine has the owner's turn, a lock. There is no goroutine that
// all calls must pass through: the goroutine that read a call takes the turn for it, if no other has
// it, and so answers it without waking another. A goroutine that finds the turn taken leaves its
// calls in the queue; the one that has the turn looks there again before it stops. The owner's own
// goroutine takes the turn only when a deadline falls due or a command comes. See owner.go.
//
// Everything else is owned as follows. The performer belongs to the goroutine that commits. Handlers
// share nothing but atomic values with the owner: the present epoch, and for each task what is known
// of it and when it was last heard. Those are published only when they are durable.
//
// # Heartbeats
//
// Heartbeats of healthy tasks do not reach the owner. The handler finds the task in the published
// epoch, stores the time, and answers: one atomic store (C-HB-8). Only a heartbeat that is not a good
// one becomes an event.
//
// # Who is alive
//
// That is judged outside the machine, by package detect. The server tells its detector what it
// notices: which connections carry which lives and how they end, which hosts fall silent, which
// processes were seen to exit, and which tasks the scanner found without a heartbeat. What the
// detector concludes enters the machine as [coord.Lost] or [coord.Departed]. Only monotonic time is
// used, and time in which this process did not run counts against no task.
//
// # The journal
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
// # Limits
//
// Every table has a bound, and an answer when it is full. Callers fill the queue, the waiting calls of a
// connection, and the keys; a call beyond [Limits] or beyond the limits of the machine is answered
// RESOURCE_EXHAUSTED. A few calls never are, because their client would take the refusal for the end of
// the job: registrations, heartbeats, error polls and shutdowns (C-LIM-1). A store of limited size is kept
// from filling up (see room.go), and a peer that does not read its replies loses its connection.
//
// # Strangers
//
// A connection is a stranger until it carries a life: until a task of the job registers on it, or a task's
// present life makes a call on it. Calls of strangers are served like all others, because commands of people
// come from such connections, too. But all strangers together share one small budget of bytes in each place
// where requests are kept: in the HTTP/2 transport while they are read, in the queue, and among the calls that
// wait. There a process that is no part of the job can use up the budget of strangers, and hardly anything of
// what the tasks have.
//
// # What a fail-over keeps
//
// The journal has the state of the machine: the epoch with its tasks, barriers and their arrivals, keys, and
// the results of calls with a request id. A snapshot in it also has the settings, the newest notes and the
// first failure.
//
// Everything else belongs to one server, and the next one begins without it. Calls that wait are repeated by
// their callers. The times of the last heartbeats are replaced by a fresh budget for every life. The usual
// times of barriers, the account of the job, the log of barriers, the last calls of tasks and the numbers on
// the metrics page are for people, and are gathered anew. So nothing that a client relies on may depend on
// them.
//
// # Runs
//
// One server stands for many runs of a job, one after the other; the machine calls them epochs.
//
// # Where to read on
//
// Read owner.go first, then call.go and wave.go. journal.go and snapshot.go are the way to the disk, restore.go
// the way back. hosts.go is what relays say, evidence.go what processes are asked. docs/ARCHITECTURE.md follows
// a barrier through all of it.
package server
