// Package relay is a proxy on a worker's own host: unmodified clients of both dialects dial it instead
// of the coordination service, and do not notice when that dies and is replaced.
//
// Start with [New], which makes a [Relay] that reaches the service by one stream (package
// wire/stream), and [Relay.Serve], which lets clients in. Whoever has a transport of its own takes
// [Relay.Handler]. Whoever started the processes says with [Relay.Exited] how they ended, or has them
// watched with [Relay.Watch].
//
// # What it does with a call
//
// Bodies pass through as they are; the relay reads of them who calls (A-SIDE-1). A call goes upstream
// with that identity and, if it changes something, with a request id, is kept until the service has
// answered it, and is sent again whenever the connection was lost before that (A-SIDE-2, 6). The first
// answer goes to the client, whatever it says. So an outage is, for the client, a call that takes
// longer. Some calls the relay answers itself:
//
//   - Heartbeats, at once, from what the service keeps it informed of: the standing of every life that
//     came by it (A-SIDE-3). Which clients it heard goes upstream with the beats of the stream. What the
//     table does not know, and what would change something, is passed on.
//   - Watches of tasks: one upstream for each dialect and job, for all clients (A-SIDE-17).
//   - Error polls, when the client has left (A-SIDE-4); and every call that waits, when a newer epoch
//     has opened (A-SIDE-9) or the outage has lasted too long (A-SIDE-10).
//
// A client whose connection closes is shut upstream, which is evidence against it by the rules for any
// connection (A-SIDE-12). That is said again to every later leader until the service has understood it.
//
// # When the relay itself ends
//
// Nothing of a relay is kept on disk, and nothing survives it: its clients lose their connections, the
// error poll among them, and end, as they would if they had lost the service. The service finds them
// lost after its grace for closed connections, or within seconds by the silence of the stream. So a
// relay belongs to the same unit as its clients (one pod, one service unit, one serry run), is started
// before them and stopped after them (A-SIDE-11). A new relay on the same address serves clients that
// register with it; a client of the former one that is somehow alive is served, too: its calls name
// their life themselves (dialect XLA), or go upstream without one (dialect TF).
//
// # Who owns what
//
// One lock, Relay.mu, guards all tables. It is held while the stream takes calls, which neither blocks
// nor calls back; replies to clients are gathered under it and leave after it. There is no goroutine and
// no timer for a call or a client. Every table has a limit (see [Limits]); a call beyond it is answered
// RESOURCE_EXHAUSTED, but never a registration, a heartbeat, an error poll or a shutdown (C-LIM-1).
package relay
