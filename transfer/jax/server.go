package jax

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/internal/seldom"
	"github.com/serry-dev/serry/transfer/offer"
)

// A Config says how to move buffers. The zero value is right for most.
type Config struct {
	// Lanes is how many connections carry the bytes of buffers, at most; default 4.
	Lanes int
	// ChunkBytes is how many bytes of a buffer a lane takes at once; default 1 MiB. A JAX process refuses chunks larger
	// than its own transfer_size, which is 256 MiB by default (TR-W-18).
	ChunkBytes int
	// Patience is how long a pull waits at most, whatever its context says; default 5 minutes, negative for no limit.
	Patience time.Duration
	// Stall is how long a peer may take nothing of what is written to it; default 20 seconds.
	Stall time.Duration
	// Requests is how many requests one connection may have in each direction; default 65,536.
	Requests int

	// Allow are the peers that a server answers. It may be empty for a server on a loopback address, which answers
	// this host.
	Allow []netip.Prefix
	// Connections is how many connections a server has at a time; default 1,024.
	Connections int
	// Offers is how many offers a server has at a time; default 65,536.
	Offers int
	// Log, or nil, hears of peers that are refused.
	Log *slog.Logger

	dial func(ctx context.Context, network, address string) (net.Conn, error) // of tests
}

// longestWait is how long a request of a peer may wait for its offer at most, if it says how long. Its clock may be
// wrong (TR-W-31).
const longestWait = time.Hour

// checked fills in what is not set.
func (cfg Config) checked() (Config, error) {
	cfg.Lanes = cmp.Or(cfg.Lanes, 4)
	cfg.ChunkBytes = cmp.Or(cfg.ChunkBytes, 1<<20)
	cfg.Patience = cmp.Or(cfg.Patience, 5*time.Minute)
	cfg.Stall = cmp.Or(cfg.Stall, 20*time.Second)
	cfg.Requests = cmp.Or(cfg.Requests, 1<<16)
	cfg.Connections = cmp.Or(cfg.Connections, 1024)
	cfg.Offers = cmp.Or(cfg.Offers, 1<<16)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.dial == nil {
		cfg.dial = new(net.Dialer).DialContext
	}
	switch {
	case cfg.Lanes < 1 || cfg.Lanes > maxLanes:
		return cfg, fmt.Errorf("%d lanes: want 1 to %d", cfg.Lanes, maxLanes)
	case cfg.ChunkBytes < 1 || cfg.ChunkBytes > 256<<20:
		return cfg, fmt.Errorf("chunks of %d bytes: want 1 to %d", cfg.ChunkBytes, 256<<20)
	case cfg.Stall < 0 || cfg.Requests < 1 || cfg.Connections < 1 || cfg.Offers < 1:
		return cfg, errors.New("limits of transfers: want more than 0")
	}
	return cfg, nil
}

// A Server offers buffers to processes that dial it.
type Server struct {
	// Set in Listen, then constant.
	config  Config
	control net.Listener
	lanes   net.Listener
	changed chan struct{} // has room for one: the next deadline may have changed
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu struct {
		sync.Mutex
		table    *offer.Table
		offers   map[offer.Serial]*Offered
		tickets  map[offer.Ticket]ticket
		conns    map[*Conn]struct{}
		expected map[uint64]slot // lanes that peers have been told to dial, by their number
		arriving int             // lanes that have not said their number yet
		refused  seldom.Limit[netip.Addr]
	}
}

// A ticket is a request of a peer.
type ticket struct {
	conn    *Conn
	request uint64
	index   int
}

// A slot is where a lane belongs that a peer will dial.
type slot struct {
	conn  *Conn
	index int
}

// Listen starts a server on an address like 10.0.0.7:8471, which names one address of this host: others are told to dial
// it (TR-W-32). Port 0 means a free one. The lanes have a port of their own.
func Listen(address string, cfg Config) (*Server, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	a, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("address %q: want one like 10.0.0.7:8471 or [fd00::7]:8471: %w", address, err)
	case a.Addr().IsUnspecified():
		return nil, fmt.Errorf("address %q: peers are told this address, so it must be one that reaches this host", address)
	case len(cfg.Allow) == 0 && !a.Addr().IsLoopback():
		return nil, fmt.Errorf("address %q can be reached from other hosts, and the protocol has neither certificates nor secrets: name the peers that are allowed", address)
	}
	control, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	lanes, err := net.Listen("tcp", netip.AddrPortFrom(a.Addr(), 0).String())
	if err != nil {
		control.Close()
		return nil, err
	}
	return serve(control, lanes, cfg), nil
}

