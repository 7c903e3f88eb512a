// Package relay is a proxy on a worker's own host: unmodified clients of both dialects dial it instead
// of the coordination service, and do not notice when that dies and is replaced.
//
// Start with [New], which makes a [Relay] that reaches the service by one stream (package
// wire/stream), and [Relay.Serve], which lets clients in. A program with a transport of its own uses
// [Relay.Handler]. A launcher says with [Relay.Exited] how the processes ended that it started; another
// program lets the relay watch them with [Relay.Watch].
//
// # What it does with a call
//
// The relay passes bodies on as they are; it reads from them only which task calls, and in which life
// (A-SIDE-1). A call goes upstream with that identity and, if it changes something, with a request id. The
// relay keeps it until the service has answered it, and sends it again whenever the connection broke
// before that (A-SIDE-2, 6). The first answer goes to the client, whatever it says. So an outage is, for the
// client, a call that takes longer. Some calls the relay answers itself:
//
//   - Heartbeats, at once, from the standing of the life, of which the service keeps the relay informed
//     (A-SIDE-3). Which lives it heard, the relay tells with the beats of the stream. A heartbeat that the
//     table cannot answer, or that would change something, is passed on.
//   - Watches of tasks: one upstream for each dialect and job, for all clients (A-SIDE-17).
//   - Error polls, when the client has left (A-SIDE-4); and every call that waits, when a newer epoch
//     has opened (A-SIDE-9) or the outage has lasted too long (A-SIDE-10).
//
// When the connection of a client closes, the relay shuts its virtual connections upstream, which is
// evidence against its lives by the rules for any connection (A-SIDE-12). If the client cannot have survived
// that, the relay also reports it, and repeats the report to every later leader until one has said that the
// life is not connected.
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
//
// Read handler.go first, which is the way of a call to the service, then upstream.go, the way back.
package relay
