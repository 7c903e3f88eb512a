package collective

import (
	"sync/atomic"

	"github.com/serry-dev/serry/internal/processor"
	"github.com/serry-dev/serry/link"
)

// A share is the part of a segment that one rank writes and the other ranks of its clique read. The rank
// writes its progress and its data there:
//
//	0     count: the phases that the rank has ended, modulo 2^32
//	4     processor: on which it ended the last one, or 2^32-1
//	64    words: of the last operations that the rank has begun
//	128   asleep: 1 while the rank sleeps, or is about to
//	132   over: 1 when the rank has failed, and its program may use the memory of its operations again
//	192   stream: of the clique
//	200   spots: where the input and the output of a large operation lie, if the others can read them
//	256   table: names of the arenas that the process has lent; of its first rank
//	384   cells: two, which small operations use in turn
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
	cpuAt      = 4
	wordsAt    = 64
	asleepAt   = 128
	overAt     = 132
	streamAt   = 192
	spotsAt    = 200
	tableAt    = 256
	cellsAt    = tableAt + 8*maxArenas
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

// sharesProcessor says whether the rank ran on the processor of this thread when it ended its last phase.
func (s share) sharesProcessor() bool {
	here := processor.Number()
	return here != processor.None && s.segment.Word(s.at+cpuAt).Load() == uint32(here)
}

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
// So at least one of the two sees the other. It says whether it has woken one.
func (s share) publish(count uint32, others []share) (woke bool) {
	s.segment.Word(s.at + cpuAt).Store(uint32(processor.Number()))
	s.segment.Word(s.at + countAt).Store(count)
	for i := range others {
		if others[i].segment.Word(others[i].at+asleepAt).Load() != 0 {
			s.segment.Wake(s.at + countAt)
			return true
		}
	}
	return false
}

// setAsleep says whether the rank sleeps.
func (s share) setAsleep(asleep uint32) { s.segment.Word(s.at + asleepAt).Store(asleep) }

// setOver says that the rank has failed.
func (s share) setOver() { s.segment.Word(s.at + overAt).Store(1) }

// over says whether the rank has failed.
func (s share) over() bool { return s.segment.Word(s.at+overAt).Load() != 0 }

// setSpots says where the memory of an operation lies. The rank tells the others by its next phase.
func (s share) setSpots(in, out spot) {
	s.segment.LongWord(s.at + spotsAt).Store(uint64(in))
	s.segment.LongWord(s.at + spotsAt + 8).Store(uint64(out))
}

func (s share) spots() (in, out spot) {
	return spot(s.segment.LongWord(s.at + spotsAt).Load()), spot(s.segment.LongWord(s.at + spotsAt + 8).Load())
}

// arena is where the process notes the name of an arena that it has lent.
func (s share) arena(slot int) *atomic.Uint64 { return s.segment.LongWord(s.at + tableAt + 8*slot) }
