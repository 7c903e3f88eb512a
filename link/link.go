package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
)

const (
	// windowBytes is how much of small messages may be parked at the receiver.
	windowBytes = 1 << 20

	// maxMessages bounds the messages of a link that wait for the other side, of each kind.
	maxMessages = 1 << 16

	// maxBacklog is how much output of the control and small lanes may wait for a peer that does not read.
	maxBacklog = 4 << 20
)

// A state is where a link stands. It only goes forward.
type state int

const (
	forming  state = iota // connections are being made
	up                    // frames go both ways
	breaking              // the connections are closed, and it is found out why
	down                  // everything on it has failed
)

// A Link is the connections between this process and one life of another task. Get it from [Net.Link].
type Link struct {
	// Set before ready is closed, then constant.
	net    *Net
	peer   serry.Life
	set    uint64
	lanes  []*lane // control, small, then bulk
	checks [families]bool
	remote string // address of the peer, for people

	ready chan struct{} // closed when the link is up, or cannot come up
	lost  chan struct{} // closed when the service or the program has ended the link
	done  chan struct{} // closed when everything on the link has failed

	active  sync.WaitGroup // goroutines that read or write connections
	process process        // of the peer; guarded by the lock of exits
	heard   atomic.Int64   // when the peer was last heard: nanoseconds since the net was made
	moved   atomic.Int64   // when the bulk lanes last wrote a step, or had nothing to write
	written atomic.Int64   // bytes that they wrote
	counts  counts
	loans   loans // of the peer

	// Owned by the goroutine that has the turn of the small lane.
	guard    guard
	patience patience

	mu struct {
		sync.Mutex
		state    state
		cause    error     // once down, or once lost
		farewell error     // what the end of the connections means, once this side has said goodbye; or nil
		attached int       // forming: lanes that there are
		dial     *dialling // forming: or nil
		since    time.Time // up: since when
		quiet    sync.Cond // a goroutine has let go of the memory of a message

		guests   []*lane // that the peer has added
		turn     turn
		receiver receiver
		sender   sender
		tuner    tuner
		detector detector
		idleness idleness
		carried  []*Progress      // what pings tell
		told     map[message]word // what the last ping of the peer told
	}
}

// A process is that of a peer on this host, or zero.
type process struct {
	number int32 // by which exits knows it
	pidfd  int
}

// newLink makes a link that has no connections yet.
func newLink(n *Net, peer serry.Life) *Link {
	l := &Link{net: n, peer: peer, ready: make(chan struct{}), lost: make(chan struct{}), done: make(chan struct{})}
	l.mu.quiet.L = &l.mu
	return l
}

// Peer is the life at the other end.
func (l *Link) Peer() serry.Life { return l.peer }

// Done is closed when the link is down and everything on it has failed.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err is why the link is down, a *LossError, or nil.
func (l *Link) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state != down {
		return nil
	}
	return l.mu.cause
}

// Post sends a frame with the bytes of segs as its payload. It never blocks.
//
// Data are a message: they go to the memory that the peer posts by Expect under the same header, and with
// the same size. The memory of segs must not change until the ticket is done. A frame that is not data goes to
// the handler of the peer; its bytes are copied.
func (l *Link) Post(h Header, segs ...[]byte) (*Ticket, error) {
	size := sizeOf(segs)
	switch {
	case h.Family != Collective && h.Family != Transfer, h.Type == 0, h.Type > grammar[h.Family].last, h.Type == grammar[h.Family].credit:
		return nil, &serry.InvalidError{What: fmt.Sprintf("frame of type %d of family %v", h.Type, h.Family)}
	case h.Class >= classes:
		return nil, &serry.InvalidError{What: fmt.Sprintf("class %d", h.Class)}
	case h.Data() && size > SmallBytes:
		return l.postBulk(h, segs, size)
	case h.Data():
		return l.postSmall(h, segs, size)
	case size > ControlBytes:
		return nil, &serry.InvalidError{What: fmt.Sprintf("frame of %d bytes, at most %d", size, ControlBytes)}
	}
	return sent, l.postFrame(h, segs, size)
}

