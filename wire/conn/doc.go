// Package conn is the connection layer of serry: what every protocol does with sockets, whatever it
// says over them.
//
// An [Acceptor] accepts connections on listeners, makes them secure, and hands each one to the
// [Protocol] that it speaks: any number of protocols share a port. [Dial] is the other side. Both make
// a [Conn], which reads a socket with buffers from a pool ([Conn.Next]). A [Pipe] writes to it without
// blocking the goroutine that queues output. A [Budget] bounds the memory that messages take before
// they are complete. [Loop] connects two parts of one process.
//
// The package knows no protocol, and imports nothing of package wire. It works the same over TCP, TLS,
// Unix sockets and networks in memory ([Partial]), so that its users run in a testing/synctest bubble.
//
// Read conn.go first, then pipe.go.
package conn
