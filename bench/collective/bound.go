package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// bound is how long an all-reduce through memory takes at least, in microseconds (CL-LIM-1): every rank reads its vector and
// writes one, so no faster than all ranks copy theirs at the same time; and each rank hears of the others, so no faster than a
// cache line goes there and back. Both are measured here, by goroutines of this process.
func bound(ranks int, bytes int64) float64 { return max(copying(ranks, bytes), roundTrip()) }

// copying is the least time, in microseconds, in which each of some goroutines copies a vector.
func copying(ranks int, bytes int64) float64 {
	repeats := int(min(max((8<<20)/max(bytes, 1), 1), 10_000))
	from, to := make([][]byte, ranks), make([][]byte, ranks)
	for r := range ranks {
		from[r], to[r] = make([]byte, bytes), make([]byte, bytes)
		for i := range from[r] {
			from[r][i], to[r][i] = byte(i), 1 // in memory that was touched
		}
	}
	return least(5, func() time.Duration {
		var all sync.WaitGroup
		begun := time.Now()
		for r := range ranks {
			all.Go(func() {
				for range repeats {
					copy(to[r], from[r])
				}
			})
		}
		all.Wait()
		return time.Since(begun) / time.Duration(repeats)
	})
}

// roundTrip is the least time, in microseconds, in which two goroutines tell each other something. On one processor there is
// none.
func roundTrip() float64 {
	if runtime.GOMAXPROCS(0) < 2 {
		return 0
	}
	const trips = 10_000
	return least(5, func() time.Duration {
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