// serve starts a server on two listeners.
func serve(control, lanes net.Listener, cfg Config) *Server {
	s := &Server{config: cfg, control: control, lanes: lanes, changed: make(chan struct{}, 1)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.mu.table = offer.NewTable(offer.Limits{Offers: cfg.Offers, Waiting: cfg.Requests})
	s.mu.offers = map[offer.Serial]*Offered{}
	s.mu.tickets = map[offer.Ticket]ticket{}
	s.mu.conns = map[*Conn]struct{}{}
	s.mu.expected = map[uint64]slot{}
	s.mu.refused = seldom.Limit[netip.Addr]{Period: time.Minute, Most: 16}
	s.work.Go(func() { s.accept(control, s.take) })
	s.work.Go(func() { s.accept(lanes, s.takeLane) })
	s.work.Go(s.expire)
	return s
}

// accept hands the connections of a listener out, until it is closed. An error of one connection is not one of the
// listener, so it goes on.
func (s *Server) accept(l net.Listener, take func(net.Conn)) {
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			take(conn)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			pause.For(s.ctx, 10*time.Millisecond) // too many open files, say: do not spin
		}
	}
}

// Address is where JAX processes reach the server.
func (s *Server) Address() string { return addressOf(s.control.Addr()).String() }

// Conns are the connections of processes that have dialled the server, in the order of their addresses.
func (s *Server) Conns() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.mu.conns), func(a, b *Conn) int { return strings.Compare(a.Peer(), b.Peer()) })
}

// Close ends all connections and offers.
func (s *Server) Close() error {
	s.stop()
	s.control.Close()
	s.lanes.Close()
	s.work.Wait()
	for _, c := range s.Conns() {
		c.fail(ErrClosed)
		<-c.ended
	}
	s.Reset()
	return nil
}

// take starts to serve a process that has dialled.
func (s *Server) take(conn net.Conn) {
	peer := addressOf(conn.RemoteAddr()).Addr()
	s.mu.Lock()
	defer s.mu.Unlock()
	if why := s.refusal(peer); why != "" {
		conn.Close()
		if s.mu.refused.Pick(peer) {
			s.config.Log.Warn("transfer refused", "peer", peer, "err", why)
		}
		return
	}
	c := newConn(conn, s.config, s)
	s.mu.conns[c] = struct{}{}
	c.start()
}

// refusal says why a peer is not served, or is empty. The caller holds mu.
func (s *Server) refusal(peer netip.Addr) string {
	allowed := slices.ContainsFunc(s.config.Allow, func(p netip.Prefix) bool { return p.Contains(peer) })
	switch {
	case len(s.config.Allow) == 0 && !peer.IsLoopback(), len(s.config.Allow) > 0 && !allowed:
		return "not an allowed peer"
	case len(s.mu.conns) >= s.config.Connections:
		return fmt.Sprintf("%d connections already", len(s.mu.conns))
	case s.ctx.Err() != nil:
		return ErrClosed.Error()
	}
	return ""
}

// expectLanes tells a peer which lanes to dial. Their numbers are drawn, so that no other process can guess them.
func (s *Server) expectLanes(c *Conn, n int) establish {
	host := addressOf(c.control.LocalAddr()).Addr()
	address := netip.AddrPortFrom(host, addressOf(s.lanes.Addr()).Port()).String()
	s.mu.Lock()
	defer s.mu.Unlock()
	first := drawNumber()
	for i := range n {
		s.mu.expected[first+uint64(i)] = slot{c, i}
	}
	return establish{addresses: slices.Repeat([]string{address}, n), uuids: []uint64{first}}
}

// drawNumber draws the number of a lane, far from the end of all numbers, so that others can follow it.
func drawNumber() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:]) >> 1
}

// takeLane reads which lane a connection is, on a goroutine of its own: a process that says nothing holds up no other
// (TR-W-27). As many may do that at a time as there may be lanes.
func (s *Server) takeLane(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.arriving >= s.config.Connections {
		conn.Close()
		return
	}
	s.mu.arriving++
	s.work.Go(func() {
		stop := context.AfterFunc(s.ctx, func() { conn.Close() })
		conn.SetReadDeadline(time.Now().Add(lanePatience))
		uuid, err := readNumber(conn)
		conn.SetReadDeadline(time.Time{})
		open := stop() // also of a stranger's connection, which the context would keep
		s.mu.Lock()
		s.mu.arriving--
		place, ok := s.mu.expected[uuid]
		if ok && err == nil && open {
			delete(s.mu.expected, uuid)
		} else {
			place.conn = nil
		}
		s.mu.Unlock()
		if place.conn == nil {
			conn.Close()
			return
		}
		place.conn.attach(place.index, conn)
	})
}

// readNumber reads the number of a lane.
func readNumber(r io.Reader) (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// writeNumber writes it.
func writeNumber(w io.Writer, uuid uint64) error {
	_, err := w.Write(binary.LittleEndian.AppendUint64(nil, uuid))
	return err
}

// gone removes a connection that has ended, with all that its peer has requested.
func (s *Server) gone(c *Conn) {
	c.mu.Lock()
	tickets, err := c.mu.tickets, c.mu.err
	c.mu.tickets = nil
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.conns, c)
	maps.DeleteFunc(s.mu.expected, func(_ uint64, p slot) bool { return p.conn == c })
	for _, t := range slices.Sorted(maps.Keys(tickets)) {
		delete(s.mu.tickets, t)
		if d := tickets[t]; d != nil {
			d.offered.note(Delivery{Index: d.index, Peer: c.Peer(), Err: err})
			d.offered.release()
		}
		s.perform(s.mu.table.Cancel(t))
	}
}

