package socket

import (
	"io"
	"net"
)

// A Partial is a connection other than a socket that takes part of a write, as a socket does whose send
// buffer is small. Networks in memory that tests use implement it, so that what runs on them is the code
// that deals with full sockets, and not the code for connections whose writes block.
type Partial interface {
	net.Conn

	// Try writes what there is room for at once, perhaps nothing.
	Try(p []byte) (int, error)

	// Wait writes what there is room for, once there is room for something.
	Wait(p []byte) (int, error)
}

// readPlain waits for bytes by the method of a connection, which holds the buffer meanwhile. They lie
// after keep free ones.
func readPlain(nc net.Conn, size, keep int) ([]byte, error) {
	buf := Grow(nil, size)[:size]
	n, err := nc.Read(buf[keep:])
	if n > 0 {
		return buf[:keep+n], nil
	}
	Recycle(buf)
	if err == nil {
		err = io.ErrNoProgress
	}
	return nil, err
}
