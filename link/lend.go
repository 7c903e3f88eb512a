package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/wire/conn"
)

// lendLane is the number that a connection has in its HELLO which hands over a segment. It is no lane of a set: it carries one
// LEND frame, with the file of the segment beside it, and the answer.
//
// A file needs a connection of its own because the kernel attaches it to a byte of a stream, and the lanes of a link are read
// by code that takes bytes alone. The handshake is that of every connection, so both sides know the life at the other end, and
// that it is a process of this host and of this user.
const lendLane = 255

const (
	maxLoans     = 256     // segments of a link that were lent and not borrowed yet
	maxLoanBytes = 1 << 40 // of one segment
	loanBytes    = 8       // of the payload of LEND: the name of the segment
)

// ErrNoLending is why a segment cannot be lent: the peer is not known to be a process of this host.
var ErrNoLending = errors.New("the peer is no process of this host that segments can be lent to")

// Loans of a link are the segments that its peer has lent, by name, until they are borrowed.
type loans struct {
	mu      sync.Mutex
	closed  bool                // the link is down
	waiting map[uint64]*Segment // guarded by mu, as all of these
	changed chan struct{}       // closed at the next change; nil while no caller waits
}

// add keeps a segment until it is borrowed. It takes the segment over.
func (x *loans) add(name uint64, s *Segment) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.closed:
		return errors.Join(ErrClosed, s.Close())
	case x.waiting[name] != nil:
		return errors.Join(fmt.Errorf("segment %#x was lent before", name), s.Close())
	case len(x.waiting) >= maxLoans:
		return errors.Join(&serry.LimitError{Limit: "segments lent", Max: maxLoans}, s.Close())
	}
	if x.waiting == nil {
		x.waiting = make(map[uint64]*Segment)
	}
	x.waiting[name] = s
	x.announce()
	return nil
}

// announce wakes the callers that wait; mu is held.
func (x *loans) announce() {
	if x.changed != nil {
		close(x.changed)
		x.changed = nil
	}
}

// take returns a segment that was lent, or a channel that is closed when that may have changed.
func (x *loans) take(name uint64) (*Segment, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.waiting[name]; s != nil {
		delete(x.waiting, name)
		return s, nil
	}
	if x.changed == nil {
		x.changed = make(chan struct{})
	}
	return nil, x.changed
}

// close frees the segments that were not borrowed: the link is down.
func (x *loans) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	x.announce()
	var errs []error
	for _, s := range x.waiting {
		errs = append(errs, s.Close())
	}
	x.waiting = nil
	return errors.Join(errs...)
}

// Lend lets the peer read a segment of this process, under a name that no other segment of the link has. When it returns nil,
// the peer has mapped it. The peer must be a process of this host and of this user, and be linked through a socket of the host:
// else the error is ErrNoLending.
func (l *Link) Lend(ctx context.Context, name uint64, s *Segment) error {
	if s.arena == nil {
		return l.lendOrdinary(name, s)
	}
	return l.lendFile(ctx, name, s.arena)
}

// LendArena is Lend for an arena that belongs to the program. It may be lent to any number of peers.
func (l *Link) LendArena(ctx context.Context, name uint64, a *memory.Arena) error {
	if l.net.opt.Segments == nil {
		return l.lendFile(ctx, name, a)
	}
	r, err := a.Region(0, a.Len())
	if err != nil {
		return err
	}
	return l.lendOrdinary(name, &Segment{bytes: r.Bytes(), bell: new(bell)})
}

