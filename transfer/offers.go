package transfer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/transfer/internal/match"
	"github.com/serry-dev/serry/transfer/offer"
)

// maxDeliveries is how many deliveries an offer keeps for its producer.
const maxDeliveries = 4096

// maxRequests is how many buffers one peer can ask for at a time.
const maxRequests = 1 << 16

// A Token is the right to pull an offer. Its number alone is not enough: numbers can be guessed (TR-SEC-5).
type Token [16]byte

// A Handle names an offer. The producer gives it to those that may pull it, by the key-value store for example: its text form
// is one word.
type Handle struct {
	From  serry.Life
	ID    offer.ID
	Token Token
}

// MarshalText writes the handle as "job/index@incarnation/id/token".
func (h Handle) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%s/%d@%d/%d/%x", h.From.Task.Job, h.From.Task.Index, h.From.Incarnation, h.ID, h.Token[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *Handle) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), "/")
	if n := len(parts); n > 4 { // a name of a job may have slashes
		parts = append([]string{strings.Join(parts[:n-3], "/")}, parts[n-3:]...)
	}
	if len(parts) != 4 {
		return invalid("%q is no handle of an offer", text)
	}
	index, incarnation, _ := strings.Cut(parts[1], "@")
	task, err := strconv.Atoi(index)
	life, err2 := strconv.ParseUint(incarnation, 10, 64)
	id, err3 := strconv.ParseUint(parts[2], 10, 64)
	token, err4 := hex.DecodeString(parts[3])
	if err := errors.Join(err, err2, err3, err4); err != nil || task < 0 || len(token) != len(h.Token) {
		return invalid("%q is no handle of an offer", text)
	}
	*h = Handle{From: serry.Life{Task: serry.TaskID{Job: parts[0], Index: task}, Incarnation: serry.Incarnation(life)}, ID: offer.ID(id)}
	copy(h.Token[:], token)
	return nil
}

// OfferOptions say how an offer can be pulled. The zero value is right for one consumer.
type OfferOptions struct {
	Times   int           // how often each buffer can be pulled; 0 means once, [offer.Unlimited] until it is withdrawn
	Expire  time.Duration // after which the offer ends; 0 means never
	Replace bool          // an offer with the same number gives way
	Token   Token         // zero means a random one; consumers that pull before the offer is there have to know it
}

// An Offered is an offer that consumers can pull.
type Offered struct {
	engine  *Engine
	handle  Handle
	buffers []*Buffer
	done    *Event

	// Guarded by the lock of offers.
	promise *Promise // of done
	over    bool     // no delivery begins any more
	err     error    // how it ended, once over
	under   int      // that read its memory
	log     []Delivery
	changed chan struct{} // or nil; closed when log or over changes
}

// A Delivery is what became of one buffer, or a part of one, that a consumer has pulled (TR-PUL-13).
type Delivery struct {
	Index    int
	Consumer serry.Life
	Bytes    int64
	Err      error // nil if the consumer has the data
}

// offers has what this process offers, and the requests of all peers.
type offers struct {
	sync.Mutex
	table   *offer.Table
	present map[offer.Serial]*Offered
	tickets map[offer.Ticket]*delivery
	timer   *time.Timer // or nil
	closed  bool
}

// A delivery is a request of a peer that waits for its offer or is answered.
type delivery struct {
	request
	peer    *peer
	ticket  offer.Ticket
	expires match.Time // when the consumer gives up, or Never
}

// Offer lets consumers pull buffers under a number that the program chooses. It moves nothing, and does not wait: not for the
// buffers to be defined either. The buffers are read until [Offered.Done] has ended, whatever the program does with them.
//
// Numbers from 1<<63 on are those of the engine itself.
func (e *Engine) Offer(ctx context.Context, id offer.ID, buffers []*Buffer, o OfferOptions) (*Offered, error) {
	if id >= reservedOffers {
		return nil, invalid("offer %d: the number is reserved", id)
	}
	return e.publish(ctx, id, buffers, o)
}

func (e *Engine) publish(ctx context.Context, id offer.ID, buffers []*Buffer, o OfferOptions) (*Offered, error) {
	x := &Offered{engine: e, handle: Handle{e.life, id, o.Token}, buffers: slices.Clone(buffers)}
	if o.Token == (Token{}) {
		rand.Read(x.handle.Token[:])
	}
	x.promise, x.done = e.pool.Event()
	if err := x.hold(ctx); err != nil {
		x.promise.Set(err)
		return nil, fmt.Errorf("offer %d: %w", id, err)
	}
	wanted := offer.Offer{ID: id, Buffers: len(buffers), Times: o.Times, Replace: o.Replace}
	now := time.Now()
	if o.Expire > 0 {
		wanted.Until = now.Add(o.Expire)
	}
	s := &e.offers
	s.Lock()
	serial, actions, err := offer.Serial(0), []offer.Action(nil), error(ErrAborted)
	if !s.closed {
		serial, actions, err = s.table.Offer(now, wanted)
	}
	if err == nil {
		s.present[serial] = x
	}
	ended := e.perform(actions)
	s.Unlock()
	settle(ended)
	if err != nil {
		x.promise.Set(err)
		return nil, err
	}
	return x, nil
}

// hold keeps the memory of the buffers until the offer is done.
func (x *Offered) hold(ctx context.Context) error {
	for _, b := range x.buffers {
		use, err := b.Use(ctx)
		if err != nil {
			return err
		}
		use.Convert(x.done)
	}
	return nil
}

// Handle names the offer to consumers.
func (x *Offered) Handle() Handle { return x.handle }

// Done ends when the offer is over and none of its memory is read any more: complete if every buffer was delivered as often as
// offered, else with the reason.
func (x *Offered) Done() *Event { return x.done }

