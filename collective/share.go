package collective

import (
	"github.com/serry-dev/serry/link"
)

// A share is the part of a segment that one rank writes and the other ranks of its clique read. The rank
// writes its progress and its data there:
//
//	0     count: the phases that the rank has ended, modulo 2^32
//	64    words: of the last operations that the rank has begun
//	128   asleep: 1 while the rank sleeps, or is about to
//	192   stream: of the clique
//	256   cells: two, which small operations use in turn
//	...   stage: vectors of the rank, for the ranks that reduce them
//	...   results: what the rank has reduced, or gives to all
//
// Words that different ranks wait for lie in cache lines of their own.
type share struct {
	segment *link.Segment
	at      int // where it begins in the segment
}

const (
	countAt    = 0
	wordsAt    = 64
	asleepAt   = 128
	streamAt   = 192
	cellsAt    = 256
	stageAt    = cellsAt + cells*cellBytes
	resultsAt  = stageAt + stageBytes
	shareBytes = resultsAt + resultBytes

	// cells is how many small operations of a rank may be in the hands of others: the present one and the one before.
	cells     = 2
	cellBytes = 8 << 10

	// recentWords is how many operations are remembered. No rank is more than three ahead of another, see [member].
	recentWords = 8

	stageBytes  = 1504 << 10
	resultBytes = 256 << 10
)

func (s share) bytes(from, n int) []byte {
	from += s.at
	return s.segment.Bytes()[from : from+n : from+n]
}

// cell is the memory of a small operation.
func (s share) cell(number uint64) []byte {
	return s.bytes(cellsAt+int(number%cells)*cellBytes, cellBytes)
}

// count is how many phases the rank has ended.
func (s share) count() uint32 { return s.segment.Word(s.at + countAt).Load() }

// word is that of an operation which the rank has begun, by its number among those through shared memory.
func (s share) word(number uint64) uint64 {
	return s.segment.LongWord(s.at + wordsAt + 8*int(number%recentWords)).Load()
}

// begin notes an operation. The rank tells the others by its next phase.
func (s share) begin(number, word uint64) {
	s.segment.LongWord(s.at + wordsAt + 8*int(number%recentWords)).Store(word)
}

// publish says that the rank has ended a phase: what it has written until then may be read. A rank that goes to sleep says
// so before it looks at the count for the last time, and the count is written before this rank looks whether others sleep.
// So at least one of the two sees the other.
func (s share) publish(count uint32, others []share) {
	s.segment.Word(s.at + countAt).Store(count)
	for i := range others {
		if others[i].segment.Word(others[i].at+asleepAt).Load() != 0 {
			s.segment.Wake(s.at + countAt)
			return
		}
	}
}

// setAsleep says whether the rank sleeps.
func (s share) setAsleep(asleep uint32) { s.segment.Word(s.at + asleepAt).Store(asleep) }