// request takes a request of a peer.
func (s *Server) request(c *Conn, m pullRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	until := time.Time{}
	if m.until != 0 {
		until = now.Add(min(max(0, time.UnixMicro(m.until).Sub(now)), longestWait))
	}
	for i, index := range m.indexes {
		if err := c.room(); err != nil {
			return err
		}
		q := offer.Request{Offer: m.offer, Index: int(min(index, math.MaxInt32)), Until: until}
		id, actions := s.mu.table.Request(now, q)
		s.mu.tickets[id] = ticket{c, m.request + uint64(i), q.Index}
		c.hold(id, nil)
		s.perform(actions)
	}
	return nil
}

// room says whether the peer of a connection may request another buffer. A peer that does not read its answers may not: a
// request is shorter than the answer to it, so the memory of this process would be the peer's to fill.
func (c *Conn) room() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.mu.tickets) >= c.config.Requests:
		return fmt.Errorf("more than %d requests on a connection", c.config.Requests)
	case len(c.mu.out) > maxOut:
		return fmt.Errorf("the peer does not read: %d bytes of answers wait", len(c.mu.out))
	}
	return nil
}

// hold notes a request of the peer, and its delivery if that has begun.
func (c *Conn) hold(id offer.Ticket, d *delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.tickets != nil {
		c.mu.tickets[id] = d
	}
}

// settle forgets a request of the peer, and may post an answer.
func (c *Conn) settle(id offer.Ticket, answer message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.tickets, id)
	if answer != nil && c.mu.err == nil {
		c.post(answer)
	}
	c.mu.changed.Broadcast()
}

// perform does what the table says. The caller holds mu.
func (s *Server) perform(actions []offer.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case offer.Deliver:
			s.deliver(a)
		case offer.Refuse:
			t := s.mu.tickets[a.Ticket]
			delete(s.mu.tickets, a.Ticket)
			t.conn.settle(a.Ticket, failure{request: t.request, largest: true, text: wording(a.Err, t.index)})
		case offer.End:
			o := s.mu.offers[a.Offer]
			delete(s.mu.offers, a.Offer)
			o.end(a.Err)
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// deliver begins to send a buffer. One without bytes cannot be sent to JAX in any way (TR-W-30).
func (s *Server) deliver(a offer.Deliver) {
	t, o := s.mu.tickets[a.Ticket], s.mu.offers[a.Offer]
	d := &delivery{ticket: a.Ticket, request: t.request, index: a.Index, buffer: &o.buffers[a.Index], offered: o}
	if d.buffer.size() > 0 {
		o.under++
		t.conn.hold(a.Ticket, d)
		t.conn.deliver(d)
		return
	}
	delete(s.mu.tickets, a.Ticket)
	text := fmt.Sprintf("buffer %d has no bytes, which this protocol cannot deliver: make it without a pull", a.Index)
	t.conn.settle(a.Ticket, failure{request: t.request, largest: true, text: text})
	s.perform(s.mu.table.Done(a.Ticket, true))
}

// delivered notes that the last byte of a buffer has been written, or that it never will be.
func (s *Server) delivered(c *Conn, d *delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.mu.tickets[d.ticket]; !ok {
		return
	}
	delete(s.mu.tickets, d.ticket)
	d.offered.note(Delivery{Index: d.index, Peer: c.Peer(), Err: d.err})
	d.offered.release()
	c.settle(d.ticket, nil)
	s.perform(s.mu.table.Done(d.ticket, d.err == nil))
}

// expire has the table drop what has expired, at its time (TR-H-2).
func (s *Server) expire() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.changed:
		case <-timer.C:
		}
		s.mu.Lock()
		actions := s.mu.table.Advance(time.Now())
		if len(actions) > 0 {
			s.perform(actions)
		}
		at, ok := s.mu.table.Deadline()
		s.mu.Unlock()
		if timer.Stop(); ok {
			timer.Reset(time.Until(at))
		}
	}
}

// expired is what a peer hears of a request that has waited too long.
const expired = "Pull expired"

// wording is the text of a refusal, with the words of the reference where its users may look for them (TR-ERR-6).
func wording(err error, index int) string {
	if bad, ok := errors.AsType[*offer.IndexError](err); ok {
		return fmt.Sprintf("Buffer id: %d out of range %d", bad.Index, bad.Buffers)
	}
	switch {
	case errors.Is(err, offer.ErrFetched):
		return fmt.Sprintf("Buffer id: %d has already been fetched", index)
	case errors.Is(err, offer.ErrExpired):
		return expired
	case errors.Is(err, offer.ErrReset):
		return "PullTable::Reset"
	default:
		return err.Error()
	}
}
