// Package link moves bytes between the processes of a job.
//
// [Open] makes the link layer of a member, a [Net]: it listens, and publishes its addresses in the
// key-value store. [Net.Link] makes or finds the [Link] to one life of another task: a set of connections
// that both processes share for everything they do together. Both ends have proven that they know the
// secret of the job, or have shown certificates, and which life of which task they are. Processes of one host are connected by
// Unix sockets, all others by TCP; a job of one process needs neither.
//
// A message is data of one family (collectives or transfers), named by its [Header]. The sender calls
// [Link.Post], the receiver [Link.Expect] with the memory it goes to; whichever comes first waits for the
// other. Both return a [Ticket] and never block. Messages of up to 8 KiB are sent at once, and parked at the
// receiver within a window; larger ones leave when their memory is posted, straight out of the memory of one
// program into that of the other. All other frames are told to the [Handler] of their family.
//
// A link that is down stays down, and everything on it fails with one [LossError], whoever found it: the
// link itself, the service, or a launcher that saw the process end. A later [Net.Link] makes a new one, if
// that life of the peer is still there.
//
// Processes of one host also lend each other memory: [Net.NewSegment] makes a [Segment], which its owner writes and peers read
// (see [Link.Lend] and [Link.Borrow]).
//
// The pings of a link tell the peer how far this process has come with its streams ([Link.Carry], [Link.Standing]).
//
// [Net.Links] and [Net.Totals] have the figures of links. A process that runs is asked for them by other programs through
// the key-value store, as serry links does: see [AskKey] and [Report].
//
// All methods may be called from any goroutine. Nothing is shared between two Nets but what their options
// name, so that a test runs many in one process.
//
// Read header.go first, then link.go, bulk.go and net.go; segment.go and lend.go for memory that is lent.
package link
