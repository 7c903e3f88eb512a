package link_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// What a storm must not show:
//
//   - a message or frame of another life than the peer, or for another life than this one;
//   - other bytes than were sent, a frame out of order, a frame that cannot be read;
//   - a message on a link that is up which does not arrive, or a link that is not made between two lives;
//   - a link to a life that is over which stays up, or a failure without a typed cause;
//   - a life that is called failed and is not;
//   - a process that does not end, or leaves connections or addresses behind.

const (
	hangs   = 20 * time.Second // no message takes so long
	settles = 15 * time.Second // until all losses are seen

	// unreadMost is what a receiver that takes all messages may leave its sender uncertain of: a quarter of the
	// window, and some messages under way.
	unreadMost = 300 << 10
)

// An identity is what each message begins with or is made from: who sends, who shall receive, and which
// link it is.
type identity struct {
	From, To serry.Life
	Nonce    uint64
}

const identityBytes = 40

func (i identity) append(b []byte) []byte {
	for _, v := range []uint64{uint64(i.From.Task.Index), uint64(i.From.Incarnation), uint64(i.To.Task.Index), uint64(i.To.Incarnation), i.Nonce} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

func readIdentity(b []byte) identity {
	v := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	return identity{life(int(v(0)), v(1)), life(int(v(2)), v(3)), v(4)}
}

// header names message n of a direction, and size is how long it is: both ends know without asking.
func (i identity) header(n uint64) link.Header {
	if n%3 == 0 {
		return link.Header{Family: link.Transfer, Type: link.TransferData, Stream: n}
	}
	return link.Header{Family: link.Collective, Type: link.CollectiveData, Stream: 5, Seq: n}
}

func (i identity) size(n uint64) int {
	d := rand.New(rand.NewPCG(i.Nonce, n))
	return []int{1 + d.IntN(100), link.SmallBytes, 9000 + d.IntN(30_000), d.IntN(150_000)}[min(d.IntN(6), 3)]
}

// pattern makes bytes that tell which message they belong to, and where in it.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		seed += 0x9E3779B97F4A7C15
		binary.LittleEndian.PutUint64(b[i:], seed)
	}
	return b[:n]
}

// burst is how many messages are sent before the receiver posts memory, where there are bursts: more than
// may be parked.
const burst = 160

func (i identity) burstHeader(n uint64) link.Header {
	return link.Header{Family: link.Collective, Type: link.CollectiveData, Stream: 6, Seq: n}
}

// A stormEnd is one end of a link that is up.
type stormEnd struct {
	*stormLife
	link     *link.Link
	received atomic.Int64
}

// A stormHandler starts a stormEnd on every link that comes up, and checks frames.
type stormHandler struct {
	life *stormLife

	mu     sync.Mutex
	links  map[*link.Link]*stormEnd
	frames map[frameKey]frameSeen
}

type frameKey struct {
	link  *link.Link
	class link.Class
}

type frameSeen struct {
	from identity
	seq  uint64
}

// Event starts a stormEnd on a link that is up.
func (h *stormHandler) Event(e link.Event) {
	if e.Kind == link.LinkUp && !h.life.dead.Load() {
		h.life.work.Go(func() { h.serve(e.Peer) })
	}
}

func (h *stormHandler) serve(peer serry.Life) {
	l, err := h.life.net.Link(h.life.ctx, peer)
	if err != nil {
		return // it is down already
	}
	x := &stormEnd{stormLife: h.life, link: l}
	h.mu.Lock()
	if h.links == nil {
		h.links = make(map[*link.Link]*stormEnd)
	}
	started := h.links[l] != nil
	if !started {
		h.links[l] = x
	}
	h.mu.Unlock()
	if started {
		return
	}
	x.work.Go(x.send)
	x.work.Go(x.receive)
	<-l.Done()
	h.life.judgeLoss(l)
}

// endOn is the end of a link, or nil.
func (h *stormHandler) endOn(l *link.Link) *stormEnd {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[l]
}

// Unexpected keeps everything.
func (h *stormHandler) Unexpected(*link.Link, link.Header) bool { return true }

// Frame checks a frame that is not data: it is from the peer and for this life, and the next of its class.
func (h *stormHandler) Frame(l *link.Link, head link.Header, payload []byte) {
	if len(payload) != identityBytes {
		h.life.wrong("%v: a frame of %d bytes", h.life.life, len(payload))
		return
	}
	from := readIdentity(payload)
	h.life.judgeIdentity(l, from)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frames == nil {
		h.frames = make(map[frameKey]frameSeen)
	}
	key := frameKey{l, head.Class}
	last, ok := h.frames[key]
	if ok && last.from != from || head.Seq != last.seq+1 {
		h.life.wrong("%v: frame %d of %+v came after frame %d of %+v", h.life.life, head.Seq, from, last.seq, last.from)
	}
	h.frames[key] = frameSeen{from, head.Seq}
}

