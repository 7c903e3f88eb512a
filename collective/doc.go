// Package collective lets devices of a job combine and exchange their data: sums over all of them, gathers, exchanges,
// barriers. It is made for jobs in which processes die: an operation ends, on every member, with the right data or with
// an error that says which rank was lost, and the survivors go on in a new clique without a restart.
//
// [New] makes the [Group] of a member over its link layer (package link). [Group.Clique] forms a clique: a list of
// devices that work together, each with a rank; [Group.Prepare] forms it in the background. A [Comm] is a clique seen from
// one rank; [Comm.Do] runs an operation on it, one of the types that implement [Op], and [Comm.Start] begins one. The rest of
// the package is about what happens when something goes wrong:
//
//   - A clique lives until one of its operations fails on one member. Then it is revoked: every member is told why, each
//     operation under way and every later one returns the same [Error], and no memory of the program is touched after
//     that. A clique that does not hold the lost process is not disturbed.
//   - Members that run different operations, or the same ones in another order, get ErrMismatch, which quotes both.
//   - Every wait has a deadline, and the error of a wait that was too long names the ranks that it waited for.
//
// An operation may have its result on some members and an error on others when one dies. [Step] runs a part of a program such that all
// members commit it or none does.
//
// What no operation sees is a section of the program that hangs between operations, as in the work of a device. [Group.Guard] watches over
// such a section: a process that does not end it in time says itself that it has failed, so that the others go on.
//
// A program with several cliques, or several programs with the same ones, acquire them for each run ([Requests]), which
// keeps runs from blocking each other. [ReplicaGroups] says which devices of a program work together.
//
// # How it works
//
// Package internal/schedule says which rank sends which blocks to whom. The engine (engine.go) plays such a schedule over
// links, in tiles, so that the network and the processor work at the same time. Messages are named by the stream of the
// clique, the number of the operation, and a digest of what the operation is: a member that runs something else does
// not expect the message and finds out. Members of one process exchange their messages in memory.
//
// Where all ranks are on one host, the operations that programs run most need no messages: each rank reads what the others give
// out of memory that their processes share (sharing.go, sharer.go, fused.go).
//
// Ranks of one process can also give each other values of any type ([Comm.Exchange]).
//
// Every rank keeps its last operations ([Comm.Records]). When a clique fails, the process that found it asks the others
// for theirs and merges them into a [Flight] (flight.go): it says which rank ran something else, did not come, or came last.
//
// [Put] and [Signal] act on a rank whose program takes no part: its process does the writing (onesided.go).
//
// The lock of a group is never held while a clique, a link or the service is waited for, and no lock of a link is held
// when a group is called. Locks are taken in the order of ranks.go, which go test -tags lockrank checks.
//
// All methods may be called from any goroutine. Nothing is shared between two groups.
//
// Read op.go and comm.go first, then engine.go, clique.go and meeting.go; sharer.go for shared memory.
package collective
