// Package transfer moves typed buffers between devices of different processes.
//
// An [Event] says how far work has come, and in the end how it ended; a [Promise] is the right to say it. A [Buffer] is a
// typed value in memory, with an event that tells when its content is valid. Programs hand buffers to work that has not
// begun: everything that reads a buffer waits for its definition, and memory stays allocated until the last reader is done.
//
// [New] makes the [Engine] of a member over its link layer (package link). [Engine.Transfer] begins sends and receives; each is
// half of a transfer, whose other half another process begins under the same [Key]. The halves may come in any order, and wait
// for each other until a deadline. Both end with the same verdict, that of the receiver: a send that ended well means that the
// data are there. How the two sides agree is told by transfer/internal/match.
//
// [Engine.Offer] lets other processes pull buffers when they want them, by a [Handle] that the program tells them;
// [Engine.Pull] is their side of it. [Engine.Reshard] moves an array from one sharding to another.
//
// # Events
//
// An event has two levels. It is recorded once the work that it stands for is in the queue of a device: other work of the
// device may then be enqueued behind it, without waiting for anything. It is complete once the work is done, and the
// processor may read its result. Work of the processor is recorded and complete at the same moment. An error takes the
// place of either level, and passes unchanged to everything that waits.
//
// A promise cannot be lost. It is satisfied once; a second call returns false and changes nothing. A promise that the
// program forgets is found by the garbage collector, and then its event fails with ErrAbandoned. A [Pool] counts both, so
// that a test fails when it leaves a promise open.
//
// # Memory
//
// Between hosts, bytes go through links. Data that lie in a [memory.Arena] are copied by a receiver of the same host itself:
// see [Options] for how to have received data there, too, and sharing in share.go for how it is done.
//
// Work that is about to read a buffer takes a usage hold ([Buffer.Use]), which it turns into a usage event once the work is
// enqueued. Foreign code that keeps a pointer takes an external hold ([Buffer.Share]). To hand the memory of a buffer to
// another owner is a donation ([Buffer.Donate]). [Buffer.Delete] never waits: the memory is given back when the last of the
// holds and events has ended.
//
// All methods may be called from any goroutine. No function of the program is called on the goroutine that satisfies a
// promise; they run on the goroutines of the pool.
//
// Read event.go and buffer.go first, then engine.go, peer.go, operation.go, share.go, staged.go and park.go.
package transfer
