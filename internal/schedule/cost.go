package schedule

import (
	"fmt"
	"slices"
	"time"
)

// A Model says what messages and reductions cost. A message of m bytes takes Latency + m*Byte; each rank has one
// port that sends and receives at the same time; reducing m bytes takes m*Sum.
type Model struct {
	Latency time.Duration
	Byte    float64 // ns a byte of one direction of a link
	Sum     float64 // ns a byte of a reduction
}

// TCP is what sockets between processes of today's hosts cost, roughly: 25 us a message, 3 GB/s, 6 GB/s of sums.
var TCP = Model{Latency: 25 * time.Microsecond, Byte: 1. / 3, Sum: 1. / 6}

// A Bill is what an operation costs by a model.
type Bill struct {
	Time   time.Duration
	Rounds int   // of the rank with the most
	Sent   int64 // bytes, by the rank that sends most
	Summed int64 // bytes, by the rank that reduces most
}

// Cost plays the schedules of all ranks of an algorithm over a vector of so many bytes.
func (m Model) Cost(a Algorithm, j Job, bytes int64) (Bill, error) {
	s := simulation{model: m, bytes: bytes, inFlight: map[[2]int][]time.Duration{}}
	for rank := range j.Ranks {
		one, err := New(a, j, rank)
		if err != nil {
			return Bill{}, err
		}
		s.ranks = append(s.ranks, player{Schedule: one})
	}
	return s.play()
}

// Size is the bytes of the blocks [lo, hi) of a vector of so many bytes that is cut into blocks as evenly as
// possible (CL-ALG-4).
func Size(bytes int64, blocks, lo, hi int) int64 {
	if blocks == 0 {
		return 0
	}
	cut := func(i int) int64 { return bytes/int64(blocks)*int64(i) + min(int64(i), bytes%int64(blocks)) }
	return cut(hi) - cut(lo)
}

// A player is a rank and how far it is.
type player struct {
	Schedule
	next    int           // the round
	begun   bool          // its messages were sent
	sent    time.Duration // when the last of them has arrived
	start   time.Duration // of the round
	inFree  time.Duration // when the receiving port is free
	outFree time.Duration
	bill    Bill
}

type simulation struct {
	model    Model
	bytes    int64
	ranks    []player
	inFlight map[[2]int][]time.Duration // by sender and receiver: when each message has arrived
}

func (s *simulation) play() (Bill, error) {
	for {
		moved, done := false, 0
		for i := range s.ranks {
			for s.advance(&s.ranks[i]) {
				moved = true
			}
			if s.ranks[i].next == len(s.ranks[i].Rounds) {
				done++
			}
		}
		if done == len(s.ranks) {
			return s.total(), nil
		}
		if !moved {
			return Bill{}, fmt.Errorf("%w: %d of %d ranks wait for each other", ErrInvalid, len(s.ranks)-done, len(s.ranks))
		}
	}
}

// advance finishes the next round of a rank, if all its messages are on their way.
func (s *simulation) advance(p *player) bool {
	if p.next == len(p.Rounds) {
		return false
	}
	r := p.Rounds[p.next]
	if !p.begun {
		s.begin(p, r)
	}
	need := map[int]int{}
	for _, m := range r.Recvs {
		need[m.Peer]++
	}
	for peer, n := range need {
		if len(s.inFlight[[2]int{peer, p.Rank}]) < n {
			return false
		}
	}
	s.finish(p, r)
	return true
}

// begin sends the messages of a round, one after the other.
func (s *simulation) begin(p *player, r Round) {
	p.begun, p.outFree = true, max(p.outFree, p.start)
	for _, m := range r.Sends {
		n := s.size(p, m.Parts)
		p.bill.Sent += n
		p.outFree += s.model.move(n)
		pair := [2]int{p.Rank, m.Peer}
		s.inFlight[pair] = append(s.inFlight[pair], p.outFree+s.model.Latency)
	}
	p.sent = p.outFree
	if len(r.Sends) > 0 {
		p.sent += s.model.Latency
	}
}

// finish receives the messages of a round, in the order in which they come, and does its work.
func (s *simulation) finish(p *player, r Round) {
	type arrival struct {
		at   time.Duration
		size int64
	}
	var arrivals []arrival
	for _, m := range r.Recvs {
		pair := [2]int{m.Peer, p.Rank}
		arrivals = append(arrivals, arrival{s.inFlight[pair][0], s.size(p, m.Parts)})
		s.inFlight[pair] = s.inFlight[pair][1:]
	}
	slices.SortFunc(arrivals, func(a, b arrival) int { return int(a.at - b.at) })
	end := p.sent
	p.inFree = max(p.inFree, p.start)
	for _, a := range arrivals {
		p.inFree = max(a.at, p.inFree+s.model.move(a.size))
		end = max(end, p.inFree)
	}
	for _, w := range r.Work {
		if len(w.From) > 1 {
			n := s.size(p, []Part{w.Into}) * int64(len(w.From)-1)
			p.bill.Summed += n
			end += time.Duration(float64(n) * s.model.Sum)
		}
	}
	p.start, p.begun = end, false
	p.next++
	p.bill.Time, p.bill.Rounds = end, p.bill.Rounds+min(1, len(r.Sends)+len(r.Recvs))
}

func (m Model) move(bytes int64) time.Duration { return time.Duration(float64(bytes) * m.Byte) }

func (s *simulation) size(p *player, parts []Part) int64 {
	var n int64
	for _, part := range parts {
		n += Size(s.bytes, p.Blocks, part.Lo, part.Hi)
	}
	return n
}

func (s *simulation) total() Bill {
	var b Bill
	for _, p := range s.ranks {
		b.Time, b.Rounds = max(b.Time, p.bill.Time), max(b.Rounds, p.bill.Rounds)
		b.Sent, b.Summed = max(b.Sent, p.bill.Sent), max(b.Summed, p.bill.Summed)
	}
	return b
}

// Bound is the least time that any algorithm needs for an operation by the model: the greatest of what latency,
// links and sums ask for, and which of them it is. The vector is the large side of the operation.
func (m Model) Bound(j Job, bytes int64) (time.Duration, string) {
	if j.Ranks == 1 {
		return 0, "nothing"
	}
	share := float64(bytes) * float64(j.Ranks-1) / float64(j.Ranks)
	moved, latency := share, time.Duration(logRounds(j.Ranks))*m.Latency
	switch j.Op {
	case AllReduce:
		moved = 2 * share
	case Broadcast, Reduce:
		moved = float64(bytes)
	case AllToAll, Gather, Scatter:
		latency = m.Latency
	case Barrier:
		moved = 0
	}
	least, term := latency, "latency"
	if t := time.Duration(moved * m.Byte); t > least {
		least, term = t, "links"
	}
	if t := time.Duration(share * m.Sum); j.Op.reduces() && t > least {
		least, term = t, "sums"
	}
	return least, term
}
