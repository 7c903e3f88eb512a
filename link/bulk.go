package link

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/serry-dev/serry/internal/crc32c"
	"github.com/serry-dev/serry/wire/conn"
)

const (
	leastChunk   = 256 << 10 // smaller messages are not cut
	scratchBytes = conn.Large
	maxPieces    = 8192    // parts of a message that came, with gaps between them: more than sockets hold of a slow lane
	leastPiece   = 8 << 10 // shorter segments are not read one by one

	// A chunk is written in steps. The step after the first begins while the peer reads the first one, and a message
	// that is cancelled has at most one step to copy. A step of 256 KiB takes a quarter more of the processor time of
	// the writer, because it wakes the peer more often.
	//
	// A payload with a checksum is summed step by step, after the write and after the read: the system has just copied
	// the step, and the cache of the processor still has most of it. To sum a step before its write took a tenth more
	// of the processor time of the writer, and reads of 64 KiB a tenth more of that of the reader.
	writeStep = 1 << 20
	sumRead   = 512 << 10

	// wakeBytes of a payload come before the goroutine that reads it wakes, unless fewer are left. The system wakes it for
	// each segment otherwise, and to wake it takes longer than to copy a segment: over one connection on one host, a
	// third of the throughput.
	wakeBytes = 512 << 10
)

// chunkOf says how a message of that size is cut: so that all lanes have something to do. The lock is held.
func (l *Link) chunkOf(size int64) int64 {
	lanes := int64(l.bulkLanes())
	return min(max((size+lanes-1)/lanes, leastChunk), l.net.chunkBytes)
}

// aLongTimeAgo as a deadline wakes a goroutine that reads or writes.
var aLongTimeAgo = time.Unix(1, 0)

// kickReader wakes the goroutine that reads. The lock of the link is held.
func (a *lane) kickReader() { a.in.SetReadDeadline(aLongTimeAgo) }

// kickWriter wakes the goroutine that writes. The lock of the link is held.
func (a *lane) kickWriter() { a.out.SetWriteDeadline(aLongTimeAgo) }

// startWriters starts at most n goroutines that write chunks of the queue. The lock is held.
func (l *Link) startWriters(n int) {
	if l.mu.state != up {
		return
	}
	for a := range l.writers() {
		if n > 0 && !a.writing && !a.retired {
			a.writing = true
			n--
			l.active.Add(1)
			go a.write()
		}
	}
}

// write writes chunks until there are none.
func (a *lane) write() {
	l := a.link
	defer l.active.Done()
	for {
		l.mu.Lock()
		if a.retired {
			a.writing = false
			l.closeRetired(a)
			l.mu.Unlock()
			return
		}
		p, from, to, ok := l.mu.sender.next()
		if !ok || l.mu.state != up {
			a.writing = false
			if ok {
				p.inflight--
				p.failed = true
			}
			l.mu.Unlock()
			return
		}
		a.draining = p
		l.mu.Unlock()
		err := a.writeChunk(p, from, to)
		l.wrote(a, p, err)
		if err != nil {
			l.broken(err)
			return
		}
	}
}

// wrote notes that a lane has done with a chunk.
func (l *Link) wrote(a *lane, p *post, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.draining == p {
		a.draining = nil
		p.inflight--
		l.mu.quiet.Broadcast()
	}
	if err != nil {
		p.failed = true
	}
	if !p.failed && !p.ended && p.cut == p.size && p.inflight == 0 {
		p.ended = true
		l.settle(p)
		p.end(nil)
	}
}

// writeChunk writes a part of a message as one frame, straight out of its memory.
func (a *lane) writeChunk(p *post, from, to int64) error {
	h := p.header
	h.Offset += uint64(from)
	h.length = uint32(to - from)
	if h.Family == Transfer {
		h.Seq += uint64(from / p.chunk)
	}
	if a.link.checks[h.Family] {
		h.flags |= flagChecksum
	}
	a.head = h.append(a.head[:0])
	c := outgoing{lane: a, post: p, rest: cursorAt(p.segs, from), left: to - from}
	err := c.write(append(a.buffers[:0], a.head), h.flags&flagChecksum != 0)
	a.link.counts.sent(&h)
	return err
}

// An outgoing chunk is a payload that is being written.
type outgoing struct {
	lane *lane
	post *post
	rest cursor // of the message; once it is cancelled, of a copy of what is left
	left int64  // bytes that no write has begun with

	sum      uint32 // of what was written, but for the last bytes of the step
	step     cursor // where those begin
	unsummed int64  // how many they are
}

