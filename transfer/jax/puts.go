package jax

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/transfer/offer"
)

// addressKey is where a process of a JAX program publishes the address of its transfer server (TR-DPT-7).
const addressKey = "transfer_server:ifrt_cross_host_socket_address_"

// dialPatience is how long an address is dialled before it is read again: the process may have been replaced, and its next life has
// another one.
const dialPatience = 2 * time.Second

// Keys is where processes tell each other their addresses; *client.KV satisfies it.
type Keys interface {
	Put(ctx context.Context, key string, value []byte) error
	Wait(ctx context.Context, key string) ([]byte, error)
}

// A Puts is the part that this process has in device_put between processes of a JAX program, where JAX uses its transfer servers for
// that (jax_cross_host_transfer_socket_address). Make it with NewPuts.
//
// All processes number the moves of a program alike, also those that they have no part in: so a process calls Put for every
// device_put of the program that crosses processes, in the order of the program (TR-MAT-5). A process that was started again first
// names the moves that the others have made: as moves that it has no part in.
type Puts struct {
	// Set in NewPuts, then constant.
	server  *Server
	keys    Keys
	process int
	config  Config
	ctx     context.Context // of all dialling
	stop    context.CancelCauseFunc

	mu struct {
		sync.Mutex
		next offer.ID
		ways map[int]*way // by process
	}
}

// A way is the connection to another process.
type way struct {
	turn chan struct{} // has room for one: who dials, or looks at conn
	conn *Conn         // or nil; guarded by turn
}

// A Move is what one call moves from one process to another: shards, in the order of arrays and of their shards.
type Move struct {
	From, To int // numbers of processes

	Buffers []Buffer // of the process that has them
	Into    [][]byte // of the process that gets them: memory of the same sizes
}

// NewPuts publishes the address of a server, under the number of this process in the program, in place of the address of an earlier
// life of the process. Connections that it dials are as c says.
func NewPuts(ctx context.Context, s *Server, k Keys, process int, c Config) (*Puts, error) {
	if process < 0 {
		return nil, fmt.Errorf("process %d", process)
	}
	p := &Puts{server: s, keys: k, process: process, config: c}
	p.mu.ways = make(map[int]*way)
	if err := k.Put(ctx, addressKey+strconv.Itoa(process), []byte(s.Address())); err != nil {
		return nil, fmt.Errorf("address of the transfer server: %w", err)
	}
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	return p, nil
}

// Put takes part in one device_put. It names every pair of processes that the call moves shards between, once. What this process
// gets is there when Put returns; what it gives can be fetched from then on, and must not change before the other process has it:
// the offers say when.
func (p *Puts) Put(ctx context.Context, moves []Move) ([]*Offered, error) {
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
	}
	first, ordered, err := p.number(moves)
	if err != nil {
		return nil, err
	}
	var offers []*Offered
	for i, m := range ordered {
		if m.From != p.process {
			continue
		}
		o, err := p.server.Offer(Offer{ID: first + offer.ID(i), Buffers: m.Buffers})
		if err != nil {
			return offers, fmt.Errorf("shards for process %d: %w", m.To, err)
		}
		offers = append(offers, o)
	}
	var failed []error
	for i, m := range ordered {
		if m.To == p.process {
			failed = append(failed, p.fetch(ctx, first+offer.ID(i), m))
		}
	}
	return offers, errors.Join(failed...)
}

// number gives the moves of a call their numbers: one for each, by the destination and then the source.
func (p *Puts) number(moves []Move) (first offer.ID, ordered []Move, err error) {
	ordered = slices.SortedFunc(slices.Values(moves), func(a, b Move) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From)) })
	for i, m := range ordered {
		if m.From < 0 || m.To < 0 || m.From == m.To || i > 0 && m.From == ordered[i-1].From && m.To == ordered[i-1].To {
			return 0, nil, fmt.Errorf("a move from process %d to process %d: they are one, or named twice", m.From, m.To)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	first = p.mu.next
	p.mu.next += offer.ID(len(moves))
	return first, ordered, nil
}

// fetch pulls what another process gives.
func (p *Puts) fetch(ctx context.Context, id offer.ID, m Move) error {
	c, err := p.conn(ctx, m.From)
	if err != nil {
		return fmt.Errorf("shards of process %d: %w", m.From, err)
	}
	var wants []Want
	for i, into := range m.Into {
		wants = append(wants, Want{Index: i, Into: into})
	}
	if err := c.Pull(ctx, id, wants); err != nil {
		return fmt.Errorf("shards of process %d: %w", m.From, err)
	}
	return nil
}

// conn is the connection to another process. It is dialled again if the last one has ended. Callers take turns, so that only one of
// them dials.
func (p *Puts) conn(ctx context.Context, process int) (*Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.ctx, func() { cancel(context.Cause(p.ctx)) })()
	w := p.way(process)
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w.conn != nil {
		select {
		case <-w.conn.Done():
		default:
			return w.conn, nil
		}
	}
	c, err := p.dial(ctx, process)
	if p.ctx.Err() != nil { // Close may have looked at this way before its turn was taken
		if err == nil {
			c.Close()
		}
		return nil, context.Cause(p.ctx)
	}
	if err != nil {
		return nil, err
	}
	w.conn = c
	return c, nil
}

// way finds or makes the way to another process.
func (p *Puts) way(process int) *way {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.mu.ways[process]
	if w == nil {
		w = &way{turn: make(chan struct{}, 1)}
		p.mu.ways[process] = w
	}
	return w
}

// dial dials a process at the address that it has published. While nothing answers there it reads the address again and again: it
// may be that of an earlier life.
func (p *Puts) dial(ctx context.Context, process int) (*Conn, error) {
	for {
		address, err := p.keys.Wait(ctx, addressKey+strconv.Itoa(process))
		if err != nil {
			return nil, err
		}
		try, cancel := context.WithTimeout(ctx, dialPatience)
		c, err := Dial(try, strings.TrimSpace(string(address)), p.config)
		again := err != nil && try.Err() != nil && ctx.Err() == nil // nothing has answered there so far
		cancel()
		if !again {
			return c, err
		}
	}
}

// Close closes the connections to other processes, and ends calls of Put that are under way, and later ones. The server stays.
func (p *Puts) Close() {
	p.stop(ErrClosed)
	p.mu.Lock()
	ways := slices.Collect(maps.Values(p.mu.ways))
	p.mu.Unlock()
	for _, w := range ways {
		w.turn <- struct{}{}
		if w.conn != nil {
			w.conn.Close()
		}
		<-w.turn
	}
}
