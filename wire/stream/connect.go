package stream

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/serry-dev/serry/internal/plant"
)

const (
	firstRetry  = 25 * time.Millisecond // after a round over all addresses
	lastRetry   = 500 * time.Millisecond
	lastAttempt = 8 * time.Second // the most time that one attempt gets
	briskRounds = 3               // slow rounds before attempts get more time than ResumeAfter
	steadyConn  = time.Second     // a connection that lasts longer is more than an attempt
	maxLateness = time.Second     // a tick that is later than that came while this process did not run
)

// A search is the state of the search for a leader. It belongs to run.
type search struct {
	busy    bool
	next    int    // index of the address to try
	other   string // the address that a server redirected to, to be tried first; or empty
	hops    int    // redirections in this round
	rounds  int    // over all addresses, without success
	slow    int    // of those rounds: with an address that did not answer in time
	inRound int    // addresses tried in this round
	silent  string // the address that did not answer in this round, or empty
	brief   int    // connections in a row that ended as soon as they were in use
}

// run keeps the host connected, and sends beats.
func (h *Host) run() {
	tick := time.NewTicker(BeatEvery)
	defer tick.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	var s search
	last := time.Now()
	for {
		select {
		case <-h.life.Done():
			h.hangUp()
			return
		case l := <-h.ended:
			if h.lost(l) && !s.busy {
				retry.Reset(s.retryAfter(l))
			}
		case a := <-h.reached:
			s.busy = false
			if wait, ok := h.settle(&s, a); !ok {
				retry.Reset(wait)
			}
		case <-retry.C:
			h.try(&s)
		case now := <-tick.C:
			late := now.Sub(last) > BeatEvery+maxLateness
			last = now
			if h.tick(late) && !s.busy {
				retry.Reset(0)
			}
		}
	}
}

// retryAfter says how long to wait after the end of a connection that was in use. The first time there is
// no wait: the server was killed, or hands over, and another one leads. The pause grows for a server that
// accepts every connection and ends it at once.
func (s *search) retryAfter(l *hostConn) time.Duration {
	if time.Since(l.began) >= steadyConn {
		s.brief = 0
		return 0
	}
	if s.brief++; s.brief == 1 {
		return 0
	}
	return min(firstRetry<<min(s.brief-2, 10), lastRetry)
}

// hangUp ends the connection, if there is one.
func (h *Host) hangUp() {
	h.mu.Lock()
	l := h.mu.current
	h.mu.current = nil
	h.mu.Unlock()
	if l != nil {
		l.pipe.Fail(context.Cause(h.life))
	}
}

// lost notes the end of a connection, and says whether it was the current one.
func (h *Host) lost(l *hostConn) bool {
	h.sinkMu.Lock()
	defer h.sinkMu.Unlock()
	h.mu.Lock()
	used := l.inUse()
	if used {
		h.mu.current = nil
	}
	h.mu.Unlock()
	if used {
		h.down(fmt.Errorf("%s: %w", l.address, l.pipe.Err()))
	}
	return used
}

// attemptFailed notes that an attempt to connect has failed.
func (h *Host) attemptFailed(err error) {
	h.sinkMu.Lock()
	defer h.sinkMu.Unlock()
	h.mu.Lock()
	up := h.mu.current != nil
	h.mu.Unlock()
	if !up {
		h.down(err)
	}
}

// down tells the sink that there is no connection; sinkMu is held.
func (h *Host) down(err error) {
	h.cfg.Log.Debug("stream down", "err", err)
	h.cfg.Sink.Down(err)
	h.cfg.Sink.Flush()
}

// try starts an attempt to connect, if one is needed.
func (h *Host) try(s *search) {
	if s.busy {
		return
	}
	if !h.needsConn() {
		*s = search{next: s.next, brief: s.brief}
		return
	}
	s.busy = true
	address := cmp.Or(s.other, h.cfg.Addresses[s.next])
	patience := min(ResumeAfter<<min(max(0, s.slow-briskRounds), 3), lastAttempt)
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(h.life, patience)
		a := h.connect(ctx, address)
		if a.conn == nil && ctx.Err() != nil {
			a.silent = address
		}
		cancel()
		select {
		case h.reached <- a:
		case <-h.life.Done():
			if a.conn != nil {
				a.conn.pipe.Fail(net.ErrClosed)
			}
		}
	})
}

// needsConn says whether the host has no connection, or one that has fallen silent.
func (h *Host) needsConn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mu.closed && (h.mu.current == nil || h.mu.current.pipe.silent() >= ResumeAfter)
}

// settle handles the end of an attempt. If there is no connection yet, it says when to try again.
func (h *Host) settle(s *search, a attempt) (wait time.Duration, ok bool) {
	if a.conn != nil {
		*s = search{next: s.next, brief: s.brief}
		if h.needsConn() { // the new connection has ended already
			return s.retryAfter(a.conn), false
		}
		return 0, true
	}
	h.attemptFailed(a.err)
	s.silent = cmp.Or(a.silent, s.silent)
	if a.to != nil {
		if s.hops++; a.to.address != "" && a.to.address != s.silent && s.hops <= len(h.cfg.Addresses)+1 {
			s.other = a.to.address
			return 0, false
		}
	}
	if s.nextAddress(h.cfg.Addresses) {
		return 0, false
	}
	wait = min(firstRetry<<min(s.rounds, 10), lastRetry)
	if s.silent != "" { // a longer attempt helps only where one was too short
		s.slow++
	}
	s.rounds, s.inRound, s.hops, s.silent = s.rounds+1, 0, 0, ""
	return time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64())), false
}

