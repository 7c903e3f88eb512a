package collective

import (
	"slices"

	"github.com/serry-dev/serry/internal/schedule"
)

// A plan is the schedule of one rank, with what the engine needs to know of it besides. It does not depend on the
// size of the vector, so that it is made once for many operations.
type plan struct {
	schedule.Schedule
	algorithm    uint8      // place in algorithms, from 1 on; or 0: the schedule is that of the operation itself
	sends, recvs [][]uint16 // the number of each message of each round, among all from one rank to the other
	slots        [][][2]int // of each slot of scratch memory, the ranges of blocks that lie in it: from base, to
}

// maxMessages bounds the messages from one rank to another in one operation.
const maxMessages = 1 << 16

func newPlan(a schedule.Algorithm, j schedule.Job, rank int) (*plan, error) {
	s, err := schedule.New(a, j, rank)
	if err != nil {
		return nil, err
	}
	p := compile(s)
	p.algorithm = uint8(slices.Index(algorithms, a) + 1)
	return p, nil
}

// compile makes the plan of a schedule.
func compile(s schedule.Schedule) *plan {
	p := &plan{Schedule: s}
	sent, received := make(map[int]int), make(map[int]int)
	for _, r := range s.Rounds {
		p.sends = append(p.sends, number(r.Sends, sent))
		p.recvs = append(p.recvs, number(r.Recvs, received))
		p.note(r)
	}
	return p
}

// number counts the messages of a round.
func number(moves []schedule.Move, before map[int]int) []uint16 {
	numbers := make([]uint16, len(moves))
	for i, m := range moves {
		if before[m.Peer] >= maxMessages {
			panic("collective: too many messages in a schedule")
		}
		numbers[i] = uint16(before[m.Peer])
		before[m.Peer]++
	}
	return numbers
}

// note notes which scratch memory a round uses.
func (p *plan) note(r schedule.Round) {
	for _, m := range slices.Concat(r.Sends, r.Recvs) {
		for _, part := range m.Parts {
			p.use(part)
		}
	}
	for _, w := range r.Work {
		p.use(w.Into)
		for _, part := range w.From {
			p.use(part)
		}
	}
}

func (p *plan) use(part schedule.Part) {
	if part.Buf != schedule.Tmp {
		return
	}
	for len(p.slots) <= part.Slot {
		p.slots = append(p.slots, nil)
	}
	if span := [2]int{part.Base, part.Hi}; !slices.Contains(p.slots[part.Slot], span) {
		p.slots[part.Slot] = append(p.slots[part.Slot], span)
	}
}