// judgeIdentity checks who sent something, and to whom.
func (l *stormLife) judgeIdentity(on *link.Link, i identity) {
	if i.From != on.Peer() || i.To != l.life {
		l.wrong("%v got on its link to %v what %v sent to %v", l.life, on.Peer(), i.From, i.To)
	}
}

// send sends messages until the link ends, or the storm does.
func (x *stormEnd) send() {
	me := identity{x.life, x.link.Peer(), rand.Uint64()}
	dice := rand.New(rand.NewPCG(me.Nonce, 7))
	if !x.post(link.Header{Family: link.Collective, Type: link.CollectiveData, Stream: 4}, me.append(nil)) {
		return
	}
	if x.bursts {
		for n := range uint64(burst) {
			if !x.post(me.burstHeader(n), pattern(link.SmallBytes, me.Nonce+n)) {
				return
			}
		}
	}
	for n := uint64(1); ; n++ {
		link.ChangeLanes(x.link, dice.IntN(3) > 0)
		if !x.post(me.header(n), pattern(me.size(n), me.Nonce^n)) {
			return
		}
		class := []link.Class{link.Control, link.Normal}[n%2]
		_, err := x.link.Post(link.Header{Family: link.Collective, Type: link.OpDesc, Class: class, Stream: 5, Seq: (n + 1) / 2}, me.append(nil))
		if err != nil && !errors.Is(err, link.ErrCongested) {
			x.judgeError(x.link.Peer(), err)
			return
		}
		if errors.Is(err, link.ErrCongested) {
			x.wrong("%v: frame %d to %v: %v", x.life, n, x.link.Peer(), err)
		}
		select {
		case <-time.After(time.Duration(dice.IntN(1000)) * time.Millisecond):
		case <-x.ended:
			return
		case <-x.ctx.Done():
			return
		}
	}
}

// post sends a message and waits until it has left. It says whether to go on.
func (x *stormEnd) post(h link.Header, b []byte) bool {
	t, err := x.link.Post(h, b)
	if err != nil {
		x.judgeError(x.link.Peer(), err)
		return false
	}
	return x.await(t, h, "leave")
}

// await waits for a message, which must not take for ever on a link that is up.
func (x *stormEnd) await(t *link.Ticket, h link.Header, what string) bool {
	timer := time.NewTimer(hangs)
	defer timer.Stop()
	select {
	case <-t.Done():
	case <-timer.C:
		if what == "leave" || !x.stopping() {
			x.wrong("%v, link to %v: a message does not %s: %+v, %+v", x.life, x.link.Peer(), what, h, x.link.Stats())
		}
		return false
	}
	if err := t.Err(); err != nil {
		x.judgeError(x.link.Peer(), err)
		return false
	}
	return true
}

// stopping says whether no new messages are begun.
func (x *stormEnd) stopping() bool {
	select {
	case <-x.ended:
		return true
	default:
		return false
	}
}

// receive takes the messages of the peer, and checks them.
func (x *stormEnd) receive() {
	var b [identityBytes]byte
	if !x.take(link.Header{Family: link.Collective, Type: link.CollectiveData, Stream: 4}, b[:]) {
		return
	}
	from := readIdentity(b[:])
	x.judgeIdentity(x.link, from)
	if x.bursts {
		select {
		case <-time.After(100 * time.Millisecond): // the sender runs ahead
		case <-x.ctx.Done():
			return
		}
		for n := range uint64(burst) {
			if !x.takeAndCheck(from.burstHeader(n), pattern(link.SmallBytes, from.Nonce+n)) {
				return
			}
		}
	}
	for n := uint64(1); ; n++ {
		if !x.takeAndCheck(from.header(n), pattern(from.size(n), from.Nonce^n)) {
			return
		}
	}
}

func (x *stormEnd) takeAndCheck(h link.Header, want []byte) bool {
	got := make([]byte, len(want))
	if !x.take(h, got) {
		return false
	}
	if !bytes.Equal(got, want) {
		x.wrong("%v, link to %v: other bytes came than were sent: %+v", x.life, x.link.Peer(), h)
	}
	x.received.Add(1)
	return true
}

func (x *stormEnd) take(h link.Header, into []byte) bool {
	t, err := x.link.Expect(h, into)
	if err != nil {
		x.judgeError(x.link.Peer(), err)
		return false
	}
	if x.stopping() { // no more messages are begun: the end of the link ends this one
		<-t.Done()
		return false
	}
	return x.await(t, h, "arrive")
}

// judgeLoss checks why a link went down.
func (l *stormLife) judgeLoss(on *link.Link) { l.judgeError(on.Peer(), on.Err()) }

// unreadable are words of errors that only a peer or a network that breaks the protocol could cause.
var unreadable = []string{"not a frame", "checksum", "version", "unknown family", "too long", "twice", "outside of the memory", "more than its window", "not for it", "more credit", "announced more"}

