package link

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/serry-dev/serry/internal/crc32c"
	"github.com/serry-dev/serry/wire/conn"
)

// The lanes of a link.
const (
	controlLane = iota
	smallLane
	firstBulk

	// MaxLanes is how many bulk lanes a link may have.
	MaxLanes = 8
)

// unheardTimes is how many times Timing.Dead the host of a peer may leave bytes of a lane without an acknowledgement. The
// detector hears of all lanes through one of them, and comes first; this finds a lane that alone is cut off, by a path
// through the network that the others do not take.
const unheardTimes = 2

// A lane is one connection of a link.
type lane struct {
	// Set when the lane is made, then constant.
	link    *Link
	in, out *conn.Conn // the same, but in a link of a process to itself
	pipe    *conn.Pipe // output of the control and small lanes, or nil
	guest   bool       // the peer has added it, and writes to it; this process does not

	// Of bulk lanes, guarded by the lock of the link.
	reading  bool    // there is a goroutine that reads
	writing  bool    // there is a goroutine that writes
	retired  bool    // it was added, and is closed once it does not write: see tuner
	filling  *expect // whose memory is being read into, or nil
	draining *post   // whose memory is being written from, or nil

	// Of bulk lanes, owned by the goroutine that reads.
	header [headerBytes]byte
	have   int // bytes of header that came

	// Of bulk lanes, owned by the goroutine that writes.
	buffers    net.Buffers
	head, tail []byte // header and checksum of the frame in buffers
}

func newLane(l *Link, index int, in, out *conn.Conn) *lane {
	a := &lane{link: l, in: in, out: out}
	in.GiveUpUnheard(unheardTimes * l.net.timing.Dead)
	if index < firstBulk {
		a.pipe = conn.NewPipe(out, conn.PipeConfig{Planted: l.net.opt.Planted})
	}
	return a
}

// close ends the connection. Goroutines that use it return.
func (a *lane) close(cause error) {
	if a.pipe != nil {
		a.pipe.Fail(cause)
	}
	a.in.Close()
	a.out.Close()
}

// wait waits for goroutines of the pipe.
func (a *lane) wait() {
	if a.pipe != nil {
		a.pipe.Wait()
	}
}

// send queues a frame on the control or the small lane, and writes what the socket takes. Unless most is
// 0 it refuses the frame when more output than that waits.
func (a *lane) send(h *Header, segs [][]byte, most int) bool {
	h.flags &^= flagChecksum
	if h.length > 0 && a.link.checks[h.Family] {
		h.flags |= flagChecksum
	}
	p := a.pipe
	p.Lock()
	if p.Cause() != nil {
		p.Unlock()
		return true // the link is about to fail
	}
	if most > 0 && p.Backlog() > most {
		p.Unlock()
		return false
	}
	p.Room(headerBytes + h.payload())
	p.Out = h.append(p.Out)
	start := len(p.Out)
	for _, s := range segs {
		p.Out = append(p.Out, s...)
	}
	if h.flags&flagChecksum != 0 {
		p.Out = binary.LittleEndian.AppendUint32(p.Out, crc32c.Sum(p.Out[start:]))
	}
	p.Unlock()
	a.link.counts.sent(h)
	p.Flush()
	return true
}

// readFrames is the goroutine of the control or the small lane. It reads until the lane ends, or until the
// program reads the small lane itself (see turn).
func (a *lane) readFrames() {
	if a == a.link.lanes[smallLane] {
		a.link.guard.clear()
	}
	err := a.eachFrame()
	a.link.active.Done()
	if err != nil {
		a.link.broken(err)
	}
}

func (a *lane) eachFrame() error {
	chunk := a.in.Kept() // frames that a goroutine in Wait has left
	for {
		rest, _, err := a.frames(chunk, false)
		if err != nil {
			return err
		}
		if chunk != nil {
			a.in.Keep(rest)
		}
		if a.rests() {
			return nil
		}
		if chunk, err = a.next(); err != nil {
			return err
		}
	}
}

// frames takes the whole frames at the beginning of b, and returns the rest. A goroutine in Wait stops at a frame that
// it must leave to the goroutine of the lane; frames says whether there is one.
func (a *lane) frames(b []byte, inWait bool) (rest []byte, more bool, err error) {
	for len(b) >= headerBytes {
		h, err := parseHeader(b)
		if err != nil {
			return nil, false, err
		}
		if h.Data() && h.length > SmallBytes {
			return nil, false, fmt.Errorf("%w: %d bytes of data", errLane, h.length)
		}
		end := headerBytes + h.payload()
		if len(b) < end {
			return b, false, nil
		}
		payload := b[headerBytes : headerBytes+int(h.length)]
		if h.flags&flagChecksum != 0 && binary.LittleEndian.Uint32(b[end-checkBytes:]) != crc32c.Sum(payload) {
			a.link.damaged(&h)
			return nil, false, ErrDamaged
		}
		if !inWait {
			err = a.link.receive(&h, payload)
		} else if !a.link.deliver(&h, payload) {
			return b, true, nil
		}
		if err != nil {
			return b, false, err
		}
		a.link.counts.received(&h)
		b = b[end:]
	}
	return b, false, nil
}

// damaged notes that the bytes of a message came damaged, which its ticket then says.
func (l *Link) damaged(h *Header) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.mu.receiver.find(h.message(), h.Offset); e != nil && h.Data() {
		e.damaged = true
	}
}

// receive takes a frame of the control or the small lane.
func (l *Link) receive(h *Header, payload []byte) error {
	switch {
	case h.Type == 0 || h.Type > grammar[h.Family].last:
		l.counts.skipped.Add(1)
	case h.Family == linkFamily:
		return l.receiveOwn(h, payload)
	case h.Data():
		return l.receiveSmall(h, payload)
	case h.Type == grammar[h.Family].credit:
		return l.credited(h, payload)
	default:
		l.net.frame(l, *h, payload)
	}
	return nil
}

// receiveOwn takes a frame of the link family.
func (l *Link) receiveOwn(h *Header, payload []byte) error {
	switch h.Type {
	case typePing:
		if err := l.heardWords(payload); err != nil {
			return err
		}
		l.control(&Header{Type: typePong, Seq: h.Seq})
	case typePong:
		l.answered(h.Seq)
	case typeWindow:
		return l.window(h.Seq)
	case typeNeed:
		l.wanted()
	case typeBye:
		l.net.forgetAddresses(l.peer)
		l.end(&LossError{Peer: l.peer, Source: FromLink, Reason: fmt.Errorf("%w: %s", errPeerClosed, clean(payload)), Err: ErrClosed})
	default:
		return fmt.Errorf("%w: handshake on a link that is up", errLane)
	}
	return nil
}
