package link

import (
	"strconv"

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
)

// String is one word.
func (k Kind) String() string {
	texts := [...]string{"", "up", "down", "exit", "suspect", "alive", "congested"}
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

// Handle sets the handler of a family. It is set once, before links carry frames of the family; without a
// handler its frames are dropped, and its data are kept.
func (n *Net) Handle(f Family, h Handler) error {
	if f != Collective && f != Transfer || !n.handlers[f].CompareAndSwap(nil, &h) {
		return &serry.InvalidError{What: "handler of family " + f.String()}
	}
	return nil
}

// handler is that of a family, or nil.
func (n *Net) handler(f Family) Handler {
	if h := n.handlers[f].Load(); h != nil {
		return *h
	}
	return nil
}

// frame hands a frame to its family.
func (n *Net) frame(l *Link, h Header, payload []byte) {
	if handler := n.handler(h.Family); handler != nil {
		handler.Frame(l, h, payload)
		return
	}
	l.counts.strays.Add(1)
}

// unexpected asks the family whether to keep something that no call has asked for.
func (n *Net) unexpected(l *Link, h *Header) bool {
	handler := n.handler(h.Family)
	return handler == nil || handler.Unexpected(l, *h)
}

// emit tells an event to both families.
func (n *Net) emit(e Event) {
	n.log.Debug("link event", "event", e.Kind.String(), "peer", e.Peer.Task, "incarnation", e.Peer.Incarnation, "err", e.Err)
	for f := range n.handlers {
		if handler := n.handler(Family(f)); handler != nil {
			handler.Event(e)
		}
	}
}
