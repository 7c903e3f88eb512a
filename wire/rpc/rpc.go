// Package rpc is what lies between a transport and the handlers behind it: a unary call as a value,
// and the way to answer it later.
//
// A transport (package front, and in tests grpc-go) reads calls and hands each to a [Handler]. The handler never blocks: it answers at once, or keeps the pair of [Conn] and
// [CallID] and answers later, from any goroutine. So a waiting call costs what the handler
// remembers of it and nothing else. Start with Handler and Conn.
//
// The transport promises: Open comes first and Close last for a connection; Serve is called from
// one goroutine at a time per connection, or not in order at all across connections; Cancel for a
// call comes after its Serve has returned, at most once, and never after a reply has been taken.
package rpc

import (
	"errors"
	"net"

	"google.golang.org/grpc/codes"
)

// A CallID names a call within its connection.
type CallID uint64

// A Status is how a call ends without a message: code, text, and the bytes of the trailer
// grpc-status-details-bin (nil leaves the trailer out). The zero Status is OK.
type Status struct {
	Code    codes.Code
	Message string
	Details []byte
}

// OK says whether the call succeeded.
func (s Status) OK() bool { return s.Code == codes.OK }

// ErrNotReading is what [Handler.Close] gets for a peer that left its replies unread for too long, so
// that the transport closed the connection.
var ErrNotReading = errors.New("peer does not read")

// A Conn is one connection of a client. Its methods may be called from any goroutine.
type Conn interface {
	// Reply ends a call: with a message if st is OK, else with st alone. The bytes of body and
	// st.Details are only read from here on, by both sides; a handler may share them among many
	// calls. A reply to a call that is gone is dropped. Nothing need reach the network before Flush.
	Reply(call CallID, body []byte, st Status)

	// Flush sends what Reply queued. It never blocks on the peer.
	Flush()

	// RemoteAddr is the address of the peer.
	RemoteAddr() net.Addr
}

// A Handler takes the calls of all connections of a transport. No method may block.
type Handler interface {
	// Open announces a connection before its first call.
	Open(c Conn)

	// Serve takes one call; method is the full path, "/package.Service/Method". body is valid
	// only until Serve returns: what outlives it must be copied.
	Serve(c Conn, call CallID, method string, body []byte)

	// Served follows the Serves of calls that came together, on the same goroutine. A handler may
	// put off work until then. The transport flushes c by itself afterwards.
	Served(c Conn)

	// Cancel says that the caller does not wait for the reply any more: the client withdrew the call, or its
	// deadline passed. Reply does nothing for it from now on.
	Cancel(c Conn, call CallID)

	// Close says that the transport of c has ended, with all its calls. Those that were waiting
	// get no Cancel of their own. err says why, io.EOF for a peer that closed the connection properly.
	Close(c Conn, err error)
}

// A Method is what a transport must know of a method before it reads a request of it.
type Method struct {
	MaxRequestBytes int64 // of the message after expansion; more is answered RESOURCE_EXHAUSTED
}

// Methods says which methods are served, by full path. All others are answered UNIMPLEMENTED by
// the transport. It is not changed once a transport has it.
type Methods map[string]Method