// judgeError checks the cause of a failure: it is typed, it names the peer, and it does not call a life failed
// that is not over.
func (l *stormLife) judgeError(peer serry.Life, err error) {
	if l.dead.Load() {
		return // a process that is gone sees nothing
	}
	loss, ok := errors.AsType[*link.LossError](err)
	if !ok || loss.Peer != peer || loss.Reason == nil {
		l.wrong("%v, link to %v: the cause has no type, or is that of another: %v", l.life, peer, err)
		return
	}
	for _, word := range unreadable {
		if strings.Contains(loss.Reason.Error(), word) {
			l.wrong("%v, link to %v: a frame cannot be read: %v", l.life, peer, err)
		}
	}
	if errors.Is(err, link.ErrPeerFailed) && l.lives(peer) {
		l.wrong("%v calls %v failed, which lives: %v", l.life, peer, err)
	}
}

// lives says whether a life is not over.
func (s *storm) lives(peer serry.Life) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.mu.all {
		if l.life == peer {
			return !l.over.Load()
		}
	}
	return false
}

// run keeps links to all other tasks. Now and then it asks for a life that is over.
func (l *stormLife) run() {
	for task := range l.tasks {
		if task != l.life.Task.Index {
			l.work.Go(func() { l.keep(task) })
		}
	}
}

func (l *stormLife) keep(task int) {
	dice := rand.New(rand.NewPCG(uint64(l.life.Incarnation), uint64(task)))
	known := serry.Life{}
	for {
		if p := l.present(task); p != nil && (known == serry.Life{} || dice.IntN(3) > 0) {
			known = p.life
		}
		ctx, cancel := context.WithTimeout(l.ctx, 8*time.Second)
		if known != (serry.Life{}) {
			on, err := l.net.Link(ctx, known)
			l.judgeLink(ctx, known, on, err)
		}
		cancel()
		select {
		case <-time.After(time.Duration(100+dice.IntN(1500)) * time.Millisecond):
		case <-l.ended:
			return
		case <-l.ctx.Done():
			return
		}
	}
}

// judgeLink checks what Net.Link answered.
func (l *stormLife) judgeLink(ctx context.Context, peer serry.Life, on *link.Link, err error) {
	switch {
	case err == nil && on.Peer() != peer:
		l.wrong("%v: Link(%v) is one to %v", l.life, peer, on.Peer())
	case err == nil, ctx.Err() != nil:
	default:
		l.judgeError(peer, err)
	}
}

// settle waits until all losses are seen, then checks that all tasks reach each other.
func (s *storm) settle() {
	<-time.After(settles)
	s.mu.Lock()
	now := append([]*stormLife(nil), s.mu.now...)
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range now {
		if l.dead.Load() {
			continue
		}
		for _, stats := range l.net.Links() {
			if !s.lives(stats.Peer) {
				s.wrong("%v has a link to %v, which is over: %+v", l.life, stats.Peer, stats)
			}
		}
		for _, p := range now {
			if p != l && !p.dead.Load() {
				all.Go(func() { l.reaches(p) })
			}
		}
	}
	all.Wait()
}

// reaches checks that messages come from another process.
func (l *stormLife) reaches(p *stormLife) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	on, err := l.net.Link(ctx, p.life)
	if err != nil {
		l.wrong("%v does not reach %v: %v", l.life, p.life, err)
		return
	}
	<-time.After(100 * time.Millisecond)
	x := l.handler.endOn(on)
	if x == nil {
		l.wrong("%v was not told that its link to %v is up", l.life, p.life)
		return
	}
	before := x.received.Load()
	<-time.After(3 * time.Second)
	if stats := on.Stats(); stats.Unread > unreadMost && on.Err() == nil {
		l.wrong("%v has %d bytes of credit less with %v than it should: %+v", l.life, stats.Unread, p.life, stats)
	}
	if x.received.Load() == before && on.Err() == nil {
		l.wrong("%v gets no messages from %v any more: %+v", l.life, p.life, on.Stats())
	}
}

// finish ends all processes, and checks what they leave behind.
func (s *storm) finish() {
	for _, l := range s.mu.all {
		l.over.Store(true)
	}
	for _, l := range s.mu.all {
		if l.dead.Load() {
			continue
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := l.net.Close(ctx); err != nil {
			s.wrong("%v: Close: %v", l.life, err)
		}
		cancel()
		l.cancel()
		l.work.Wait()
		if took := time.Since(begun); took > time.Second {
			s.wrong("%v took %v to end", l.life, took)
		}
		for _, key := range s.keyNames() {
			if key == fmt.Sprintf("serry/link/%v/%016x", l.life.Task, uint64(l.life.Incarnation)) {
				s.wrong("%v left its addresses behind", l.life)
			}
		}
	}
	<-time.After(time.Second)
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	for c := range s.network.conns {
		s.wrong("a connection from %s to %s was not closed", c.from, c.to)
	}
}
