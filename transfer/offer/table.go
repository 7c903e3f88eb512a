// Package offer decides which request gets which buffer of which offer. A producer offers buffers under an
// identifier that it chooses; a consumer requests some of them by that identifier and their index, before or after the
// offer is there (TR-PUL).
//
// Start with [Table]. The caller tells it of offers, requests and ended deliveries, one method for each, and gets
// back a list of [Action]: deliver this buffer, refuse that request, this offer is over. The caller moves the bytes.
//
// The package is pure: no clock, no I/O, no goroutine, no lock. Time is handed in with each call, and the same calls
// give the same actions in the same order. A [Table] belongs to one goroutine at a time. It holds at most
// [Limits.Offers] offers and [Limits.Waiting] requests, and refuses more.
//
// Read table.go, which is all but the deadlines.
package offer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// An ID names an offer. Its producer chooses it, and tells its consumers. JAX calls it uuid.
type ID uint64

// A Serial tells an offer from all others of its table, also from earlier ones with the same [ID].
type Serial uint64

// A Ticket is a request, for as long as it waits or its buffer is delivered.
type Ticket uint64

// Unlimited, as [Offer.Times], keeps an offer until it is withdrawn or expires.
const Unlimited = -1

// An Offer is a list of buffers that can be requested.
type Offer struct {
	ID      ID
	Buffers int       // how many there are; their indexes begin with 0
	Times   int       // how often each of them is delivered; 0 means once (TR-PUL-5)
	Until   time.Time // when the offer expires; the zero time means never
	Replace bool      // an offer with the same ID gives way (TR-PUL-1)
}

// A Request asks for one buffer.
type Request struct {
	Offer ID
	Index int
	Until time.Time // when the consumer gives up; the zero time means never
}

// Limits bound a table.
type Limits struct {
	Offers  int // default 65,536
	Waiting int // requests without their offer; default 65,536
}

// What happened to a request that is refused or to an offer that is over. ErrOffered and ErrFull are also
// answers to a producer.
var (
	ErrExpired   = errors.New("expired")
	ErrWithdrawn = errors.New("withdrawn")
	ErrReplaced  = errors.New("replaced by another offer with the same id")
	ErrReset     = errors.New("the server was reset")
	ErrOffered   = errors.New("there is an offer with this id")
	ErrFetched   = errors.New("the buffer has been fetched already")
	ErrFull      = errors.New("too many offers or waiting requests")
)

// An IndexError says that an offer has no such buffer.
type IndexError struct{ Index, Buffers int }

func (e *IndexError) Error() string {
	return fmt.Sprintf("buffer %d: the offer has %d", e.Index, e.Buffers)
}

// An Action is what the caller has to do: a [Deliver], a [Refuse] or an [End].
type Action interface{ action() }

// Deliver says to send a buffer, and to call [Table.Done] when that has ended.
type Deliver struct {
	Ticket Ticket
	Offer  Serial
	Index  int
}

// Refuse says to answer a request with an error. Its ticket is over.
type Refuse struct {
	Ticket Ticket
	Err    error
}

// End says that an offer takes no more requests: Err is nil if every buffer was delivered as often as offered. Deliveries
// that have begun go on.
type End struct {
	Offer Serial
	Err   error
}

func (Deliver) action() {}
func (Refuse) action()  {}
func (End) action()     {}

// A Table holds the offers of a producer, and the requests that wait for offers.
type Table struct {
	limits  Limits
	offers  map[ID]*offer
	tickets map[Ticket]*request
	waiting map[ID]*line // requests without their offer
	waits   int          // how many these are
	ends    deadlines    // of offers and of waiting requests

	serial Serial // the last one
	ticket Ticket // the last one
	out    []Action
}

// An offer is one that is present.
type offer struct {
	Offer
	serial    Serial
	fetched   []int // by index: how often it was delivered
	under     []int // by index: how many deliveries are under way
	remaining int   // deliveries until the offer is drained; not used if Times is Unlimited
}

// A request is one that waits, or whose buffer is being delivered.
type request struct {
	Request
	from *offer // that it is delivered from, or nil while it waits
}

// A line has the requests that wait for one offer, in the order of their arrival.
type line struct {
	tickets []Ticket // also some of requests that were taken back
	present int      // how many of them wait
}

