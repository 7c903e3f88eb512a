package link

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// A sender has the messages of a link that have not left. The lock of the link guards it.
type sender struct {
	waiting   map[place]*post  // for credit
	granted   map[place]uint64 // credit for messages that were not posted yet, in bytes
	queue     [classes][]*post // with credit, and bytes that no lane has taken; the oldest first
	moving    map[*post]bool   // with credit, until the last byte is out
	turns     int              // chunks taken, for ageing
	sent      uint64           // bytes of small messages, so far
	consumed  uint64           // of those, what the peer said has found memory
	congested bool             // small messages are announced
}

// A post is a message to send.
type post struct {
	Ticket
	link   *Link
	header Header
	segs   [][]byte
	size   int64
	chunk  int64

	// Guarded by the lock of the link.
	cut      int64 // bytes that were given to lanes
	inflight int   // lanes that write from the memory
	failed   bool  // a lane did not write all of its chunk: the message cannot complete
	ended    bool  // complete, failed or cancelled
}

// place is where the message begins.
func (p *post) place() place { return place{p.header.message(), p.header.Offset} }

// postSmall sends a message without waiting for its receiver, or announces it if too many have found no
// memory there.
func (l *Link) postSmall(h Header, segs [][]byte, size int64) (*Ticket, error) {
	if h.Class == Control {
		h.Class = Urgent
	}
	cost := uint64(windowCost(int(size)))
	l.mu.Lock()
	s := &l.mu.sender
	switch {
	case l.mu.state == down:
		defer l.mu.Unlock()
		return nil, l.mu.cause
	case l.mu.state != up:
		defer l.mu.Unlock()
		p := newPost(l, h, segs, size)
		return &p.Ticket, s.wait(p)
	case s.sent-s.consumed+cost > windowBytes:
		p := newPost(l, h, segs, size)
		err := s.wait(p)
		first := !s.congested
		s.congested = true
		l.mu.Unlock()
		if first {
			l.net.emit(Event{Kind: Congested, Peer: l.peer})
		}
		if err == nil {
			err = l.announce(p)
		}
		return &p.Ticket, err
	}
	s.sent += cost
	l.mu.Unlock()
	l.sendSmall(h, segs, size)
	return sent, nil
}

// announce tells the peer that a small message waits for its credit. If the peer takes no more frames it would never
// give credit: the message is not sent, and the caller is told.
func (l *Link) announce(p *post) error {
	h := p.header
	h.flags = flagAnnounce
	if l.lanes[smallLane].send(&h, nil, maxBacklog) {
		return nil
	}
	p.cancel(ErrCongested)
	return l.congestion()
}

// congestion is the error of a frame that is not sent because too many before it were not read.
func (l *Link) congestion() error {
	return fmt.Errorf("%w: %v does not read", ErrCongested, l.peer.Task)
}

func (l *Link) sendSmall(h Header, segs [][]byte, size int64) {
	h.length = uint32(size)
	l.lanes[smallLane].send(&h, segs, 0)
}

func newPost(l *Link, h Header, segs [][]byte, size int64) *post {
	p := &post{link: l, header: h, segs: slices.Clone(segs), size: size}
	p.message = p
	return p
}

// postBulk sends a message once the peer has posted memory for it.
func (l *Link) postBulk(h Header, segs [][]byte, size int64) (*Ticket, error) {
	if h.Class == Control {
		h.Class = Normal
	}
	if h.Offset+uint64(size) < h.Offset {
		return nil, &serry.InvalidError{What: fmt.Sprintf("%d bytes at offset %d", size, h.Offset)}
	}
	p := newPost(l, h, segs, size)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.mu.sender
	if l.mu.state == down {
		return nil, l.mu.cause
	}
	at := p.place()
	n, granted := s.granted[at]
	if !granted || l.mu.state != up {
		return &p.Ticket, s.wait(p)
	}
	delete(s.granted, at)
	l.release(p, n)
	return &p.Ticket, nil
}

// wait keeps a message until there is credit for it.
func (s *sender) wait(p *post) error {
	at := p.place()
	if s.waiting[at] != nil {
		return &serry.InvalidError{What: "two messages of the same name"}
	}
	if len(s.waiting) >= maxMessages {
		return &serry.LimitError{Limit: "waiting messages of a link", Max: maxMessages}
	}
	if s.waiting == nil {
		s.waiting = make(map[place]*post)
	}
	s.waiting[at] = p
	return nil
}