// nextAddress goes on to the next address, and says whether there is one left in this round. A server that
// did not answer is asked once a round. Servers that stand by name a leader that is frozen or cut off for as
// long as its lease lasts, and then another one, which the host should find at once.
func (s *search) nextAddress(addresses []string) bool {
	s.other = ""
	for {
		s.next = (s.next + 1) % len(addresses)
		if s.inRound++; s.inRound >= len(addresses) {
			return false
		}
		if addresses[s.next] != s.silent {
			return true
		}
	}
}

// adopt makes l the current connection: all calls without an answer are sent on it. The reader of l calls
// adopt when it has read the welcome, so that the sink hears of the connection before it hears of what
// follows the welcome, such as the next epoch.
func (h *Host) adopt(l *hostConn) error {
	h.sinkMu.Lock()
	h.mu.Lock()
	if l.outdated(l.welcome.term) || h.mu.closed {
		h.mu.Unlock()
		h.sinkMu.Unlock()
		return errDeposed
	}
	old := h.mu.current
	h.mu.current = l
	h.mu.store, h.mu.term = l.welcome.store, l.welcome.term
	h.sync(l.pipe)
	h.mu.Unlock()
	h.cfg.Sink.Up(l.welcome.term, l.welcome.service)
	h.cfg.Sink.Flush()
	h.sinkMu.Unlock()
	if old != nil {
		old.pipe.Fail(errSilent)
	}
	h.cfg.Log.Debug("stream up", "peer", l.address, "term", l.welcome.term)
	l.pipe.Flush()
	return nil
}

// acknowledged notes that the server has received the beats up to a number.
func (h *Host) acknowledged(seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for l, last := range h.mu.unacked {
		if last <= seq {
			delete(h.mu.unacked, l)
		}
	}
}

// sync queues everything that a server must know on a new connection; mu is held.
func (h *Host) sync(p *pipe) {
	for l := range h.mu.unacked { // the beats may have been lost with the connection before
		h.mu.heard[l] = true
	}
	clear(h.mu.unacked)
	var calls []*pending
	for conn, waiting := range h.mu.conns {
		p.send(&open{conn})
		calls = slices.AppendSeq(calls, maps.Values(waiting))
	}
	slices.SortFunc(calls, func(a, b *pending) int { return cmp.Compare(a.order, b.order) })
	if h.cfg.Planted.Has(plant.NoResend) {
		calls = nil
	}
	for _, k := range calls {
		k.send(p)
	}
	for _, e := range h.mu.exits {
		p.send(&e)
	}
	lives := slices.Collect(maps.Values(h.mu.followed))
	for part := range slices.Chunk(lives, maxListed) {
		p.send(&follow{part})
	}
	p.send(bare(frameSynced))
	// After Synced, which ends the virtual connections that were not opened again: a server that knows them
	// sees their end first.
	for _, c := range h.mu.closures {
		p.send(&c)
	}
}

// sawTerm notes a term that l has told of. A connection to the leader of a lower term is ended.
func (l *hostConn) sawTerm(term uint64) {
	h := l.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.welcome.store != h.mu.store || term <= h.mu.term {
		return
	}
	h.mu.term = term
	if used := h.mu.current; used != nil && used.welcome.term < term {
		used.pipe.Fail(errDeposed)
	}
}

// tick sends a beat, and says whether the current connection has fallen silent. If this process itself did
// not run for a while, it may not have read what the server sent: the silence is counted anew.
func (h *Host) tick(late bool) (needsConn bool) {
	h.mu.Lock()
	l := h.mu.current
	if l == nil {
		h.mu.Unlock()
		return false
	}
	if late {
		l.pipe.heard.Store(l.pipe.now())
	}
	h.beat(l.pipe)
	h.mu.Unlock()
	l.pipe.Flush()
	silent := l.pipe.silent()
	if silent >= SilentAfter {
		l.pipe.Fail(errSilent)
	}
	return silent >= ResumeAfter
}

// beat queues a beat, and more of them while one cannot list everything; mu is held.
func (h *Host) beat(p *pipe) {
	for again := true; again; again = len(h.mu.heard)+len(h.mu.watermarks) > 0 {
		h.mu.seq++
		t := beat{seq: h.mu.seq}
		for l := range h.mu.heard {
			if len(t.heard) == maxListed {
				break
			}
			t.heard = append(t.heard, l)
			if len(h.mu.unacked) < maxHeard {
				h.mu.unacked[l] = t.seq
			}
			delete(h.mu.heard, l)
		}
		for r, w := range h.mu.watermarks {
			if len(t.watermarks) == maxListed {
				break
			}
			t.watermarks = append(t.watermarks, watermark{r, w})
			delete(h.mu.watermarks, r)
		}
		p.send(&t)
	}
}
