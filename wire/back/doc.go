// Package back is the client side of gRPC, as lean as package front is on the side of the server.
//
// A [Conn] is one HTTP/2 connection that carries any number of unary calls at a time; one goroutine
// reads it, and nothing is started per call. [Conn.Call] makes a call and waits for its end.
// [Conn.Start] only begins one, and tells a function when it has ended: calls that are
// started together leave as one write, by [Conn.Flush]. Calls that several goroutines make at one
// time share writes by themselves. Headers go the way C++ clients send them, in the table of the
// connection from the second call of a method on.
//
// A Conn does not connect again: when it has broken, its calls and all later ones end in an error, and
// [ErrUnsent] marks the calls that the server cannot have seen. Whatever a server sends, memory is
// bounded, a call with a context ends when the context does, and every call is told its end once.
//
// All methods may be used by any goroutine.
//
// Read conn.go first, then stream.go.
package back
