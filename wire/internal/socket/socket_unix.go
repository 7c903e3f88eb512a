//go:build unix

package socket

import (
	"io"
	"net"
	"syscall"
)

// A Conn reads and writes a socket without blocking the caller for longer than it wants, and
// takes a buffer for reading only when there is something to read.
type Conn struct {
	conn    syscall.RawConn
	partial Partial // in place of conn, or nil

	// Owned by the reader. The functions are made once, so that a read allocates nothing.
	size     int // of the buffer to read into
	keep     int // bytes to leave free at its front
	buf      []byte
	readN    int
	readErr  error
	readOnce func(fd uintptr) bool

	// Owned by whoever writes.
	wire      []byte
	writeN    int
	writeErr  error
	writeOnce func(fd uintptr) bool
	writeSome func(fd uintptr) bool
}

// New returns nil if nc is neither a socket nor a [Partial]; its methods must be used then.
func New(nc net.Conn) *Conn {
	var sc syscall.Conn
	switch nc := nc.(type) {
	case Partial:
		return &Conn{partial: nc}
	case *net.TCPConn:
		sc = nc
	case *net.UnixConn:
		sc = nc
	default:
		return nil
	}
	conn, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	r := &Conn{conn: conn}
	r.readOnce = r.tryRead
	r.writeOnce = func(fd uintptr) bool { r.tryWrite(fd); return true }
	r.writeSome = r.tryWrite
	return r
}

// Read waits for bytes and returns them in a buffer of that size, after keep free ones. The caller
// recycles it.
func (r *Conn) Read(size, keep int) ([]byte, error) {
	if r.partial != nil {
		return readPlain(r.partial, size, keep)
	}
	r.size, r.keep, r.buf = size, keep, nil
	if err := r.conn.Read(r.readOnce); err != nil {
		return nil, err
	}
	if r.readErr == nil && r.readN == 0 {
		r.readErr = io.EOF
	}
	if r.readErr != nil {
		Recycle(r.buf)
		return nil, r.readErr
	}
	return r.buf[:keep+r.readN], nil
}

func (r *Conn) tryRead(fd uintptr) bool {
	r.buf = Grow(nil, r.size)[:r.size]
	for {
		r.readN, r.readErr = readNow(fd, r.buf[r.keep:])
		if r.readErr != syscall.EINTR {
			break
		}
	}
	if r.readErr == syscall.EAGAIN {
		Recycle(r.buf)
		return false
	}
	return true
}

// Try writes what the socket takes at once.
func (r *Conn) Try(p []byte) (int, error) {
	if r.partial != nil {
		return r.partial.Try(p)
	}
	return r.write(p, r.writeOnce)
}

// Wait writes what the socket takes, once it takes something.
func (r *Conn) Wait(p []byte) (int, error) {
	if r.partial != nil {
		return r.partial.Wait(p)
	}
	return r.write(p, r.writeSome)
}

func (r *Conn) write(p []byte, f func(uintptr) bool) (int, error) {
	r.wire = p
	err := r.conn.Write(f)
	r.wire = nil
	if err == nil {
		err = r.writeErr
	}
	if err == syscall.EAGAIN {
		err = nil
	}
	return r.writeN, err
}

func (r *Conn) tryWrite(fd uintptr) bool {
	for {
		r.writeN, r.writeErr = writeNow(fd, r.wire)
		if r.writeErr != syscall.EINTR {
			break
		}
	}
	r.writeN = max(r.writeN, 0)
	return r.writeErr != syscall.EAGAIN
}