// compact drops the tickets of requests that were taken back, when these are many: each removal costs little that way.
func (l *line) compact(t *Table) {
	if len(l.tickets) > 2*l.present {
		l.tickets = slices.DeleteFunc(l.tickets, func(k Ticket) bool { return t.tickets[k] == nil })
	}
}

// NewTable makes an empty table.
func NewTable(l Limits) *Table {
	l.Offers = cmp.Or(l.Offers, 1<<16)
	l.Waiting = cmp.Or(l.Waiting, 1<<16)
	return &Table{
		limits: l, offers: map[ID]*offer{}, tickets: map[Ticket]*request{}, waiting: map[ID]*line{},
		ends: deadlines{places: map[any]int{}},
	}
}

// Deadline is when [Table.Advance] has something to do, and false if that depends on other calls.
func (t *Table) Deadline() (at time.Time, ok bool) { return t.ends.first() }

// Advance ends what expires until now.
func (t *Table) Advance(now time.Time) []Action {
	t.advance(now)
	return t.flush()
}

// Offer adds an offer, and delivers from it to requests that wait for it (TR-PUL-2). An offer that has expired when
// it comes is no error: it ends at once.
func (t *Table) Offer(now time.Time, o Offer) (Serial, []Action, error) {
	t.advance(now)
	if o.Buffers < 1 || o.Times < Unlimited {
		return 0, t.flush(), fmt.Errorf("offer %d: %d buffers, each %d times: want at least one of both", o.ID, o.Buffers, o.Times)
	}
	before := t.offers[o.ID]
	switch {
	case before != nil && !o.Replace:
		return 0, t.flush(), fmt.Errorf("offer %d: %w", o.ID, ErrOffered)
	case before == nil && len(t.offers) >= t.limits.Offers:
		return 0, t.flush(), fmt.Errorf("offer %d: %w", o.ID, ErrFull)
	case before != nil:
		t.end(before, ErrReplaced)
	}
	o.Times = cmp.Or(o.Times, 1)
	t.serial++
	added := &offer{Offer: o, serial: t.serial, fetched: make([]int, o.Buffers), under: make([]int, o.Buffers), remaining: o.Buffers * o.Times}
	t.offers[o.ID] = added
	if !o.Until.IsZero() {
		t.ends.add(added, o.Until)
	}
	t.advance(now)
	if t.offers[o.ID] == added {
		t.serveWaiting(added)
	}
	return added.serial, t.flush(), nil
}

// serveWaiting answers the requests that have waited for an offer.
func (t *Table) serveWaiting(o *offer) {
	for _, ticket := range t.leaveLine(o.ID) {
		t.serve(ticket, t.tickets[ticket], o)
	}
}

// leaveLine lets the requests that wait for an offer wait no longer, and returns them.
func (t *Table) leaveLine(id ID) []Ticket {
	l := t.waiting[id]
	if l == nil {
		return nil
	}
	delete(t.waiting, id)
	t.waits -= l.present
	present := slices.DeleteFunc(l.tickets, func(k Ticket) bool { return t.tickets[k] == nil })
	for _, ticket := range present {
		t.ends.remove(ticket)
	}
	return present
}

// Request asks for a buffer. It waits if its offer is not there yet (TR-PUL-2).
func (t *Table) Request(now time.Time, q Request) (Ticket, []Action) {
	t.advance(now)
	t.ticket++
	r := &request{Request: q}
	t.tickets[t.ticket] = r
	switch o := t.offers[q.Offer]; {
	case o != nil:
		t.serve(t.ticket, r, o)
	case t.waits >= t.limits.Waiting:
		t.refuse(t.ticket, ErrFull)
	default:
		t.wait(q.Offer, t.ticket)
		if !q.Until.IsZero() {
			t.ends.add(t.ticket, q.Until)
		}
	}
	t.advance(now) // a request that came too late
	return t.ticket, t.flush()
}

// wait adds a request to those that wait for an offer.
func (t *Table) wait(id ID, ticket Ticket) {
	l := t.waiting[id]
	if l == nil {
		l = new(line)
		t.waiting[id] = l
	}
	l.tickets = append(l.tickets, ticket)
	l.present++
	t.waits++
}

