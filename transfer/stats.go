package transfer

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/serry-dev/serry/transfer/internal/match"
)

// Totals are figures of all transfers of a process.
type Totals struct {
	Sends, Receives int // that have not ended
	Held            int // sends that have ended, and whose memory peers may read
	Peers           int // lives that there are transfers with

	Ended     map[Outcome]uint64 // halves that have ended
	Corrected uint64             // sends whose verdict came after their end
	Bytes     map[Path]uint64    // that have come, of receives that ended well

	Offers   int // that are present
	Requests int // of peers that wait for offers or are answered

	Staged, StagedPeak int64 // bytes of memory that parts are gathered or received in
	Staging            int   // parts that wait for such memory
}

// An Outcome is how a half of a transfer ended.
type Outcome struct {
	Send bool
	Code string // "ok", "cancelled", "deadline exceeded" and so on
}

// figures are what an engine counts.
type figures struct {
	ended     [2][17]atomic.Uint64 // receives and sends, by code
	corrected atomic.Uint64
	bytes     [2]atomic.Uint64 // by link, by shared memory
}

// count notes how a half has ended.
func (f *figures) count(r Record) {
	side, code := 0, match.OK
	if r.Send {
		side = 1
	}
	if r.Err != nil {
		code = codeOf(r.Err)
	}
	f.ended[side][min(int(code), len(f.ended[side])-1)].Add(1)
	switch {
	case r.Send || r.Err != nil:
	case r.Path == ByMemory:
		f.bytes[1].Add(uint64(r.Bytes))
	default:
		f.bytes[0].Add(uint64(r.Bytes))
	}
}

// Totals returns the present figures.
func (e *Engine) Totals() Totals {
	t := Totals{Ended: make(map[Outcome]uint64), Corrected: e.figures.corrected.Load()}
	for _, p := range e.allPeers() {
		p.inquire(func() { p.total(&t) })
	}
	for side := range e.figures.ended {
		for code := range e.figures.ended[side] {
			if n := e.figures.ended[side][code].Load(); n > 0 {
				t.Ended[Outcome{side == 1, match.Code(code).String()}] = n
			}
		}
	}
	t.Bytes = map[Path]uint64{ByLink: e.figures.bytes[0].Load(), ByMemory: e.figures.bytes[1].Load()}
	e.offers.Lock()
	t.Offers = len(e.offers.present)
	e.offers.Unlock()
	for _, s := range []*staging{&e.staging, &e.unpacking} {
		s.mu.Lock()
		t.Staged, t.StagedPeak, t.Staging = t.Staged+s.used, t.StagedPeak+s.peak, t.Staging+len(s.waiting)
		s.mu.Unlock()
	}
	return t
}

// total adds the figures of one peer.
func (p *peer) total(t *Totals) {
	t.Peers++
	t.Held += len(p.held)
	t.Requests += len(p.deliveries)
	for _, o := range p.ops {
		if o.send {
			t.Sends++
		} else {
			t.Receives++
		}
	}
}

// allPeers lists the peers, in the order of their lives.
func (e *Engine) allPeers() []*peer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.mu.peers), func(a, b *peer) int { return a.life.Compare(b.life) })
}
