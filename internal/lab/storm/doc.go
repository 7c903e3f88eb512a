// Package storm runs jobs through outages, in virtual time: the real service on a journal, real relays, and
// clients that follow the rules of the stock client to the letter (any error of the poll but CANCELLED, or
// a failed heartbeat, is death). The plan of a schedule, and with it what goes wrong when, is drawn from a
// seed:
//
//   - Servers crash before a write, after it, between two replies, in the midst of a snapshot or of a
//     replay. They freeze, and thaw when another leads. They lose the leadership without notice, hand it
//     over, and are asked to end, all of them at once too.
//   - Links break and stall, in one direction or both, for less time than a host may be silent, or for
//     more: then its tasks may be taken for dead, and nothing of them may happen twice. Connections take
//     part of a write, and push back.
//   - A write of the journal takes longer than a host may be silent, and no host may be taken for that.
//   - Relays and clients die and come back. Jobs are run several times.
//   - Hosts and servers are of two versions of the stream, and servers change theirs when they start again.
//   - In one fleet of ten the servers are upgraded to the next version of the journal, one after the other,
//     and some go back. A server of the present version leads as long as none of the next version has
//     written; then it must refuse the journal and campaign no more. One server of the next version is
//     always kept.
//
// In half of the schedules programs make every call of the service that a client can send. Reads of
// directories and watches of keys are judged key by key, together with all other calls on the keys. Fleets on
// etcd leave the rarer calls out: the judge of watches needs virtual time.
//
// One fleet in ten is large: ten relays, and dozens of tasks. One in twenty is quiet: its clients do next to
// nothing, the leader changes, a host dies for good, and the new leader must find its tasks dead in time, and no others. Some
// clients move to another relay meanwhile.
//
// The journal lies in memory, where several servers share it; in a real file of one server, on a disk that
// tears, fails, fills, forgets and lies about what it has written (package internal/lab/faultydisk); or in a real etcd, where requests are lost, late,
// doubled, refused for want of space, or the last of their process (package faultyetcd). etcd runs in real
// time, so these fleets do, too: they are few, small and quick.
//
// [Run] plays one schedule, inside a testing/synctest bubble unless it is one of etcd, and returns a [Report]; [Report.Check], which
// may be called outside of it, says whether everything that the clients saw can be true, and whether a
// task died that should not. The same seed draws the same schedule; which of two goroutines is first
// at one moment of virtual time is up to the Go scheduler, so a failure that hangs on that may take a few
// repetitions to show again.
//
// # Cliques
//
// With [Options.Cliques] a job has no relays: its tasks are Go programs that are linked with each other over the same
// fabric, and run collective operations in cliques (package collective). Tasks are killed, stopped, replaced and cut off from each
// other while the service fails over. Survivors form the next clique, take in processes that were started again, and
// sometimes tasks that were not in the first one. The judge (cliquejudge.go) compares every result with the right one, and asks
// of every error that a fault explains it. When the last fault is over all tasks must meet in one clique, and end.
//
// With [Options.Steps] the same tasks train in steps (collective.Step, cliquesteps.go). All members that hear how a step has ended hear the
// same, and no step is made twice or lost.
//
// # Freezes
//
// While a server is frozen it neither accepts, reads, writes, dials nor closes connections as its peers see
// it, and it begins no operation of its store: those are all the ways in which others learn of it. It may be
// frozen for longer than a host may be silent where another server leads meanwhile. What a bubble cannot do is
// stop the timers of one process: inside, time goes on, so detectors of a frozen server do not see their clock
// jump, and a snapshot that is being saved in a file goes on. Clocks that jump are real in real processes
// only: bench/soak stops leaders with SIGSTOP, and so do the tests of interop. Relays and clients are not
// frozen, but for those of cliques: to the service they look like hosts that are cut off.
//
// That a fleet finds mistakes is tested with mistakes: those of package internal/plant.
//
// # Who owns what
//
// A world has sites, where servers run (bare ones that campaign as the schedule has it, or nodes of package
// node), hosts, each with a relay, and procs: stock clients behind a relay, or Go programs. All talk over a
// fabric of connections in memory, and servers write to a medium. Each has a lock of its own, and none is
// held while another is called. Randomness comes in streams, one for each purpose, so that what one part
// draws does not change what another does.
package storm
