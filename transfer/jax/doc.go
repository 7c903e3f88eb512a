// Package jax moves buffers to and from running JAX programs: it speaks the protocol of their transfer server,
// jax.experimental.transfer, in both directions.
//
// Start with [Listen], which gives a [Server]: a program offers buffers under a number, and JAX processes pull them.
// [Dial] gives a [Conn] to the transfer server of a JAX process: [Conn.Pull] fetches what that process offers
// (await_pull in Python). The protocol is symmetric, so a server can also pull from a process that dialled it, see
// [Server.Conns].
//
//	conn, err := jax.Dial(ctx, "10.0.0.7:8471", jax.Config{})
//	weights := make([]byte, 4*1024*1024)
//	err = conn.Pull(ctx, 7, []jax.Want{{Index: 0, Into: weights}})
//
// # What the protocol can and cannot do
//
// A connection is one control connection, which carries small messages, and several lanes, which carry nothing but
// bytes of buffers. Shapes and types do not travel: the consumer must know how many bytes a buffer has. Nor are there
// certificates, secrets, checksums or acknowledgements. A process that reaches the port can fetch an offer by guessing its
// number, so a server listens on one named address, and answers only the peers that [Config.Allow] names (TR-SEC-4).
// A producer hears that the bytes of a buffer have left, and not that they have arrived.
//
// # Promises
//
// No byte that a peer sends ends the process, or holds up another peer: each connection has goroutines of its own, one
// for each lane and direction, and every queue has a limit (TR-W-28, TR-W-26). A pull that has returned, with or
// without an error, never writes to the memory of its caller afterwards. A zero-byte buffer, which stops the reference
// or crashes it, is delivered without a message when serry pulls, and refused in words when JAX does (TR-W-30).
//
// All methods may be called at the same time. Read server.go first, then conn.go.
package jax
