package collective

import (
	"context"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/processor"
	"github.com/serry-dev/serry/link"
)

// ParseKey and Bytes are how keys cross the wire.
func ParseKey(b []byte) (*Key, error) { return parseKey(b) }

// Bytes is the canonical form of the key.
func (k *Key) Bytes() []byte { return k.append(nil) }

// ParseError reads a notice.
func ParseError(b []byte) (*Error, error) { return parseError(b) }

// Bytes is the notice as it is sent.
func (e *Error) Bytes() []byte { return e.append(nil) }

// Algorithm is how a rank carries an operation out.
func Algorithm(c *Comm, o Op) string {
	k, err := o.prepare(c)
	if err != nil {
		return err.Error()
	}
	a, _ := k.choice()
	return string(a)
}

// Stream is the number that the frames of the clique have.
func (c *Comm) Stream() uint64 { return c.clique.stream }

// NextName is the name of the first message of an operation with a rank, if it is the next that this rank begins.
func NextName(c *Comm, o Op, peer int, receive bool) link.Header {
	k, err := o.prepare(c)
	if err != nil {
		panic(err)
	}
	seq := c.lastSeq() + 1
	if k.peer >= 0 {
		seq = c.mu.pairs[pair{k.peer, k.sends}] + 1 | transferBit
	}
	return c.clique.header(message{op: &operation{comm: c, word: word(seq, k.description)}, peer: peer}, receive)
}

// Shares says whether operations of the clique go through shared memory.
func Shares(c *Comm) bool {
	x := c.clique.sharing
	if x == nil {
		return false
	}
	select {
	case <-x.ready:
		return x.works
	default:
		return false
	}
}

// AtPhase calls f once, before the rank ends one of its phases of operations through shared memory: 0 is the next one.
func AtPhase(c *Comm, phase int, f func()) {
	c.sharer.before = func() {
		if phase == 0 {
			f()
		}
		phase--
	}
}

// NewRecording is what an operation does to be recorded, at its beginning and at its end.
func NewRecording(records int) func() {
	g := &Group{meter: processor.NewMeter()}
	c := &Comm{group: g, peers: make([]talliedPeer, 2)}
	c.mu.record = newRecorder(records)
	op := &operation{comm: c, call: &call{description: description{op: 1, count: 8}}}
	return func() {
		op.seq++
		op.trace = trace{}
		c.mu.record.begin(op)
		op.moved(1, 8, true)
		op.moved(1, 8, false)
		c.mu.record.end(op, g.meter.Now(), nil)
	}
}

// NewClock is how an operation reads the clock.
func NewClock() func() {
	g := &Group{meter: processor.NewMeter()}
	return func() { g.meter.Now() }
}

// ParseTrack reads the records of a rank.
func ParseTrack(b []byte) (Track, bool) {
	_, t, _, ok := parseTrack(b)
	return t, ok
}

// SampleTrack is the records of a rank as they are told.
func SampleTrack() []byte {
	g := new(Group)
	c := &Comm{group: g, clique: new(clique), peers: make([]talliedPeer, 2)}
	c.mu.record = newRecorder(64)
	op := &operation{comm: c, seq: 1, began: processor.Ticks(time.Second), call: &call{description: description{op: 1, dtype: 6, count: 8}}}
	c.mu.record.begin(op)
	op.moved(1, 8, false)
	c.mu.record.end(op, processor.Ticks(2*time.Second), nil)
	return c.appendTrack(nil, toldRecords, toldPeers)
}

// SummonsChange says whether a call for the next clique of a lineage wakes those that wait for changes.
func (g *Group) SummonsChange(from serry.Life, lineage uint64, generation uint32) bool {
	g.mu.Lock()
	changed := g.mu.changed
	g.mu.Unlock()
	g.summon(from, lineage, generation)
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

// Testify is what a process answers to the service about its collectives.
func Testify(g *Group, most int) []byte { return g.testify(context.Background(), "", most) }

// BorrowedArenas is how many arenas of other processes the clique of a rank has mapped.
func BorrowedArenas(c *Comm) (n int) {
	x := &c.clique.sharing.arenas
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.lenders {
		if l == nil {
			continue
		}
		for _, b := range l.borrowed {
			if b != nil && b.segment != nil {
				n++
			}
		}
	}
	return n
}

// LieAboutMemory makes a rank say that the memory of its present operation lies elsewhere.
func LieAboutMemory(c *Comm, slot int, offset int64) {
	c.sharer.own.setSpots(newSpot(slot, offset), newSpot(slot, offset))
}
