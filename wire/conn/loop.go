package conn

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

// loopBytes is how much each direction of a loop holds that was not read, as the buffer of a socket does.
const loopBytes = 256 << 10

// Loop makes both ends of a connection between two parts of this process. It carries the same bytes as a
// socket would, so that what its users promise of connections holds here, too; it saves the system calls
// of both ends. The ends implement [Partial]. Both have the address, which is for people to read.
func Loop(address string) (a, b net.Conn) {
	there, back := newDirection(), newDirection()
	return &loopEnd{address, back, there}, &loopEnd{address, there, back}
}

// A loopEnd is one end of a loop.
type loopEnd struct {
	address string
	in, out *direction
}

// A direction is the bytes from one end of a loop to the other.
type direction struct {
	mu struct {
		sync.Mutex
		changed sync.Cond // there are bytes, there is room, a deadline has passed, or no more bytes come
		buf     []byte    // from a pool; nil while there are no bytes
		read    int       // bytes of buf that were read
		cause   error     // what the reader gets behind the bytes, or nil while more may come
		readBy  deadline
		writeBy deadline
	}
}

func newDirection() *direction {
	d := new(direction)
	d.mu.changed.L = &d.mu
	return d
}

// Read implements [net.Conn].
func (e *loopEnd) Read(p []byte) (int, error) {
	d := e.in
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		switch {
		case d.mu.readBy.over():
			return 0, os.ErrDeadlineExceeded
		case d.mu.buf != nil:
			return d.take(p), nil
		case d.mu.cause != nil:
			return 0, d.mu.cause
		case len(p) == 0:
			return 0, nil
		}
		d.mu.changed.Wait()
		d.yield()
	}
}

// yield lets other goroutines run that are about to write; mu is held. A reader that is woken by the first
// write runs next, and would find the bytes of that alone. Those who read sockets become ready many at a time,
// and each writes a little here: together their bytes cost the reader, and all behind it, a tenth of the turns.
func (d *direction) yield() {
	d.mu.Unlock()
	runtime.Gosched()
	d.mu.Lock()
}

// take moves bytes to p; mu is held.
func (d *direction) take(p []byte) int {
	n := copy(p, d.mu.buf[d.mu.read:])
	if d.mu.read += n; d.mu.read == len(d.mu.buf) {
		d.drop()
	}
	d.mu.changed.Broadcast()
	return n
}

// drop forgets all bytes; mu is held.
func (d *direction) drop() {
	Recycle(d.mu.buf)
	d.mu.buf, d.mu.read = nil, 0
}

// Write implements [net.Conn].
func (e *loopEnd) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = e.Wait(p[n:])
		n += k
	}
	return n, err
}

// Try implements [Partial].
func (e *loopEnd) Try(p []byte) (int, error) {
	e.out.mu.Lock()
	defer e.out.mu.Unlock()
	return e.out.put(p)
}

// Wait implements [Partial].
func (e *loopEnd) Wait(p []byte) (int, error) {
	d := e.out
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		n, err := d.put(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		d.mu.changed.Wait()
	}
}

// put takes what there is room for; mu is held.
func (d *direction) put(p []byte) (int, error) {
	switch {
	case d.mu.cause != nil:
		return 0, io.ErrClosedPipe
	case d.mu.writeBy.over():
		return 0, os.ErrDeadlineExceeded
	}
	n := min(len(p), loopBytes-len(d.mu.buf))
	if n > 0 {
		d.mu.buf = append(Grow(d.mu.buf, n), p[:n]...)
		d.mu.changed.Broadcast()
	}
	return n, nil
}

// Close implements [net.Conn]. The other end reads what was written before.
func (e *loopEnd) Close() error {
	e.out.end(io.EOF)
	e.in.end(net.ErrClosed)
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.in.drop()
	return nil
}

// end lets no more bytes in.
func (d *direction) end(cause error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.cause == nil || cause == net.ErrClosed {
		d.mu.cause = cause
	}
	d.mu.readBy.stop()
	d.mu.writeBy.stop()
	d.mu.changed.Broadcast()
}

// SetDeadline implements [net.Conn].
func (e *loopEnd) SetDeadline(t time.Time) error {
	e.in.set(&e.in.mu.readBy, t)
	e.out.set(&e.out.mu.writeBy, t)
	return nil
}

// SetReadDeadline implements [net.Conn].
func (e *loopEnd) SetReadDeadline(t time.Time) error {
	e.in.set(&e.in.mu.readBy, t)
	return nil
}

// SetWriteDeadline implements [net.Conn].
func (e *loopEnd) SetWriteDeadline(t time.Time) error {
	e.out.set(&e.out.mu.writeBy, t)
	return nil
}

// A deadline is when reads or writes give up; zero is never.
type deadline struct {
	at    time.Time
	timer *time.Timer // wakes those that wait; or nil
}

func (d *direction) set(l *deadline, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.stop()
	if l.at = at; !at.IsZero() && d.mu.cause == nil {
		l.timer = time.AfterFunc(time.Until(at), d.mu.changed.Broadcast)
	}
	d.mu.changed.Broadcast()
}

func (l *deadline) stop() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *deadline) over() bool { return !l.at.IsZero() && !time.Now().Before(l.at) }

// Network implements [net.Addr].
func (e *loopEnd) Network() string { return "loop" }

// String implements [net.Addr].
func (e *loopEnd) String() string { return e.address }

// LocalAddr implements [net.Conn].
func (e *loopEnd) LocalAddr() net.Addr { return e }

// RemoteAddr implements [net.Conn].
func (e *loopEnd) RemoteAddr() net.Addr { return e }