// serve delivers a buffer of an offer, or refuses the request if it cannot have it. A buffer that is under way is as
// good as fetched, as JAX has it; it can be had again if that delivery fails.
func (t *Table) serve(ticket Ticket, r *request, o *offer) {
	switch i := r.Index; {
	case i < 0 || i >= o.Buffers:
		t.refuse(ticket, &IndexError{Index: i, Buffers: o.Buffers})
	case o.Times != Unlimited && o.fetched[i]+o.under[i] >= o.Times:
		t.refuse(ticket, fmt.Errorf("buffer %d: %w", i, ErrFetched))
	default:
		o.under[i]++
		r.from = o
		t.out = append(t.out, Deliver{Ticket: ticket, Offer: o.serial, Index: i})
	}
}

// Done says that a delivery has ended, and whether the consumer has the buffer. If it does not, the buffer can be
// requested again (TR-PUL-5).
func (t *Table) Done(ticket Ticket, delivered bool) []Action {
	r := t.tickets[ticket]
	if r == nil || r.from == nil {
		return nil
	}
	delete(t.tickets, ticket)
	o := r.from
	o.under[r.Index]--
	if delivered && o.Times != Unlimited {
		o.fetched[r.Index]++
		o.remaining--
	}
	if o.Times != Unlimited && o.remaining == 0 && t.offers[o.ID] == o {
		t.end(o, nil)
	}
	return t.flush()
}

// Cancel takes a request back, because its consumer is not there any more. A delivery that has begun counts as one that
// failed.
func (t *Table) Cancel(ticket Ticket) []Action {
	r := t.tickets[ticket]
	if r == nil {
		return nil
	}
	if r.from != nil {
		return t.Done(ticket, false)
	}
	t.forget(ticket, r)
	return nil
}

// Withdraw ends an offer, and refuses the requests that wait for one with its ID (TR-PUL-14). It is false if there is
// no such offer.
func (t *Table) Withdraw(id ID) (ok bool, actions []Action) {
	o := t.offers[id]
	if o != nil {
		t.end(o, ErrWithdrawn)
	}
	t.refuseWaiting(id, ErrWithdrawn)
	return o != nil, t.flush()
}

// Reset ends all offers, and refuses all requests that wait, in the order of the IDs (TR-PUL-9).
func (t *Table) Reset() []Action {
	for _, id := range slices.Sorted(maps.Keys(t.offers)) {
		t.end(t.offers[id], ErrReset)
	}
	for _, id := range slices.Sorted(maps.Keys(t.waiting)) {
		t.refuseWaiting(id, ErrReset)
	}
	return t.flush()
}

func (t *Table) refuseWaiting(id ID, err error) {
	for _, ticket := range t.leaveLine(id) {
		t.refuse(ticket, err)
	}
}

// advance ends what expires until now. An expired offer is dropped: requests for it wait from then on, as if it had
// never been there (TR-PUL-8).
func (t *Table) advance(now time.Time) {
	for {
		switch due := t.ends.due(now).(type) {
		case nil:
			return
		case *offer:
			t.end(due, ErrExpired)
		case Ticket:
			t.forget(due, t.tickets[due])
			t.out = append(t.out, Refuse{Ticket: due, Err: ErrExpired})
		}
	}
}

// end removes an offer.
func (t *Table) end(o *offer, err error) {
	delete(t.offers, o.ID)
	t.ends.remove(o)
	t.out = append(t.out, End{Offer: o.serial, Err: err})
}

// refuse removes a request that neither waits nor is being delivered.
func (t *Table) refuse(ticket Ticket, err error) {
	delete(t.tickets, ticket)
	t.out = append(t.out, Refuse{Ticket: ticket, Err: err})
}

// forget removes a request that waits.
func (t *Table) forget(ticket Ticket, r *request) {
	delete(t.tickets, ticket)
	t.ends.remove(ticket)
	l := t.waiting[r.Offer]
	t.waits--
	if l.present--; l.present == 0 {
		delete(t.waiting, r.Offer)
		return
	}
	l.compact(t)
}

// flush hands the actions out.
func (t *Table) flush() []Action {
	out := t.out
	t.out = nil
	return out
}
