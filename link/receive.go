package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A receiver has what a link knows of messages to come. The lock of the link guards it.
type receiver struct {
	expected  map[message]*expect  // the first of those with a name
	large     int                  // expectations that the peer has credit for, on bulk lanes
	parked    map[message][]parked // small messages that found no memory
	announced map[place]struct{}   // small messages that the peer has, and does not send
	bytes     int                  // parked
	count     int                  // expected
	watched   int                  // of those, small ones that are watched: see turn
	served    bool                 // a goroutine got its message from another one, and would have read itself
	consumed  uint64               // bytes of small messages that found memory, so far
	told      uint64               // of those, what the peer knows
	idleScans int                  // since the last large expectation was posted, and the last chunk came
	withdrawn map[message]uint64   // bytes that the peer has credit for, and no memory any more
}

// A place is the beginning of a message.
type place struct {
	message
	offset uint64
}

// A parked message waits for its memory.
type parked struct {
	offset uint64
	bytes  []byte
}

// windowCost is what a small message takes of the window of its sender.
func windowCost(size int) int { return size + headerBytes }

// An expect is memory for a message.
type expect struct {
	Ticket
	link     *Link
	name     message
	from, to uint64 // the bytes of the message
	into     [][]byte
	inline   [2][]byte // room for into

	// Guarded by the lock of the link.
	next     *expect // with the same name, or nil
	begun    []span  // bytes that came, or are being read; sorted
	received uint64
	busy     int  // lanes that are reading into the memory
	watched  bool // a goroutine waits for it and does not read: see turn
	asks     bool // that goroutine is in Wait, and would read
	damaged  bool // bytes of it came with a wrong checksum
	ended    bool // complete, failed or cancelled
}

// A span is a range of the bytes of a message.
type span struct{ from, to uint64 }

func (e *expect) large() bool { return e.to-e.from > SmallBytes }

// holds says whether bytes at an offset belong to the expectation.
func (e *expect) holds(offset uint64) bool {
	return offset >= e.from && offset < e.to || offset == e.from
}

// post adds an expectation. It says whether the peer needs to be told. A small message that is parked
// completes it at once.
func (r *receiver) post(e *expect) (credit bool, err error) {
	for other := r.expected[e.name]; other != nil; other = other.next {
		if e.holds(other.from) || other.holds(e.from) {
			return false, &serry.InvalidError{What: "two memories for the same bytes of a message"}
		}
	}
	for i, p := range r.parked[e.name] {
		if e.holds(p.offset) {
			r.unpark(e.name, i)
			if !e.link.net.opt.Planted.Has(plant.CreditLeak) {
				r.consumed += uint64(windowCost(len(p.bytes)))
			}
			e.fill(p.offset, p.bytes)
			return false, nil
		}
	}
	if r.count >= maxMessages {
		return false, &serry.LimitError{Limit: "expected messages of a link", Max: maxMessages}
	}
	if r.expected == nil {
		r.expected = make(map[message]*expect)
	}
	e.next = r.expected[e.name]
	r.expected[e.name] = e
	r.count++
	delete(r.withdrawn, e.name) // what comes now is for the new memory
	if e.large() {
		r.large++
		r.idleScans = 0
		return true, nil
	}
	at := place{e.name, e.from}
	_, waits := r.announced[at]
	delete(r.announced, at)
	return waits, nil
}

// fill completes an expectation by a whole small message.
func (e *expect) fill(offset uint64, bytes []byte) {
	e.ended = true
	if offset != e.from || uint64(len(bytes)) != e.to-e.from {
		e.end(fmt.Errorf("%w: %d bytes at %d, memory for %d at %d", ErrSize, len(bytes), offset, e.to-e.from, e.from))
		return
	}
	for _, s := range e.into {
		bytes = bytes[copy(s, bytes):]
	}
	e.end(nil)
}

// unpark removes a parked message.
func (r *receiver) unpark(name message, i int) {
	list := r.parked[name]
	r.bytes -= windowCost(len(list[i].bytes))
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(r.parked, name)
		return
	}
	r.parked[name] = list
}

// find returns the expectation for bytes at an offset, or nil.
func (r *receiver) find(name message, offset uint64) *expect {
	for e := r.expected[name]; e != nil; e = e.next {
		if e.holds(offset) {
			return e
		}
	}
	return nil
}

// drop forgets an expectation.
func (r *receiver) drop(e *expect) {
	first := r.expected[e.name]
	switch {
	case first == e && e.next == nil:
		delete(r.expected, e.name)
	case first == e:
		r.expected[e.name] = e.next
	default:
		for first != nil && first.next != e {
			first = first.next
		}
		if first == nil {
			return
		}
		first.next = e.next
	}
	r.count--
	if e.large() {
		r.large--
	}
	if e.watched {
		r.watched--
	}
}

// maxWithdrawn bounds the messages that are remembered as withdrawn. While there is one, bulk lanes are read.
const maxWithdrawn = 1024

// withdraw notes that the peer may send a large message, or the rest of it, although its memory is gone: the lanes must
// be read until it has come, because the sender waits for that.
func (r *receiver) withdraw(e *expect) {
	left := e.to - e.from
	for _, s := range e.begun {
		left -= s.to - s.from
	}
	if left == 0 || len(r.withdrawn) >= maxWithdrawn {
		return
	}
	if r.withdrawn == nil {
		r.withdrawn = make(map[message]uint64)
	}
	r.withdrawn[e.name] += left
}

// stray notes bytes of a message that has no memory.
func (r *receiver) stray(name message, length uint32) {
	r.idleScans = 0
	if left, ok := r.withdrawn[name]; ok && left > uint64(length) {
		r.withdrawn[name] = left - uint64(length)
	} else {
		delete(r.withdrawn, name)
	}
}

