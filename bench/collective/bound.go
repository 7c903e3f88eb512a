package main

import (
	"cmp"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/internal/kernel"
	"github.com/serry-dev/serry/memory"
)

// A limit is how long an operation takes at least, in microseconds, and what makes it so long (CL-LIM-1).
type limit struct {
	micro float64
	term  string
}

// The terms of a limit. The greatest of them binds.
const (
	byLatency  = "latency" // words go there and back
	byLinks    = "links"   // each rank sends all at the same time over sockets
	bySums     = "sums"    // each rank reduces its share
	byMemory   = "memory"  // all ranks read and write their vectors at the same time
	microBytes = 64 << 20  // bytes that each rank sends in a measurement of sockets
	sumBytes   = 256 << 10 // of a vector that is reduced again and again in a cache
	trips      = 5000      // there and back
	attempts   = 5         // the least time counts
)

// A machine is what this machine can do with a number of ranks, measured in this process without any collective operation.
type machine struct {
	ranks   int
	line    float64 // microseconds: a cache line there and back
	word    float64 // 8 bytes there and back over a socket
	perSent float64 // for each byte that each rank sends over sockets while all do
	perLone float64 // for each byte that one rank sends while no other does
	perSum  float64 // for each byte of two vectors that each rank adds
	copies  map[int64]float64
}

func newMachine(ranks int) *machine {
	return &machine{ranks: ranks, line: roundTrip(), word: pingPong(), perSent: streaming(ranks), perLone: streaming(1), perSum: summing(ranks), copies: make(map[int64]float64)}
}

// A share is what each rank does at least in an operation on n bytes, as parts of n.
type share struct {
	rounds float64 // words one way, one after the other
	sent   float64 // by each rank at the same time
	lone   float64 // by, or to, one rank, where the others may be idle
	summed float64
	moved  float64 // of a copy of n bytes on all ranks
}

// shares are those of section 6.8 of the specification. A rank in memory reads what it needs from where it is: it copies no more
// than it must write, and reads no more than it must know.
func (m *machine) shares(op string) share {
	p := float64(m.ranks)
	others, tree := (p-1)/p, float64(bits.Len(uint(m.ranks-1)))
	switch op {
	case "allreduce", recorded, unrecorded:
		return share{rounds: tree, sent: 2 * others, summed: others, moved: 1}
	case apart, together:
		return share{rounds: 2 * tree, sent: 4 * others, summed: 2 * others, moved: 2}
	case "reducescatter":
		return share{rounds: tree, sent: others, summed: others, moved: (1 + 1/p) / 2}
	case "allgather", "alltoall":
		return share{rounds: tree, sent: others, moved: 1}
	case "broadcast":
		return share{rounds: tree, lone: 1, moved: others}
	case "reduce":
		return share{rounds: tree, lone: 1, summed: others, moved: (1 + 1/p) / 2}
	case "gather", "scatter":
		return share{rounds: tree, lone: others, moved: 1 / p}
	case "permute":
		return share{rounds: 1, sent: 1, moved: 1}
	case "sendrecv":
		return share{rounds: 2, lone: 2, moved: 2 / p}
	case "raggedalltoall":
		return share{rounds: tree, sent: 1 - 2/(p*(p+1)), moved: 1} // rank 0 keeps one row
	case pings:
		return share{rounds: 2}
	}
	return share{rounds: tree} // a barrier
}

// limit is that of an operation. Two that run together have one latency.
func (m *machine) limit(over, op string, bytes int64) limit {
	s, n := m.shares(op), float64(bytes)
	if op == together {
		s.rounds /= 2
	}
	all := []limit{{s.summed * n * m.perSum, bySums}}
	if over == overLinks {
		all = append(all, limit{s.rounds * m.word / 2, byLatency}, limit{n * (s.sent*m.perSent + s.lone*m.perLone), byLinks})
	} else {
		all = append(all, limit{s.rounds * m.line / 2, byLatency})
		if s.moved > 0 {
			all = append(all, limit{s.moved * m.copying(bytes), byMemory})
		}
	}
	best := all[0]
	for _, l := range all[1:] {
		if cmp.Compare(l.micro, best.micro) > 0 {
			best = l
		}
	}
	return best
}

// copying is the least time, in microseconds, in which each of the ranks copies a vector.
func (m *machine) copying(bytes int64) float64 {
	if known, ok := m.copies[bytes]; ok {
		return known
	}
	repeats := int(min(max((8<<20)/max(bytes, 1), 1), 10_000))
	from, to := make([][]byte, m.ranks), make([][]byte, m.ranks)
	for r := range m.ranks {
		from[r], to[r] = make([]byte, bytes), make([]byte, bytes)
		for i := range from[r] {
			from[r][i], to[r][i] = byte(i), 1 // in memory that was touched
		}
	}
	m.copies[bytes] = least(attempts, func() time.Duration {
		return onAll(m.ranks, func(r int) {
			for range repeats {
				copy(to[r], from[r])
			}
		}) / time.Duration(repeats)
	})
	return m.copies[bytes]
}

// summing is the least time, in microseconds a byte, in which each of some goroutines adds two vectors that are in its cache.
func summing(ranks int) float64 {
	const repeats = 100
	return least(attempts, func() time.Duration {
		return onAll(ranks, func(int) {
			a, b := make([]byte, sumBytes), make([]byte, sumBytes)
			for range repeats {
				if err := kernel.Reduce(kernel.Sum, memory.F32, a, a, b); err != nil {
					panic(err) // every machine adds floats
				}
			}
		})
	}) / (sumBytes * repeats)
}

// onAll is how long goroutines take that run f at the same time.
func onAll(n int, f func(i int)) time.Duration {
	var all sync.WaitGroup
	begun := time.Now()
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
	return time.Since(begun)
}

// roundTrip is the least time, in microseconds, in which two goroutines tell each other something. On one processor there is
// none.
func roundTrip() float64 {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	return least(attempts, func() time.Duration {
		var ball atomic.Uint32
		go func() {
			for i := uint32(1); i < 2*trips; i += 2 {
				for ball.Load() != i {
				}
				ball.Store(i + 1)
			}
		}()
		begun := time.Now()
		for i := uint32(0); i < 2*trips; i += 2 {
			ball.Store(i + 1)
			for ball.Load() != i+2 {
			}
		}
		return time.Since(begun) / trips
	})
}

// least is the shortest of some times, in microseconds.
func least(times int, f func() time.Duration) float64 {
	best := f()
	for range times - 1 {
		best = min(best, f())
	}
	return best.Seconds() * 1e6
}