// postFrame sends a frame that is not data.
func (l *Link) postFrame(h Header, segs [][]byte, size int64) error {
	if err := l.usable(); err != nil {
		return err
	}
	h.length = uint32(size)
	if lane := l.laneOf(h.Class); !lane.send(&h, segs, maxBacklog) {
		return l.congestion()
	}
	return nil
}

// laneOf is the lane for frames that are not bulk data.
func (l *Link) laneOf(c Class) *lane {
	if c == Control {
		return l.lanes[controlLane]
	}
	return l.lanes[smallLane]
}

// usable says why no frame can be sent, or nil. While it is being found out why the link broke, frames are
// dropped: they would have been lost, too.
func (l *Link) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == down {
		return l.mu.cause
	}
	return nil
}

// Expect posts the memory for a message of the peer. It never blocks. The memory must not be used until
// the ticket is done. There may be one Expect for the same bytes of a message at a time.
func (l *Link) Expect(h Header, into ...[]byte) (*Ticket, error) {
	if h.Family != Collective && h.Family != Transfer || h.Type != grammar[h.Family].data {
		return nil, &serry.InvalidError{What: fmt.Sprintf("memory for frames of type %d of family %v", h.Type, h.Family)}
	}
	e := &expect{link: l, name: h.message(), from: h.Offset, to: h.Offset + uint64(sizeOf(into))}
	e.into = append(e.inline[:0], into...)
	e.message = e
	if e.to < e.from {
		return nil, &serry.InvalidError{What: fmt.Sprintf("%d bytes at offset %d", sizeOf(into), h.Offset)}
	}
	l.mu.Lock()
	if l.mu.state == down {
		defer l.mu.Unlock()
		return nil, l.mu.cause
	}
	credit, err := l.mu.receiver.post(e)
	if credit && e.large() {
		l.startReaders()
	}
	told, due := l.mu.receiver.due()
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if credit {
		l.grant(h, e)
	}
	if due {
		l.sendWindow(told)
	}
	return &e.Ticket, nil
}

// grant tells the peer that there is memory for its message.
func (l *Link) grant(h Header, e *expect) {
	h.Type, h.Class, h.Offset = grammar[h.Family].credit, Control, e.from
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], e.to-e.from)
	h.length = uint32(len(n))
	l.control(&h, n[:])
}

// sendWindow tells the peer how much of its small messages has found memory.
func (l *Link) sendWindow(consumed uint64) {
	l.control(&Header{Type: typeWindow, Seq: consumed})
}

// control sends a frame of the link itself. The backlog of these frames is bounded by what the peer sends; a
// peer that asks and does not read the answers loses the link.
func (l *Link) control(h *Header, segs ...[]byte) {
	if !l.lanes[controlLane].send(h, segs, maxBacklog) {
		l.broken(fmt.Errorf("%w: it does not read", ErrCongested))
	}
}

// Forget drops everything that belongs to a stream which is over: messages that are parked or announced,
// credit that was not used, the progress that pings tell, and messages that wait, whose tickets fail.
func (l *Link) Forget(f Family, stream uint64, generation uint32, cause error) {
	of := func(m message) bool { return m.family == f && m.stream == stream && m.generation == generation }
	l.mu.Lock()
	l.mu.receiver.forget(of)
	l.mu.carried = slices.DeleteFunc(l.mu.carried, func(p *Progress) bool { return of(p.of) })
	told, due := l.mu.receiver.due()
	over := append(l.mu.receiver.matching(of), l.mu.sender.matching(of)...)
	l.mu.Unlock()
	if due {
		l.sendWindow(told)
	}
	for _, m := range over {
		m.cancel(cause)
	}
}

// Shutdown closes the link, and tells the peer why. When it returns, everything on the link has failed and
// no memory of the program is touched any more. Handlers must not call it: it waits for them.
func (l *Link) Shutdown(cause error) {
	closed := &LossError{Peer: l.peer, Source: FromSelf, Reason: cause, Err: ErrClosed}
	l.mu.Lock()
	isUp := l.mu.state == up
	l.mu.farewell = closed
	l.mu.Unlock()
	if isUp {
		l.bye(cause)
	}
	l.end(closed)
	<-l.done
}

