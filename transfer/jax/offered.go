package jax

import (
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/transfer/offer"
)

// An Offer is what a producer lets others pull.
type Offer struct {
	ID      offer.ID
	Buffers []Buffer
	Times   int       // how often each buffer can be fetched; 0 means once, [offer.Unlimited] until it is withdrawn
	Until   time.Time // when the offer expires; the zero time means never
	Replace bool      // an offer with the same ID gives way, as in JAX
}

// An Offered is an offer that a server has. Its buffers must not be written to, nor its files closed, until Done.
type Offered struct {
	server  *Server
	buffers []Buffer
	done    chan struct{}

	// Guarded by Server.mu.
	over  bool // no buffer is delivered from it any more, but for those under way
	err   error
	under int        // buffers that are on their way
	log   []Delivery // at most maxLog that were not taken
}

// maxLog is how many deliveries an offer keeps for its producer.
const maxLog = 4096

// A Delivery is what became of a buffer that a peer has fetched (TR-PUL-13).
type Delivery struct {
	Index int
	Peer  string // address of the consumer
	Err   error  // nil if all bytes have left
}

// Offer lets others pull buffers. It does not wait, and moves nothing (TR-PUL-1).
func (s *Server) Offer(o Offer) (*Offered, error) {
	for i, b := range o.Buffers {
		if b.File != nil && b.Size < 0 {
			return nil, fmt.Errorf("offer %d: buffer %d has %d bytes", o.ID, i, b.Size)
		}
	}
	if s.ctx.Err() != nil {
		return nil, fmt.Errorf("offer %d: %w", o.ID, ErrClosed)
	}
	added := &Offered{server: s, buffers: o.Buffers, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	wanted := offer.Offer{ID: o.ID, Buffers: len(o.Buffers), Times: o.Times, Until: o.Until, Replace: o.Replace}
	serial, actions, err := s.mu.table.Offer(time.Now(), wanted)
	if err == nil {
		s.mu.offers[serial] = added
	}
	s.perform(actions)
	if err != nil {
		return nil, err
	}
	return added, nil
}

// Withdraw ends an offer: new pulls of it wait for another offer, and pulls that wait are refused. It is false if there is
// no such offer.
func (s *Server) Withdraw(id offer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok, actions := s.mu.table.Withdraw(id)
	s.perform(actions)
	return ok
}

// Reset withdraws all offers, and refuses all pulls that wait for one.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.perform(s.mu.table.Reset())
}

// Done is closed when the offer is over and none of its bytes is read any more.
func (o *Offered) Done() <-chan struct{} { return o.done }

// Err says how the offer ended, once it is done: nil if every buffer was fetched as often as offered.
func (o *Offered) Err() error {
	o.server.mu.Lock()
	defer o.server.mu.Unlock()
	return o.err
}

// TakeDeliveries are the deliveries since the last call, oldest first. Of very many, only the last ones are kept.
func (o *Offered) TakeDeliveries() []Delivery {
	o.server.mu.Lock()
	defer o.server.mu.Unlock()
	all := o.log
	o.log = nil
	return all
}

// note remembers a delivery. The caller holds Server.mu.
func (o *Offered) note(d Delivery) {
	if len(o.log) == maxLog {
		o.log = slices.Delete(o.log, 0, maxLog/2)
	}
	o.log = append(o.log, d)
}

// end notes that the offer is over. The caller holds Server.mu.
func (o *Offered) end(err error) {
	o.over, o.err = true, err
	if o.under == 0 {
		close(o.done)
	}
}

// release notes that a buffer is on its way no longer. The caller holds Server.mu.
func (o *Offered) release() {
	if o.under--; o.over && o.under == 0 {
		close(o.done)
	}
}