// credited takes credit of the peer.
func (l *Link) credited(h *Header, payload []byte) error {
	if len(payload) != 8 {
		return errLength
	}
	n := binary.LittleEndian.Uint64(payload)
	at := place{h.message(), h.Offset}
	l.mu.Lock()
	p := l.mu.sender.waiting[at]
	if p != nil {
		l.credit(p, n)
		return nil
	}
	l.mu.Unlock()
	keep := l.net.unexpected(l, h)
	l.mu.Lock()
	if p := l.mu.sender.waiting[at]; p != nil { // posted meanwhile
		l.credit(p, n)
		return nil
	}
	defer l.mu.Unlock()
	s := &l.mu.sender
	switch {
	case !keep:
		l.counts.strays.Add(1)
	case len(s.granted) >= maxMessages:
		return errCredit
	default:
		if s.granted == nil {
			s.granted = make(map[place]uint64)
		}
		s.granted[at] = n
	}
	return nil
}

// credit lets a waiting message leave. It unlocks the link.
func (l *Link) credit(p *post, n uint64) {
	s := &l.mu.sender
	delete(s.waiting, p.place())
	if p.size > SmallBytes || uint64(p.size) != n {
		l.release(p, n)
		l.mu.Unlock()
		return
	}
	p.ended = true
	l.mu.Unlock()
	h := p.header
	h.flags |= flagCredited
	l.sendSmall(h, p.segs, p.size)
	p.end(nil)
}

// release gives a message with n bytes of credit to the bulk lanes. The lock is held.
func (l *Link) release(p *post, n uint64) {
	if uint64(p.size) != n {
		p.ended = true
		p.end(fmt.Errorf("%w: %d bytes, the peer expects %d", ErrSize, p.size, n))
		return
	}
	p.chunk = l.chunkOf(p.size)
	queue := &l.mu.sender.queue[p.header.Class]
	*queue = append(*queue, p)
	if len(l.mu.sender.moving) == 0 {
		l.move()
		l.mu.tuner.since = l.net.now()
	}
	if l.mu.sender.moving == nil {
		l.mu.sender.moving = make(map[*post]bool)
	}
	l.mu.sender.moving[p] = true
	l.startWriters(int((p.size + p.chunk - 1) / p.chunk))
}

// settle notes that a message does not move any more. The lock is held.
func (l *Link) settle(p *post) {
	moving := l.mu.sender.moving
	if !moving[p] {
		return
	}
	if delete(moving, p); len(moving) == 0 {
		l.mu.tuner.rest(l.net.now())
	}
}

// window notes how much of the small messages has found memory at the peer. Several goroutines of the peer send
// these frames, and one that counted earlier may send later: a lower number is old, and says nothing.
func (l *Link) window(consumed uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.mu.sender
	if consumed > s.sent {
		return errWindow
	}
	s.consumed = max(s.consumed, consumed)
	s.congested = s.congested && s.sent-s.consumed > windowBytes/2
	return nil
}

// agingTurns is how often the least urgent message goes first: once in so many chunks.
const agingTurns = 20

// next takes a chunk of the queue: of the most urgent class, and now and then of the least urgent, so that
// every class moves (CL-TRN-28). The lock is held.
func (s *sender) next() (p *post, from, to int64, ok bool) {
	class := -1
	s.turns++
	for c := range s.queue {
		if len(s.queue[c]) > 0 && (class < 0 || s.turns%agingTurns == 0) {
			class = c
		}
	}
	if class < 0 {
		return nil, 0, 0, false
	}
	p = s.queue[class][0]
	from, to = p.cut, min(p.cut+p.chunk, p.size)
	p.cut = to
	p.inflight++
	if to == p.size {
		s.queue[class][0] = nil
		s.queue[class] = s.queue[class][1:]
		if len(s.queue[class]) == 0 {
			s.queue[class] = nil
		}
	}
	return p, from, to, true
}

// matching lists messages that have not left, and forgets credit for those that did not come.
func (s *sender) matching(of func(message) bool) (all []cancellable) {
	for at := range s.granted {
		if of(at.message) {
			delete(s.granted, at)
		}
	}
	for at, p := range s.waiting {
		if of(at.message) {
			all = append(all, p)
		}
	}
	for p := range s.moving {
		if of(p.header.message()) {
			all = append(all, p)
		}
	}
	return all
}

// cancel implements cancellable. A lane that writes from the memory is interrupted; it copies the rest of
// its frame, which the peer needs to find the next one.
func (p *post) cancel(cause error) {
	l := p.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	s := &l.mu.sender
	if s.waiting[p.place()] == p {
		delete(s.waiting, p.place())
	}
	l.settle(p)
	class := p.header.Class
	s.queue[class] = slices.DeleteFunc(s.queue[class], func(q *post) bool { return q == p })
	for p.inflight > 0 {
		for lane := range l.writers() {
			if lane.draining == p {
				lane.kickWriter()
			}
		}
		l.mu.quiet.Wait()
	}
	p.end(cause)
}
