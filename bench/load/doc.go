// Package load is a gRPC client made to press on a server with as little work of its own as
// possible, for benchmarks and soak tests on machines where client and server share the cores.
//
// It speaks unary gRPC over HTTP/2. A [Conn] carries any number of calls at a time; one goroutine
// reads it, nothing is started per call. [Conn.Call] only writes into a buffer, so a wave of calls
// leaves as one write: [Conn.Flush] sends what has gathered. Calls made while replies are being
// handed out are sent by themselves once the replies at hand are used up. Headers go the way C++
// clients send them, in the table of the connection from the second call of a method on.
//
// All methods of a Conn may be used by any goroutine. Replies are handed out one at a time by the
// goroutine that reads; it must not be held up, and only it must not call Close.
package load
