// Package gauge measures a link: how long a small message takes there and back, and how many bytes a
// second move.
//
// One process answers ([Serve]), the other one asks ([New], then [Gauge.Trips] and [Gauge.Stream]). A pair
// of processes without a service is made by [Listen] and [Dial].
//
// Every message has a stream of its own, counted from 1, so that both ends name it without asking: first
// an order, then the data of the order and the answers to them.
package gauge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// What an order asks for.
const (
	trips  = 1 + iota // small messages, each sent back
	stream            // large messages, each answered by a small one
	over              // nothing more will come
)

const (
	orderBytes  = 32
	answerBytes = 8

	// MaxBytes is the greatest message. It bounds what a peer can make this process hold.
	MaxBytes = 1 << 30
)

// A Gauge measures a link whose peer runs [Serve]. One goroutine at a time uses it.
type Gauge struct {
	link *link.Link
	next uint64 // stream of the next message
	data []byte
}

// New makes a gauge.
func New(l *link.Link) *Gauge { return &Gauge{link: l} }

// Trips sends a small message there and back, as often as count says, and returns how long each took.
func (g *Gauge) Trips(ctx context.Context, size, count int) ([]time.Duration, error) {
	if err := g.order(ctx, trips, link.Collective, int64(size), count); err != nil {
		return nil, err
	}
	out, in := g.memory(int64(size)), make([]byte, size)
	took := make([]time.Duration, 0, count)
	for range count {
		begun := time.Now()
		there, back := g.name(link.Collective), g.name(link.Collective)
		answer, err := g.link.Expect(back, in)
		if err != nil {
			return nil, err
		}
		if err := post(ctx, g.link, there, out); err != nil {
			return nil, err
		}
		if err := answer.Wait(ctx); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}

// Stream sends large messages one after the other, each when the one before has arrived, and returns how
// long all took. The family says whether they have checksums: the options of the link do.
func (g *Gauge) Stream(ctx context.Context, f link.Family, size int64, count int) (time.Duration, error) {
	if err := g.order(ctx, stream, f, size, count); err != nil {
		return 0, err
	}
	data := g.memory(size)
	var answer [answerBytes]byte
	begun := time.Now()
	for range count {
		there, back := g.name(f), g.name(link.Collective)
		arrived, err := g.link.Expect(back, answer[:])
		if err != nil {
			return 0, err
		}
		if err := post(ctx, g.link, there, data); err != nil {
			return 0, err
		}
		if err := arrived.Wait(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

// End tells the peer that nothing more will come.
func (g *Gauge) End(ctx context.Context) error { return g.order(ctx, over, link.Collective, 0, 0) }

// order tells the peer what comes next.
func (g *Gauge) order(ctx context.Context, what uint64, f link.Family, size int64, count int) error {
	var b [orderBytes]byte
	for i, v := range []uint64{what, uint64(f), uint64(size), uint64(count)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return post(ctx, g.link, g.name(link.Collective), b[:])
}

// name names the next message.
func (g *Gauge) name(f link.Family) link.Header {
	g.next++
	return header(f, g.next)
}

// memory returns bytes to send, which are kept from one measurement to the next. They are written once: memory that
// no program has written is one page of zeroes in the cache of the processor, which is read faster than real data.
func (g *Gauge) memory(size int64) []byte {
	if int64(len(g.data)) < size {
		g.data = bytes.Repeat([]byte("serry"), int(size/5)+1)
	}
	return g.data[:size]
}

func header(f link.Family, number uint64) link.Header {
	h := link.Header{Family: f, Type: link.CollectiveData, Stream: number}
	if f == link.Transfer {
		h.Type = link.TransferData
	}
	return h
}

// post sends a message and waits until its memory may be used again.
func post(ctx context.Context, l *link.Link, h link.Header, b []byte) error {
	t, err := l.Post(h, b)
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

// Serve answers a [Gauge] at the other end of a link, until it says that it is done.
func Serve(ctx context.Context, l *link.Link) error {
	s := &server{link: l}
	for {
		var b [orderBytes]byte
		if err := s.take(ctx, link.Collective, b[:]); err != nil {
			return err
		}
		field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
		f, size, count := link.Family(field(1)), field(2), field(3)
		switch what := field(0); {
		case what == over:
			return nil
		case f != link.Collective && f != link.Transfer, size > MaxBytes, what != trips && what != stream, what == trips && size > link.SmallBytes:
			return &serry.InvalidError{What: fmt.Sprintf("order %d to measure %d bytes of family %d", what, size, f)}
		case what == trips:
			if err := s.trips(ctx, size, count); err != nil {
				return err
			}
		default:
			if err := s.stream(ctx, f, size, count); err != nil {
				return err
			}
		}
	}
}

// A server is the end of a link that answers.
type server struct {
	link *link.Link
	next uint64
	data []byte
}

// take receives the next message.
func (s *server) take(ctx context.Context, f link.Family, into []byte) error {
	s.next++
	t, err := s.link.Expect(header(f, s.next), into)
	if err != nil {
		return err
	}
	return t.Wait(ctx)
}

// trips sends messages back.
func (s *server) trips(ctx context.Context, size, count uint64) error {
	b := make([]byte, size)
	for range count {
		if err := s.take(ctx, link.Collective, b); err != nil {
			return err
		}
		s.next++
		if err := post(ctx, s.link, header(link.Collective, s.next), b); err != nil {
			return err
		}
	}
	return nil
}

// stream answers large messages. The memory for the next one is posted before the answer leaves, as a
// program that wants to be fast does.
func (s *server) stream(ctx context.Context, f link.Family, size, count uint64) error {
	if uint64(len(s.data)) < size {
		s.data = make([]byte, size)
	}
	var next *link.Ticket
	for i := range count {
		var err error
		if i == 0 {
			next, err = s.link.Expect(header(f, s.next+1), s.data[:size])
		}
		if err == nil {
			err = next.Wait(ctx)
		}
		if err == nil && i+1 < count {
			next, err = s.link.Expect(header(f, s.next+3), s.data[:size])
		}
		if err != nil {
			return err
		}
		s.next += 2
		var answer [answerBytes]byte
		if err := post(ctx, s.link, header(link.Collective, s.next), answer[:]); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoService is what a member of a pair without a service answers to calls of one.
var ErrNoService = errors.New("there is no service")
