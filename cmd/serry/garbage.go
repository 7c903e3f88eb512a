package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// A coordinator needs little memory and a short command less, so a process lets garbage grow to several times of what
// it holds, and saves processor time. What holds much must not do the same: a server that keeps 100 MiB of keys
// would take 500.
const (
	gcPercent    = 400      // of what a process holds, that garbage may grow to
	leastPercent = 50       // the same for a process that holds much
	mostGarbage  = 64 << 20 // bytes of garbage, between these two
)

// garbagePercent is how far garbage may grow in a process that holds so many bytes, stacks of goroutines included:
// the runtime takes the percentage of these, too.
func garbagePercent(held uint64) int {
	return int(min(gcPercent, max(leastPercent, mostGarbage*100/max(1, held))))
}

// boundGarbage sets how far garbage may grow, and adapts that after every collection.
func boundGarbage() {
	present := gcPercent
	debug.SetGCPercent(present)
	held := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	afterCollections(func() {
		metrics.Read(held)
		sum := uint64(0)
		for _, s := range held {
			sum += s.Value.Uint64()
		}
		if want := garbagePercent(sum); want != present {
			present = want
			debug.SetGCPercent(want)
		}
	})
}

// afterCollections calls f after every garbage collection: each of them finds an object that nothing refers to.
func afterCollections(f func()) {
	unused := new([64]byte)
	runtime.AddCleanup(unused, func(f func()) {
		f()
		afterCollections(f)
	}, f)
}
