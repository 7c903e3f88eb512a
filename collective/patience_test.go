package collective

import (
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// sleeping counts the waits to come in which the rank sleeps at once.
func sleeping(p *patience) (n int) {
	for !p.mayYield() {
		n++
	}
	return n
}

// A rank that has lost time by letting others run sleeps at once in the next waits, in more of them the more often that happens.
func TestPatience(t *testing.T) {
	clause.Cite(t, "CL-FIG-2")
	p := newPatience(2, 2)
	if n := sleeping(&p); n != 0 {
		t.Errorf("%d waits that sleep at once; want none", n)
	}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 4096} {
		p.came(slowYield + 1)
		if n := sleeping(&p); n != want {
			t.Fatalf("%d waits that sleep at once; want %d", n, want)
		}
	}
	for range 2 {
		p.came(time.Microsecond)
	}
	p.came(slowYield + 1)
	if n := sleeping(&p); n != 2048 {
		t.Errorf("%d waits that sleep at once after two yields that were of use; want 2048", n)
	}
}

// Spinning is given up step by step where it is of no use, taken up again, and not touched by a rank that is late.
func TestPatienceSpins(t *testing.T) {
	p := newPatience(2, 2)
	for range 20 {
		p.slept(longWait)
	}
	if p.spins != mostSpins {
		t.Errorf("%d spins after long waits; want %d", p.spins, mostSpins)
	}
	for range 20 {
		p.slept(longWait - 1)
	}
	if p.spins != leastSpins {
		t.Errorf("%d spins after short waits that slept; want %d", p.spins, leastSpins)
	}
	for range 20 {
		p.came(time.Microsecond)
	}
	if p.spins != mostSpins {
		t.Errorf("%d spins after short waits; want %d", p.spins, mostSpins)
	}
	for range 20 {
		p.slept(longWait - 1)
	}
	if p.spun(leastSpins / 2); p.spins != leastSpins {
		t.Errorf("%d spins after a rank that came soon; want %d", p.spins, leastSpins)
	}
	if p.spun(leastSpins); p.spins != 2*leastSpins {
		t.Errorf("%d spins after a rank that came nearly too late; want %d", p.spins, 2*leastSpins)
	}
	if p.woke = true; p.mostLooks() != mostSpins {
		t.Errorf("%d spins for a rank that is being woken; want %d", p.mostLooks(), mostSpins)
	}
	if p = newPatience(3, 2); p.spins != leastSpins {
		t.Errorf("%d spins of three ranks on two processors; want %d", p.spins, leastSpins)
	}
}
