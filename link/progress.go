package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
)

const (
	wordBytes = 40

	// maxWords is how many progresses a link carries. It bounds the payload of a ping, at both ends.
	maxWords = 256
)

// A Progress is how far this process has come with the operations of a stream. Every ping of a link that carries it
// tells the peer, so that the peer can tell a process that works from one that answers and stands still (CL-TRN-7).
type Progress struct {
	of message // set in NewProgress, then constant

	started, ended atomic.Uint64
}

// NewProgress makes the progress of what a header names by Family, Stream, Generation and Step. No operation has begun.
func NewProgress(of Header) *Progress {
	return &Progress{of: progressName(of)}
}

func progressName(of Header) message {
	of.Seq = 0
	return of.message()
}

// Start notes that an operation has begun. Operations are numbered from 1; a lower number than the last says nothing.
func (p *Progress) Start(seq uint64) { raise(&p.started, seq) }

// End notes that an operation has ended.
func (p *Progress) End(seq uint64) { raise(&p.ended, seq) }

func raise(v *atomic.Uint64, to uint64) {
	for {
		old := v.Load()
		if to <= old || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// Carry lets every ping of the link tell the peer of p, until [Link.Forget] of its stream.
func (l *Link) Carry(p *Progress) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.state == down {
		return l.mu.cause
	}
	for _, other := range l.mu.carried {
		if other.of == p.of {
			return &serry.InvalidError{What: "two progresses of the same name"}
		}
	}
	if len(l.mu.carried) >= maxWords {
		return &serry.LimitError{Limit: "progresses that a link carries", Max: maxWords}
	}
	l.mu.carried = append(l.mu.carried, p)
	return nil
}

// A Standing is how far a peer has come with a stream, as its last ping said.
type Standing struct {
	Started uint64        // the last operation that has begun, or 0
	Ended   uint64        // the last operation that has ended, or 0
	Since   time.Duration // how long the pings have said that
}

// Standing is how far the peer has come with what a header names; see [NewProgress]. The pings of a peer may not have
// told.
func (l *Link) Standing(of Header) (s Standing, told bool) {
	now := l.net.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	w, told := l.mu.told[progressName(of)]
	return Standing{w.started, w.ended, now - w.since}, told
}

// A word is one progress in a ping.
type word struct {
	of             message
	started, ended uint64
	since          time.Duration // when the ping came that first said so
}

// words is the payload of a ping. The lock is held.
func (l *Link) words() []byte {
	if len(l.mu.carried) == 0 {
		return nil
	}
	b := make([]byte, 0, wordBytes*len(l.mu.carried))
	for _, p := range l.mu.carried {
		ended := p.ended.Load() // before started, so that no operation ends before it begins
		b = (&word{of: p.of, started: p.started.Load(), ended: ended}).append(b)
	}
	return b
}

func (w *word) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(w.of.family))
	b = le.AppendUint32(b, w.of.generation)
	b = le.AppendUint32(b, w.of.step)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, w.of.stream)
	b = le.AppendUint64(b, w.started)
	return le.AppendUint64(b, w.ended)
}

var errWords = errors.New("words about progress make no sense")

// parseWords reads the payload of a ping.
func parseWords(b []byte) ([]word, error) {
	if len(b)%wordBytes != 0 || len(b) > maxWords*wordBytes {
		return nil, fmt.Errorf("%w: %d bytes", errWords, len(b))
	}
	le := binary.LittleEndian
	all := make([]word, 0, len(b)/wordBytes)
	for ; len(b) > 0; b = b[wordBytes:] {
		if f := le.Uint32(b); f >= uint32(families) || le.Uint32(b[12:]) != 0 {
			return nil, fmt.Errorf("%w: family %d", errWords, f)
		}
		of := message{family: Family(b[0]), generation: le.Uint32(b[4:]), step: le.Uint32(b[8:]), stream: le.Uint64(b[16:])}
		all = append(all, word{of: of, started: le.Uint64(b[24:]), ended: le.Uint64(b[32:])})
	}
	return all, nil
}

// heardWords takes the payload of a ping. It replaces that of the ping before: what the peer does not tell any more is
// forgotten.
func (l *Link) heardWords(payload []byte) error {
	all, err := parseWords(payload)
	if err != nil {
		return err
	}
	now := l.net.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.mu.told
	l.mu.told = nil
	if len(all) > 0 {
		l.mu.told = make(map[message]word, len(all))
	}
	for _, w := range all {
		w.since = now
		if old, known := before[w.of]; known && old.started == w.started && old.ended == w.ended {
			w.since = old.since
		}
		l.mu.told[w.of] = w
	}
	return nil
}
