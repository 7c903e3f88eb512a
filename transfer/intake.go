package transfer

import "github.com/serry-dev/serry/link"

const (
	// intakeBytes is how much may be under way to this process on one link.
	intakeBytes = 64 << 20

	// intakePieces is how many pieces may be. It is less than a link can take.
	intakePieces = 1 << 15

	// agingTurns is how often the least urgent transfer goes first: once in so many pieces.
	agingTurns = 20
)

// An intake decides which receives of a peer get bytes next. A receive gets one piece after the other in turn with others of
// its class, and those of a more urgent class go first. What it gives out is memory for the link, which tells the
// sender: so the sender never sends what the receiver has no memory for.
//
// It does not wait for a transfer that cannot move: a receive is here only when the sender is ready, and the sender posts
// every transfer that was accepted.
type intake struct {
	queue  [link.Bulk + 1][]*mover // that can have a piece, by class; the next one first
	bytes  int64                   // under way
	pieces int                     // under way
	turns  int
}

// add lets a mover have a piece in its turn, if it wants one and its window has room.
func (q *intake) add(m *mover) {
	if !m.over && !m.queued && len(m.left) > 0 && len(m.pieces) < windowOf(m.early) {
		m.queued = true
		q.queue[m.class] = append(q.queue[m.class], m)
	}
}

// windowOf is how many pieces of a receive may be under way. Of one whose data are not there it is one: its memory waits, and others
// need some, too.
func windowOf(early bool) int {
	if early {
		return 1
	}
	return windowPieces
}

// freed notes that a piece is not under way any more.
func (q *intake) freed(p *piece) {
	q.bytes -= p.To - p.From
	q.pieces--
}

// grant gives out pieces while there is room.
func (q *intake) grant() {
	for q.bytes < intakeBytes && q.pieces < intakePieces {
		m := q.next()
		if m == nil {
			return
		}
		m.queued = false
		if n := m.give(m.link.Expect); n > 0 {
			q.bytes += n
			q.pieces++
			m.op.peer.machine.Started(m.op.peer.now(), m.op.ref)
		}
		q.add(m)
	}
}

// next takes the mover out that goes next, or returns nil.
func (q *intake) next() *mover {
	q.turns++
	class := -1
	for c := range q.queue {
		for len(q.queue[c]) > 0 && q.queue[c][0].over {
			q.drop(c)
		}
		if len(q.queue[c]) > 0 && (class < 0 || q.turns%agingTurns == 0) {
			class = c
		}
	}
	if class < 0 {
		return nil
	}
	m := q.queue[class][0]
	q.drop(class)
	return m
}

// drop takes the first mover of a class out.
func (q *intake) drop(class int) {
	q.queue[class][0] = nil
	if q.queue[class] = q.queue[class][1:]; len(q.queue[class]) == 0 {
		q.queue[class] = nil
	}
}