// idle says whether no large message can come.
func (r *receiver) idle() bool { return r.large == 0 && len(r.withdrawn) == 0 }

// take gives a small message to its memory, and says whether there is any. Memory that chunks of a message were read into
// is not there for another message of the same name: a lane may still be reading into it.
func (r *receiver) take(h *Header, payload []byte) bool {
	e := r.find(h.message(), h.Offset)
	if e == nil || len(e.begun) > 0 {
		return false
	}
	r.drop(e)
	r.consume(h)
	r.served = r.served || e.asks
	e.fill(h.Offset, payload)
	return true
}

// consume counts a small message that takes nothing of the window any more.
func (r *receiver) consume(h *Header) {
	if h.flags&flagCredited == 0 {
		r.consumed += uint64(windowCost(int(h.length)))
	}
}

// park keeps a small message that no memory is posted for.
func (r *receiver) park(h *Header, payload []byte) error {
	cost := windowCost(len(payload))
	if r.bytes+cost > windowBytes {
		return errWindow
	}
	if r.parked == nil {
		r.parked = make(map[message][]parked)
	}
	r.bytes += cost
	name := h.message()
	r.parked[name] = append(r.parked[name], parked{h.Offset, slices.Clone(payload)})
	return nil
}

// due says how much of the window the peer should be told of, and whether it is time to.
func (r *receiver) due() (consumed uint64, tell bool) {
	if r.consumed-r.told < windowBytes/4 {
		return 0, false
	}
	r.told = r.consumed
	return r.consumed, true
}

// forget drops what the peer has sent or announced of messages without memory.
func (r *receiver) forget(of func(message) bool) {
	for name, list := range r.parked {
		if !of(name) {
			continue
		}
		for _, p := range list {
			r.bytes -= windowCost(len(p.bytes))
			r.consumed += uint64(windowCost(len(p.bytes)))
		}
		delete(r.parked, name)
	}
	for at := range r.announced {
		if of(at.message) {
			delete(r.announced, at)
		}
	}
	maps.DeleteFunc(r.withdrawn, func(name message, _ uint64) bool { return of(name) })
	r.idleScans = 0 // the rest of it may be under way
}

// matching lists expectations.
func (r *receiver) matching(of func(message) bool) (all []cancellable) {
	for name, e := range r.expected {
		for ; e != nil && of(name); e = e.next {
			all = append(all, e)
		}
	}
	return all
}

// cancel implements cancellable. A lane that reads into the memory is interrupted; it goes on with the
// rest of its frame elsewhere.
func (e *expect) cancel(cause error) {
	l := e.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.ended {
		return
	}
	e.ended = true
	l.mu.receiver.drop(e)
	if e.large() {
		l.mu.receiver.withdraw(e)
	}
	if l.mu.turn.lent == e {
		l.lanes[smallLane].kickReader()
	}
	for e.busy > 0 {
		for lane := range l.readers() {
			if lane.filling == e {
				lane.kickReader()
			}
		}
		l.mu.quiet.Wait()
	}
	if e.damaged {
		cause = errors.Join(ErrDamaged, cause)
	}
	e.end(cause)
}

// receiveSmall takes a small message that has come.
func (l *Link) receiveSmall(h *Header, payload []byte) error {
	if h.flags&flagAnnounce != 0 {
		return l.receiveAnnouncement(h)
	}
	if l.deliver(h, payload) {
		return nil
	}
	keep := l.net.unexpected(l, h)
	l.mu.Lock()
	err := l.mu.receiver.keep(h, payload, keep, &l.counts.strays)
	told, due := l.mu.receiver.due()
	l.mu.Unlock()
	if due {
		l.sendWindow(told)
	}
	return err
}

// keep gives a small message to memory that was posted meanwhile, or parks it, or drops it. All of that happens
// under one hold of the lock: a message that is parked after a look for its memory would be missed by an Expect in
// between, and wait for ever.
func (r *receiver) keep(h *Header, payload []byte, known bool, strays *atomic.Uint64) error {
	switch {
	case r.take(h, payload):
	case known && h.flags&flagCredited == 0:
		return r.park(h, payload)
	default:
		// A message with credit had memory, which was withdrawn. There may be no room to park it: it was announced
		// because the window is full.
		strays.Add(1)
		r.consume(h)
	}
	return nil
}

// deliver takes a frame if it is a small message that memory is posted for. It calls no handler.
func (l *Link) deliver(h *Header, payload []byte) bool {
	if !h.Data() || h.flags&flagAnnounce != 0 {
		return false
	}
	l.mu.Lock()
	taken := l.mu.receiver.take(h, payload)
	told, due := l.mu.receiver.due()
	l.mu.Unlock()
	if due {
		l.sendWindow(told)
	}
	return taken
}

// receiveAnnouncement notes that the peer has a small message that it may not send yet.
func (l *Link) receiveAnnouncement(h *Header) error {
	at := place{h.message(), h.Offset}
	keep := l.net.unexpected(l, h)
	l.mu.Lock()
	r := &l.mu.receiver
	e := r.find(at.message, at.offset)
	if e == nil {
		defer l.mu.Unlock()
		if !keep {
			l.counts.strays.Add(1)
			return nil
		}
		if len(r.announced) >= maxMessages {
			return errAnnounce
		}
		if r.announced == nil {
			r.announced = make(map[place]struct{})
		}
		r.announced[at] = struct{}{}
		return nil
	}
	l.mu.Unlock()
	l.grant(*h, e)
	return nil
}
