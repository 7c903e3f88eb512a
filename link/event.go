package link

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"github.com/serry-dev/serry"
)

// A Handler is what a family does with the frames of its links. Its methods are called by the goroutines
// that read connections, several at a time, so they must not block, nor wait for a link.
type Handler interface {
	// Frame takes a frame that is not data. The payload is valid during the call.
	Frame(l *Link, h Header, payload []byte)

	// Unexpected is asked about data, announcements and credit that no call has asked for yet. It says whether
	// their stream is known, or may become known: then the link keeps them. Otherwise they are dropped,
	// and the family may tell the peer that the stream is over.
	Unexpected(l *Link, h Header) (keep bool)

	// Event tells what happens to links.
	Event(e Event)
}

// A Kind says what an event is about.
type Kind int

// The kinds of events.
const (
	LinkUp      Kind = 1 + iota // a link can be used
	LinkDown                    // everything on a link has failed; Err says why
	PeerExit                    // the process of the peer was seen to end; Err says how
	PeerSuspect                 // the peer was silent for a while
	PeerAlive                   // a suspected peer was heard again
	Congested                   // the peer takes no more small messages without credit
	PeerStalled                 // the peer answers, and takes nothing of the messages that it has memory for
)

// String is one word.
func (k Kind) String() string {
	texts := [...]string{"", "up", "down", "exit", "suspect", "alive", "congested", "stalled"}
	if k > 0 && int(k) < len(texts) {
		return texts[k]
	}
	return "event " + strconv.Itoa(int(k))
}

// An Event is something that happened to a link or to its peer.
type Event struct {
	Kind Kind
	Peer serry.Life
	Err  error // or nil
}

// Handle sets the handler of a family, once. Peers may dial as soon as Open has published the addresses, so frames
// may come before: the Net keeps them, within limits, and hands them over now. Data are kept by their links.
func (n *Net) Handle(f Family, h Handler) error {
	if f != Collective && f != Transfer {
		return &serry.InvalidError{What: "handler of family " + f.String()}
	}
	n.early.Lock()
	defer n.early.Unlock()
	if n.handler(f) != nil {
		return &serry.InvalidError{What: "second handler of family " + f.String()}
	}
	for _, e := range n.early.frames {
		if e.header.Family == f && e.link.Err() == nil { // no event would tell h of a link that is down already
			h.Frame(e.link, e.header, e.payload)
		}
	}
	n.early.frames = slices.DeleteFunc(n.early.frames, func(e earlyFrame) bool { return e.header.Family == f })
	n.early.bytes = 0
	for _, e := range n.early.frames {
		n.early.bytes += len(e.payload)
	}
	n.handlers[f].Store(&h)
	return nil
}

// earlyFrames are frames whose family has no handler yet. The lock orders them with all that comes after: a frame that
// arrives while Handle hands them over waits for its turn.
type earlyFrames struct {
	sync.Mutex
	frames []earlyFrame
	bytes  int // of their payloads
}

type earlyFrame struct {
	link    *Link
	header  Header
	payload []byte
}

// Limits of early frames of a Net. A program that opens links and never begins with a family makes its peers wait
// until their deadlines, and needs no more memory than this.
const (
	maxEarlyFrames = 4096
	maxEarlyBytes  = 4 << 20
)

// handler is that of a family, or nil.
func (n *Net) handler(f Family) Handler {
	if h := n.handlers[f].Load(); h != nil {
		return *h
	}
	return nil
}

// settled is the handler of a family, or nil. If there is none it returns with n.early locked, so that none can be set
// before the caller has done what it does without one.
func (n *Net) settled(f Family) Handler {
	if h := n.handler(f); h != nil {
		return h
	}
	n.early.Lock()
	if h := n.handler(f); h != nil {
		n.early.Unlock()
		return h
	}
	return nil
}

// frame hands a frame to its family.
func (n *Net) frame(l *Link, h Header, payload []byte) {
	if handler := n.settled(h.Family); handler != nil {
		handler.Frame(l, h, payload)
		return
	}
	defer n.early.Unlock()
	if len(n.early.frames) >= maxEarlyFrames || n.early.bytes+len(payload) > maxEarlyBytes {
		l.counts.strays.Add(1)
		return
	}
	n.early.frames = append(n.early.frames, earlyFrame{l, h, bytes.Clone(payload)})
	n.early.bytes += len(payload)
}

// unexpected asks the family whether to keep something that no call has asked for.
func (n *Net) unexpected(l *Link, h *Header) bool {
	handler := n.handler(h.Family)
	return handler == nil || handler.Unexpected(l, *h)
}

// emit tells an event to both families.
func (n *Net) emit(e Event) {
	n.log.Debug("link event", "event", e.Kind.String(), "peer", e.Peer.Task, "incarnation", e.Peer.Incarnation, "err", e.Err)
	for _, f := range []Family{Collective, Transfer} {
		if handler := n.settled(f); handler != nil {
			handler.Event(e)
		} else {
			n.early.Unlock()
		}
	}
}
