package conn

import (
	"io"
	"net"
	"time"
)

// A reader reads a connection.
type reader interface {
	// read waits for bytes and returns them in a buffer of that size, behind keep free bytes. The
	// caller recycles the buffer.
	read(size, keep int) ([]byte, error)

	// poll is read without sleeping. It returns nil if nothing comes for so long.
	poll(size, keep int, most time.Duration) ([]byte, error)
}

// A writer writes to a connection, as much as it has room for.
type writer interface {
	// Try writes what there is room for at once, perhaps nothing.
	Try(p []byte) (int, error)

	// Wait writes what there is room for, once there is room for something.
	Wait(p []byte) (int, error)
}

// A Partial is a connection other than a socket that takes part of a write, as a socket does whose send
// buffer is small. Networks in memory that tests use implement it, so that tests run the code that deals
// with full sockets, and not the code for connections whose writes block.
type Partial interface {
	net.Conn
	writer
}

// plain reads by the method of a connection, which holds the buffer while it waits.
type plain struct{ net.Conn }

func (r plain) read(size, keep int) ([]byte, error) {
	buf := Grow(nil, size)[:size]
	n, err := r.Read(buf[keep:])
	if n > 0 {
		return buf[:keep+n], nil
	}
	Recycle(buf)
	if err == nil {
		err = io.ErrNoProgress
	}
	return nil, err
}

// poll implements reader. Only a socket can be asked whether there are bytes.
func (plain) poll(int, int, time.Duration) ([]byte, error) { return nil, nil }

// blocking writes by the method of a connection, which cannot be tried.
type blocking struct{ net.Conn }

func (blocking) Try([]byte) (int, error) { return 0, nil }

func (w blocking) Wait(p []byte) (int, error) { return w.Write(p) }
