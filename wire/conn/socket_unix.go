//go:build unix

package conn

import (
	"io"
	"net"
	"syscall"
	"time"
)

// A socket reads and writes a file descriptor that does not block, and takes a buffer for reading only
// when there is something to read.
type socket struct {
	conn syscall.RawConn // set once

	// Owned by the reader. The functions are made once, so that a read allocates nothing.
	size     int // of the buffer to read into
	keep     int // bytes to leave free at its front
	buf      []byte
	readN    int
	readErr  error
	until    time.Time // of poll
	readOnce func(fd uintptr) bool
	readPoll func(fd uintptr) bool

	// Owned by the goroutine that writes.
	output    []byte
	writeN    int
	writeErr  error
	writeOnce func(fd uintptr) bool
	writeSome func(fd uintptr) bool
}

// open says how to read and write nc.
func open(nc net.Conn) (reader, writer) {
	var sc syscall.Conn
	switch nc := nc.(type) {
	case Partial:
		return plain{nc}, nc
	case *net.TCPConn:
		sc = nc
	case *net.UnixConn:
		sc = nc
	default:
		return plain{nc}, blocking{nc}
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return plain{nc}, blocking{nc}
	}
	s := &socket{conn: raw}
	s.readOnce = s.tryRead
	s.readPoll = s.pollRead
	s.writeOnce = func(fd uintptr) bool { s.tryWrite(fd); return true }
	s.writeSome = s.tryWrite
	return s, s
}

// read implements reader.
func (s *socket) read(size, keep int) ([]byte, error) { return s.readBy(s.readOnce, size, keep) }

// poll implements reader.
func (s *socket) poll(size, keep int, most time.Duration) ([]byte, error) {
	s.until = time.Now().Add(most)
	b, err := s.readBy(s.readPoll, size, keep)
	if err == syscall.EAGAIN {
		return nil, nil
	}
	return b, err
}

// readBy reads by readOnce, which waits for bytes, or by readPoll.
func (s *socket) readBy(f func(fd uintptr) bool, size, keep int) ([]byte, error) {
	s.size, s.keep, s.buf = size, keep, nil
	if err := s.conn.Read(f); err != nil {
		return nil, err
	}
	if s.readErr == nil && s.readN == 0 {
		s.readErr = io.EOF
	}
	if s.readErr != nil {
		Recycle(s.buf)
		return nil, s.readErr
	}
	return s.buf[:keep+s.readN], nil
}

// ready waits until there is something to read, or an error.
func (s *socket) ready() error {
	return s.conn.Read(func(fd uintptr) bool {
		var first [1]byte
		for {
			_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
			if err != syscall.EINTR {
				return err != syscall.EAGAIN
			}
		}
	})
}

func (s *socket) tryRead(fd uintptr) bool {
	s.buf = Grow(nil, s.size)[:s.size]
	for {
		s.readN, s.readErr = readNow(fd, s.buf[s.keep:])
		if s.readErr != syscall.EINTR {
			break
		}
	}
	if s.readErr == syscall.EAGAIN {
		Recycle(s.buf)
		s.buf = nil
		return false
	}
	return true
}

func (s *socket) pollRead(fd uintptr) bool {
	for !s.tryRead(fd) && time.Now().Before(s.until) {
	}
	return true
}

// Try implements writer.
func (s *socket) Try(p []byte) (int, error) { return s.write(p, s.writeOnce) }

// Wait implements writer.
func (s *socket) Wait(p []byte) (int, error) { return s.write(p, s.writeSome) }

func (s *socket) write(p []byte, f func(uintptr) bool) (int, error) {
	s.output, s.writeN = p, 0 // a closed connection does not call f
	err := s.conn.Write(f)
	s.output = nil
	if err == nil {
		err = s.writeErr
	}
	if err == syscall.EAGAIN {
		err = nil
	}
	return s.writeN, err
}

func (s *socket) tryWrite(fd uintptr) bool {
	for {
		s.writeN, s.writeErr = writeNow(fd, s.output)
		if s.writeErr != syscall.EINTR {
			break
		}
	}
	s.writeN = max(s.writeN, 0)
	return s.writeErr != syscall.EAGAIN
}