// Next waits for a delivery that the caller has not seen, and returns it. When the offer is over and there is none left it
// returns io.EOF. Of very many that were not asked for, only the last ones are kept.
func (x *Offered) Next(ctx context.Context) (Delivery, error) {
	s := &x.engine.offers
	for {
		s.Lock()
		if len(x.log) > 0 {
			defer s.Unlock()
			first := x.log[0]
			x.log = x.log[1:]
			return first, nil
		}
		over := x.over && x.under == 0
		if x.changed == nil {
			x.changed = make(chan struct{})
		}
		changed := x.changed
		s.Unlock()
		if over {
			return Delivery{}, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Delivery{}, context.Cause(ctx)
		}
	}
}

// Withdraw ends the offer. Requests that wait for its number are refused, deliveries that have begun go on. It does nothing if
// the offer is over.
func (x *Offered) Withdraw() {
	s := &x.engine.offers
	s.Lock()
	var ended []*Offered
	if !x.over {
		_, actions := s.table.Withdraw(x.handle.ID)
		ended = x.engine.perform(actions)
	}
	s.Unlock()
	settle(ended)
}

// perform does what the table wants. It returns the offers that are done, for settle. The lock of offers is held.
func (e *Engine) perform(actions []offer.Action) (ended []*Offered) {
	s := &e.offers
	for _, a := range actions {
		switch a := a.(type) {
		case offer.Deliver:
			d, x := s.tickets[a.Ticket], s.present[a.Offer]
			if d.token != x.handle.Token {
				delete(s.tickets, a.Ticket)
				ended = append(ended, e.perform(s.table.Done(a.Ticket, false))...)
				d.refuse(errToken)
				continue
			}
			x.under++
			d.peer.do(func() { d.peer.deliver(d, x) })
		case offer.Refuse:
			d := s.tickets[a.Ticket]
			delete(s.tickets, a.Ticket)
			d.refuse(a.Err)
		case offer.End:
			x := s.present[a.Offer]
			delete(s.present, a.Offer)
			x.over, x.err = true, a.Err
			ended = append(ended, x)
		}
	}
	e.setOfferTimer()
	return ended
}

var errToken = fmt.Errorf("another token: %w", ErrDenied)

// setOfferTimer has the table called when something expires; the lock of offers is held.
func (e *Engine) setOfferTimer() {
	s := &e.offers
	at, ok := s.table.Deadline()
	switch {
	case !ok && s.timer != nil:
		s.timer.Stop()
	case !ok || s.closed:
	case s.timer == nil:
		s.timer = time.AfterFunc(time.Until(at), e.expireOffers)
	default:
		s.timer.Reset(time.Until(at))
	}
}

// expireOffers ends what expires until now.
func (e *Engine) expireOffers() {
	e.offers.Lock()
	ended := e.perform(e.offers.table.Advance(time.Now()))
	e.offers.Unlock()
	settle(ended)
}

// settle wakes those that wait for offers, and ends those that are done. The lock of offers is not held.
func settle(list []*Offered) {
	for _, x := range list {
		s := &x.engine.offers
		s.Lock()
		if x.changed != nil {
			close(x.changed)
			x.changed = nil
		}
		done, err := x.over && x.under == 0, x.err
		s.Unlock()
		if done {
			x.promise.Set(err)
		}
	}
}

// requested takes a request of a peer.
func (e *Engine) requested(d *delivery) {
	until := time.Time{}
	if d.within > 0 {
		until = time.Now().Add(d.within)
	}
	s := &e.offers
	s.Lock()
	if s.closed {
		s.Unlock()
		d.refuse(ErrAborted)
		return
	}
	var actions []offer.Action
	d.ticket, actions = s.request(d, offer.Request{Offer: d.offer, Index: int(d.index), Until: until})
	ended := e.perform(actions)
	s.Unlock()
	settle(ended)
}

// request asks the table. The ticket of a request is known here before its first action is performed.
func (s *offers) request(d *delivery, q offer.Request) (offer.Ticket, []offer.Action) {
	ticket, actions := s.table.Request(time.Now(), q)
	s.tickets[ticket] = d
	return ticket, actions
}

// withdrawn takes a request back.
func (e *Engine) withdrawn(d *delivery) {
	e.offers.Lock()
	var ended []*Offered
	if e.offers.tickets[d.ticket] == d {
		delete(e.offers.tickets, d.ticket)
		ended = e.perform(e.offers.table.Cancel(d.ticket))
	}
	e.offers.Unlock()
	settle(ended)
}

// delivered notes how a delivery has ended.
func (e *Engine) delivered(d *delivery, x *Offered, bytes int64, err error) {
	s := &e.offers
	s.Lock()
	if len(x.log) >= maxDeliveries {
		x.log = slices.Delete(x.log, 0, maxDeliveries/2)
	}
	x.log = append(x.log, Delivery{int(d.index), d.peer.life, bytes, err})
	var ended []*Offered
	if s.tickets[d.ticket] == d {
		delete(s.tickets, d.ticket)
		ended = e.perform(s.table.Done(d.ticket, err == nil))
	}
	s.Unlock()
	settle(append(ended, x))
}

// unread notes that a reader of the memory of an offer is done.
func (x *Offered) unread() {
	x.engine.offers.Lock()
	x.under--
	x.engine.offers.Unlock()
	settle([]*Offered{x})
}

// closeOffers ends all offers, and refuses all requests.
func (e *Engine) closeOffers() {
	e.offers.Lock()
	ended := e.perform(e.offers.table.Reset())
	e.offers.closed = true
	if e.offers.timer != nil {
		e.offers.timer.Stop()
	}
	e.offers.Unlock()
	settle(ended)
}