// write writes the chunk behind the pieces that are there, step by step, with the checksum at its end if it is to
// have one.
func (c *outgoing) write(pieces net.Buffers, checked bool) error {
	a := c.lane
	for {
		n := min(writeStep, c.left)
		c.step = c.rest
		if checked {
			c.unsummed = n
		}
		pieces = c.rest.append(pieces, n)
		c.left -= n
		if checked && c.left == 0 {
			c.addSum()
			a.tail = binary.LittleEndian.AppendUint32(a.tail[:0], c.sum)
			pieces = append(pieces, a.tail)
		}
		err := c.writeAll(pieces)
		c.addSum()
		a.link.written.Add(n)
		a.link.move()
		clear(pieces)
		pieces = pieces[:0]
		if err != nil || c.left == 0 {
			a.buffers = pieces
			return err
		}
	}
}

// addSum adds the rest of the step to the checksum.
func (c *outgoing) addSum() {
	for c.unsummed > 0 {
		p := c.step.piece(c.unsummed)
		c.sum = crc32c.Update(c.sum, p)
		c.step.at += len(p)
		c.unsummed -= int64(len(p))
	}
}

// writeAll writes some pieces of a frame. When the message is cancelled it copies the rest of the chunk and lets
// go of the memory: the peer needs the rest to find the next frame.
func (c *outgoing) writeAll(pieces net.Buffers) error {
	a, p := c.lane, c.post
	if a.out.Secure() { // what was encrypted is no memory of the program any more
		sealed, err := a.out.Seal(pieces)
		if err != nil {
			return err
		}
		defer conn.Recycle(sealed)
		pieces = net.Buffers{sealed}
	}
	for {
		_, err := pieces.WriteTo(a.out.Conn)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		a.out.SetWriteDeadline(time.Time{})
		a.link.mu.Lock()
		cancelled := p.ended && a.draining == p
		a.link.mu.Unlock()
		if cancelled {
			c.addSum() // of the bytes that the peer gets; the memory may change from now on
			pieces = net.Buffers{slices.Concat(pieces...)}
			c.rest = cursor{segs: [][]byte{slices.Concat(c.rest.append(nil, c.left)...)}}
			a.link.letGo(a, p)
		}
	}
}

// letGo notes that a lane has done with the memory of a message that was cancelled.
func (l *Link) letGo(a *lane, p *post) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.draining = nil
	p.inflight--
	l.mu.quiet.Broadcast()
}

// startReaders starts a goroutine for each bulk lane that has none. The lock is held.
func (l *Link) startReaders() {
	if l.mu.state != up {
		return
	}
	for _, a := range l.lanes[firstBulk:] {
		if !a.reading {
			a.reading = true
			l.active.Add(1)
			go a.read()
		}
	}
}

// read reads chunks until the lane is idle and no memory is posted, or the connection ends.
func (a *lane) read() {
	err := a.readChunks()
	a.link.active.Done()
	if err != nil {
		a.link.broken(err)
	}
}

// readChunks reads chunks until it is told to rest, or until the end of a lane that the peer has added.
func (a *lane) readChunks() error {
	for {
		h, idle, err := a.readHeader()
		if a.guest && a.have == 0 && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil || idle {
			return err
		}
		if err := a.readChunk(&h); err != nil {
			return err
		}
		a.link.counts.received(&h)
	}
}

// readHeader reads the header of the next frame. It says when the lane was told to rest.
func (a *lane) readHeader() (h Header, idle bool, err error) {
	for a.have < headerBytes {
		n, err := a.in.Read(a.header[a.have:])
		a.have += n
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return h, false, err
		}
		if a.rest() {
			return h, true, nil
		}
	}
	a.have = 0
	a.link.hear()
	h, err = parseHeader(a.header[:])
	if err == nil && !h.Data() {
		err = fmt.Errorf("%w: type %d of family %v", errLane, h.Type, h.Family)
	}
	return h, false, err
}

// rest ends the goroutine that reads, unless there is something to read for.
func (a *lane) rest() bool {
	l := a.link
	l.mu.Lock()
	defer l.mu.Unlock()
	a.in.SetReadDeadline(time.Time{})
	if !l.mu.receiver.idle() || a.have > 0 || a.guest {
		return false
	}
	a.reading = false
	return true
}

// readChunk reads the payload of a frame, straight into the memory of its message.
func (a *lane) readChunk(h *Header) error {
	e, err := a.link.begin(a, h)
	if err != nil {
		return err
	}
	c := chunk{lane: a, expect: e, left: int64(h.length), unwanted: e == nil}
	if e != nil {
		c.rest = cursorAt(e.into, int64(h.Offset-e.from))
	}
	err = c.read(h.flags&flagChecksum != 0)
	conn.Recycle(c.scratch)
	a.link.finishChunk(a, e, h, err)
	return err
}

// begin finds the memory for a chunk, or nil if the chunk is not wanted any more.
func (l *Link) begin(a *lane, h *Header) (*expect, error) {
	name, end := h.message(), h.Offset+uint64(h.length)
	l.mu.Lock()
	e := l.mu.receiver.find(name, h.Offset)
	if e == nil {
		l.mu.receiver.stray(name, h.length)
		l.mu.Unlock()
		l.counts.strays.Add(1)
		l.net.unexpected(l, h)
		return nil, nil
	}
	defer l.mu.Unlock()
	if !e.large() || end < h.Offset || end > e.to || h.length == 0 {
		return nil, errOutside
	}
	if err := e.begin(span{h.Offset, end}); err != nil {
		return nil, err
	}
	e.busy++
	a.filling = e
	return e, nil
}

