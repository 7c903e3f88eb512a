//go:build lockrank

package lockrank

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
)

// Checked says whether the order of locks is checked.
const Checked = true

// held has the locks of all goroutines, by their numbers. Only a build that checks them has it.
var held struct {
	sync.Mutex
	ranks map[uint64][]Rank
}

// A Mutex is a mutex of rank R.
type Mutex[R Rank] struct{ mu sync.Mutex }

// Lock locks the mutex. It panics if the goroutine holds one of the same rank or a higher one.
func (m *Mutex[R]) Lock() {
	var mine R
	me := goroutine()
	held.Lock()
	for _, other := range held.ranks[me] {
		if other.Rank() >= mine.Rank() {
			held.Unlock()
			panic(fmt.Sprintf("lockrank: %T (rank %d) is locked while %T (rank %d) is held", mine, mine.Rank(), other, other.Rank()))
		}
	}
	if held.ranks == nil {
		held.ranks = make(map[uint64][]Rank)
	}
	held.ranks[me] = append(held.ranks[me], mine)
	held.Unlock()
	m.mu.Lock()
}

// Unlock unlocks it.
func (m *Mutex[R]) Unlock() {
	m.mu.Unlock()
	var mine R
	me := goroutine()
	held.Lock()
	defer held.Unlock()
	list := held.ranks[me]
	i := slices.Index(list, Rank(mine))
	if i < 0 {
		panic(fmt.Sprintf("lockrank: %T is unlocked by a goroutine that does not hold it", mine))
	}
	if list = slices.Delete(list, i, i+1); len(list) == 0 {
		delete(held.ranks, me)
		return
	}
	held.ranks[me] = list
}

// goroutine is the number of the goroutine, as its stack begins: "goroutine 7 [running]".
func goroutine() uint64 {
	var b [64]byte
	fields := bytes.Fields(b[:runtime.Stack(b[:], false)])
	n, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
