package lockrank_test

import (
	"sync"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/lockrank"
)

type low struct{}

func (low) Rank() int { return 1 }

type high struct{}

func (high) Rank() int { return 2 }

// A Mutex excludes, in every build.
func TestMutex(t *testing.T) {
	var mu lockrank.Mutex[low]
	var all sync.WaitGroup
	n := 0
	for range 50 {
		all.Go(func() {
			for range 100 {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	if all.Wait(); n != 5000 {
		t.Errorf("%d additions were counted; want 5000", n)
	}
}

// A goroutine that locks in the wrong order is told, whether or not another one is in its way.
func TestOrder(t *testing.T) {
	clause.Cite(t, "CL-ORD-13", "CLT-DES-5")
	if !lockrank.Checked {
		t.Skip("locks are not checked: -tags lockrank")
	}
	var a, a2 lockrank.Mutex[low]
	var b lockrank.Mutex[high]
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	a.Lock()
	b.Lock()
	a.Unlock() // in any order
	if !panics(a2.Lock) {
		t.Error("a lower rank was locked while a higher one was held")
	}
	b.Unlock()
	a.Lock()
	if !panics(a2.Lock) {
		t.Error("two of one rank were locked")
	}
	done := make(chan bool)
	go func() { done <- panics(func() { a2.Lock(); a2.Unlock() }) }()
	if <-done {
		t.Error("what another goroutine holds counts")
	}
	a.Unlock()
}
