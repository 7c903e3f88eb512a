// Package stream is serry's own protocol between a host and the service: the calls of all local
// clients of a relay, or of one Go program, on a single connection, many in each write.
//
// Start with [Host], the end that calls: a relay or a client opens virtual connections on it, gives it
// calls, and gets the replies through its [Sink]. The other end is [Server], which serves connections that
// begin with the [Preface] and gives what they carry to a [Handler] as calls of virtual connections. The
// handler treats them as connections of the network.
//
// # Sessions
//
// A session is a host with a random number. It outlives its connections: when one breaks or falls
// silent, the host makes another, perhaps to another server, names its session, opens its virtual
// connections again, and sends every call that has no answer yet again, under its number. A server
// that still has the call drops the copy; one that answered it meanwhile, or is new, serves it again,
// which request ids make safe (C-REQ-2). Replies carry the term of the leader; a host drops those of
// lower terms than the highest it has seen (C-TERM-1). Terms are compared within one store: a leader
// of another store is that of a service that has begun anew, which the host follows.
//
// Both ends send beats (A-SIDE-18). A host that hears nothing for [ResumeAfter] makes a second connection
// and resumes there; a server that hears nothing of a session for [SilentAfter], connected or not, says
// so and forgets it (C-LOST-5). Whatever arrives counts as a beat, and so does output that a full
// socket takes: a large value on a slow network is not silence.
//
// # Frames
//
// After the preface, which both ends send, a connection carries frames: a header with type, lengths and
// checksums, the fields of that type (numbers as varints, ids as eight bytes, text and bytes with their
// length before them), and for calls and replies a body. docs/WIRE.md lists them, and says what a later
// version may add ([Version]).
//
// # What it promises
//
// Nothing blocks the caller of a method, and no call costs a goroutine, a timer or a channel. Frames
// that are queued together leave as one write; frames that came with one read are handled together,
// and one write answers them. A frame that is damaged or malformed ends its connection and
// nothing else. Memory is bounded on both sides: of calls without an answer by [HostConfig], of bodies
// on their way by what has really come, of output by closing the connection of a peer that does not
// read.
//
// Read messages.go first, then host.go and server.go.
package stream