// begin adds a span to those that came, and joins it with its neighbours. They are sorted, and do not overlap.
func (e *expect) begin(s span) error {
	i, _ := slices.BinarySearchFunc(e.begun, s, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	behind, before := i > 0, i < len(e.begun) // there are spans behind and before s
	switch {
	case behind && e.begun[i-1].to > s.from, before && e.begun[i].from < s.to:
		return errOverlap
	case behind && before && e.begun[i-1].to == s.from && e.begun[i].from == s.to:
		e.begun[i-1].to = e.begun[i].to
		e.begun = slices.Delete(e.begun, i, i+1)
	case behind && e.begun[i-1].to == s.from:
		e.begun[i-1].to = s.to
	case before && e.begun[i].from == s.to:
		e.begun[i].from = s.from
	case len(e.begun) == maxPieces:
		return errPieces
	default:
		e.begun = slices.Insert(e.begun, i, s)
	}
	return nil
}

// finishChunk notes that a lane has done with a chunk.
func (l *Link) finishChunk(a *lane, e *expect, h *Header, err error) {
	if e == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.filling == e {
		a.filling = nil
		e.busy--
		l.mu.quiet.Broadcast()
	}
	if err != nil {
		e.damaged = e.damaged || errors.Is(err, ErrDamaged)
		return // the message cannot complete, though another lane may read the rest of it
	}
	e.received += uint64(h.length)
	if !e.ended && e.received == e.to-e.from {
		e.ended = true
		l.mu.receiver.drop(e)
		e.end(nil)
	}
}

// A chunk is a payload that is being read.
type chunk struct {
	lane     *lane
	expect   *expect // or nil
	rest     cursor  // of its memory
	left     int64   // bytes that have not come
	unwanted bool    // its bytes go nowhere
	scratch  []byte  // or nil
}

func (c *chunk) read(checked bool) (err error) {
	sum := uint32(0)
	if in := c.lane.in; c.left > 2*wakeBytes && !in.Secure() { // what is decrypted is less than what comes
		in.WakeAfter(wakeBytes)
		sum, err = c.readUntil(wakeBytes, sum, checked)
		in.WakeAfter(1)
	}
	if err == nil {
		sum, err = c.readUntil(0, sum, checked)
	}
	if err == nil && checked {
		err = c.check(sum)
	}
	return err
}

// readUntil reads until at most that many bytes are left, and adds what it reads to a checksum if there is one.
func (c *chunk) readUntil(left int64, sum uint32, checked bool) (uint32, error) {
	for c.left > left {
		most := c.left
		if checked {
			most = min(most, sumRead)
		}
		room, direct := c.room(most)
		n, err := c.some(room)
		if err != nil {
			return 0, err
		}
		if checked {
			sum = crc32c.Update(sum, room[:n])
		}
		c.left -= int64(n)
		switch {
		case c.unwanted:
		case direct:
			c.rest.at += n
		default:
			c.rest.put(room[:n])
		}
	}
	return sum, nil
}

// check reads the checksum behind a payload.
func (c *chunk) check(want uint32) error {
	var sum [checkBytes]byte
	for have := 0; have < len(sum); {
		n, err := c.some(sum[have:])
		have += n
		if err != nil {
			return err
		}
	}
	if binary.LittleEndian.Uint32(sum[:]) != want {
		return ErrDamaged
	}
	return nil
}

// room is where the next bytes go, at most that many, and says whether it is the memory of the message. If that is of
// many short segments, several of them are read at once and copied.
func (c *chunk) room(most int64) (p []byte, direct bool) {
	if !c.unwanted {
		if p = c.rest.piece(most); len(p) >= leastPiece || int64(len(p)) == most {
			return p, true
		}
	}
	if c.scratch == nil {
		c.scratch = conn.Grow(nil, scratchBytes)[:scratchBytes]
	}
	return c.scratch[:min(int64(len(c.scratch)), most)], false
}

// some reads into p. When the message is cancelled it lets go of the memory, and reads the rest elsewhere.
func (c *chunk) some(p []byte) (int, error) {
	n, err := c.lane.in.Read(p)
	if n > 0 {
		c.lane.link.hear()
		return n, nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
		c.letGo()
	}
	return 0, err
}

// letGo ends the use of the memory of a message that was cancelled.
func (c *chunk) letGo() {
	a, l := c.lane, c.lane.link
	l.mu.Lock()
	defer l.mu.Unlock()
	a.in.SetReadDeadline(time.Time{})
	if e := c.expect; e != nil && e.ended && a.filling == e {
		a.filling = nil
		e.busy--
		l.mu.quiet.Broadcast()
		c.unwanted = true
	}
}