// lendFile lends the file of an arena.
func (l *Link) lendFile(ctx context.Context, name uint64, a *memory.Arena) error {
	if !l.overHost() {
		return ErrNoLending
	}
	addresses, err := l.net.lookup(ctx, l.peer)
	if err != nil {
		return err
	}
	near := slices.IndexFunc(addresses, isNear)
	if near < 0 {
		return ErrNoLending
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	c, err := l.net.dialOne(ctx, addresses[near], l.net.hello(l.peer, lendLane, len(l.lanes), l.set, 0))
	if err != nil {
		return fmt.Errorf("lend a segment to %v: %w", l.peer.Task, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := handOver(c, name, a.File()); err != nil {
		return fmt.Errorf("lend a segment to %v: %w", l.peer.Task, l.net.named(err, l.peer))
	}
	return nil
}

// lendOrdinary lends memory of this process to another Net of it.
func (l *Link) lendOrdinary(name uint64, s *Segment) error {
	peer := l.net.opt.Segments.find(l.peer)
	if peer == nil {
		return ErrNoLending
	}
	other := peer.linkOf(l.net.life, l.set)
	if other == nil {
		return fmt.Errorf("lend a segment to %v: %w", l.peer.Task, ErrClosed)
	}
	return other.loans.add(name, s)
}

// linkOf is the link to a life that is up and consists of a set, or nil. The peer may know sooner than this process that the
// link is up, so it waits for one that is being made.
func (n *Net) linkOf(peer serry.Life, set uint64) *Link {
	n.mu.Lock()
	l := n.mu.links[peer]
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	timer := time.NewTimer(handshakeTime / 2)
	defer timer.Stop()
	select {
	case <-l.ready:
	case <-timer.C:
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state != up || l.set != set {
		return nil
	}
	return l
}

// Borrow returns a segment that the peer has lent, and waits for it until ctx or the link ends. The caller closes it, also when
// the link ends.
func (l *Link) Borrow(ctx context.Context, name uint64) (*Segment, error) {
	for {
		s, changed := l.loans.take(name)
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-l.done:
			return nil, l.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("segment of %v: %w", l.peer.Task, context.Cause(ctx))
		}
	}
}

// Decline frees a segment that the peer has lent, and that this process does not borrow.
func (l *Link) Decline(name uint64) error {
	if s, _ := l.loans.take(name); s != nil {
		return s.Close()
	}
	return nil
}

// overHost says whether the link goes through a socket of this host.
func (l *Link) overHost() bool {
	_, ok := l.lanes[controlLane].in.Conn.(*net.UnixConn)
	return ok
}

// handOver sends the file of a segment, and waits until the peer has mapped it.
func handOver(c *conn.Conn, name uint64, file *os.File) error {
	h := Header{Type: typeLend, length: loanBytes}
	b := binary.LittleEndian.AppendUint64(h.append(nil), name)
	if err := writeFile(c, b, file); err != nil {
		return err
	}
	_, err := readFrame(c, typeLend)
	return err
}

// lent is the rest of the handshake for a connection that hands over a segment: the peer has proven which life it is.
func (n *Net) lent(c *conn.Conn, theirs *hello, proof []byte) {
	l := n.linkOf(theirs.from, theirs.set)
	if l == nil || !l.overHost() {
		n.refuse(c, theirs, Crossed, "its link is gone, or not of this host")
		return
	}
	if err := writeFrame(c, typeAuth, proof); err != nil {
		return
	}
	if err := l.receiveLoan(c); err != nil {
		n.refuse(c, theirs, NoSegment, clean([]byte(err.Error())))
		return
	}
	_ = writeFrame(c, typeLend, nil) // a peer that is gone has no use for it
}

// receiveLoan takes the file of a segment.
func (l *Link) receiveLoan(c *conn.Conn) error {
	b := make([]byte, headerBytes+loanBytes)
	file, err := readFile(c, b)
	if err != nil {
		return err
	}
	h, err := parseHeader(b)
	if err == nil && (h.Family != linkFamily || h.Type != typeLend || h.length != loanBytes) {
		err = fmt.Errorf("%w: type %d of family %v", errLane, h.Type, h.Family)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	a, err := memory.OpenArena(file)
	if err != nil {
		return err
	}
	if a.Len() > maxLoanBytes {
		return errors.Join(&serry.LimitError{Limit: "bytes of a segment", Max: maxLoanBytes}, a.Close())
	}
	s, err := segmentOf(a)
	if err != nil {
		return err
	}
	return l.loans.add(binary.LittleEndian.Uint64(b[headerBytes:]), s)
}