// bye says goodbye, and waits a moment for the peer to answer by closing: to close a connection with unread
// bytes would drop what is under way.
func (l *Link) bye(cause error) {
	text := cause.Error()
	text = text[:min(len(text), 512)]
	l.lanes[controlLane].send(&Header{Type: typeBye, length: uint32(len(text))}, [][]byte{[]byte(text)}, maxBacklog)
	timer := time.NewTimer(byeTime)
	defer timer.Stop()
	select {
	case <-l.lost:
	case <-timer.C:
	}
}

const byeTime = 5 * time.Millisecond

// start makes the link usable: all of its connections are there.
func (l *Link) start() {
	l.mu.Lock()
	if l.mu.state != forming {
		l.mu.Unlock()
		return
	}
	l.mu.state = up
	l.mu.since = time.Now()
	l.mu.detector.start(l.net.now())
	l.heard.Store(int64(l.net.now()))
	l.active.Add(2)
	l.mu.turn.held = true
	l.net.exits.add(l, l.lanes[controlLane].in.Conn)
	l.mu.Unlock()
	l.net.linkUp(l)
	for _, lane := range l.lanes[:firstBulk] {
		go lane.readFrames()
	}
	close(l.ready)
}

// isUp says whether the link has come up, be it down now or not.
func (l *Link) isUp() bool {
	select {
	case <-l.ready:
		return true
	default:
		return false
	}
}

// end takes the link down for a reason that needs no finding out.
func (l *Link) end(cause error) {
	l.mu.Lock()
	was := l.mu.state
	if was == down || l.mu.cause != nil {
		l.mu.Unlock()
		return
	}
	l.mu.cause = cause
	close(l.lost)
	if l.mu.dial != nil {
		l.mu.dial.cancel(cause)
	}
	if was == breaking {
		l.mu.Unlock() // the goroutine that finds out why has been told
		return
	}
	l.mu.state = breaking
	l.mu.Unlock()
	l.disconnect(cause)
	go l.finish(was)
}

// broken takes the link down because of what was seen on a connection. Why is found out meanwhile.
func (l *Link) broken(seen error) {
	l.mu.Lock()
	was, farewell := l.mu.state, l.mu.farewell
	if was != up || farewell != nil {
		l.mu.Unlock()
		if farewell != nil {
			l.end(farewell)
		}
		return
	}
	l.mu.state = breaking
	l.mu.Unlock()
	l.disconnect(seen)
	go func() {
		l.active.Wait() // before the verdict, so that memory is quiet as early as can be
		verdict := l.net.judge(l, seen)
		l.mu.Lock()
		if l.mu.cause == nil {
			l.mu.cause = verdict
		}
		l.mu.Unlock()
		l.finish(was)
	}()
}

// disconnect closes the connections.
func (l *Link) disconnect(cause error) {
	l.net.remove(l)
	for _, lane := range l.connections() {
		if lane != nil {
			lane.close(cause)
		}
	}
}

// finish fails everything on the link, once no goroutine uses its connections.
func (l *Link) finish(was state) {
	l.active.Wait()
	for _, lane := range l.lanes {
		if lane != nil {
			lane.wait()
		}
	}
	l.guard.clear()
	l.net.exits.remove(l)
	if err := l.loans.close(); err != nil {
		l.net.log.Warn("segments of a peer not freed", "peer", l.peer.Task, "err", err)
	}
	l.mu.Lock()
	l.mu.state = down
	cause := l.mu.cause
	all := func(message) bool { return true }
	l.mu.receiver.forget(all)
	over := append(l.mu.receiver.matching(all), l.mu.sender.matching(all)...)
	l.mu.Unlock()
	for _, m := range over {
		m.cancel(cause)
	}
	if was == forming {
		close(l.ready)
	} else {
		l.net.linkDown(l, cause)
	}
	close(l.done)
	l.net.work.Done()
}

// hear notes that the peer has sent something.
func (l *Link) hear() { l.heard.Store(int64(l.net.now())) }

// move notes that the bulk lanes have moved on.
func (l *Link) move() { l.moved.Store(int64(l.net.now())) }

func sizeOf(segs [][]byte) (n int64) {
	for _, s := range segs {
		n += int64(len(s))
	}
	return n
}

var errPeerClosed = errors.New("the peer closed the link")
