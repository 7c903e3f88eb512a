package goodput_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/serry-dev/serry/goodput"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// A fleet meets at barriers. Each rank works for about a second between two of them, and now and then ten times as long.
type fleet struct {
	random *rand.Rand
	ranks  int
	jitter float64
	slow   map[int]float64 // ranks that work longer, and how much
	now    time.Duration
}

func (f *fleet) meet(p *goodput.Pace, places int, hosts func(int) string) {
	at := make([]time.Duration, f.ranks)
	for range places {
		last := f.now
		for r := range at {
			work := math.Exp(f.random.NormFloat64() * f.jitter)
			if f.random.Float64() < 0.002 {
				work *= 10
			}
			if s, ok := f.slow[r]; ok {
				work *= s
			}
			at[r] = f.now + time.Duration(work*float64(time.Second))
			last = max(last, at[r])
		}
		p.Passed("save-#", at, hosts)
		f.now = last
	}
}

func newFleet(seed uint64, ranks int, jitter float64) *fleet {
	return &fleet{random: rand.New(rand.NewPCG(seed, uint64(ranks))), ranks: ranks, jitter: jitter}
}

func TestPaceLeavesHealthyRanksInPeace(t *testing.T) {
	clause.Cite(t, "D-GP-4", "D-GP-5", "TD-GP-2")
	for _, c := range []struct{ ranks, windows int }{{4, 100}, {8, 100}, {64, 30}, {1000, 3}, {10_000, 1}} {
		for _, jitter := range []float64{0.02, 0.1, 0.3} {
			p := goodput.NewPace(c.ranks)
			f := newFleet(1, c.ranks, jitter)
			for window := range c.windows {
				f.meet(p, 32, nil)
				if got := p.Stragglers(); len(got) > 0 {
					t.Errorf("%d ranks, jitter %v, window %d: Stragglers() = %+v; want none", c.ranks, jitter, window, got)
				}
			}
		}
	}
}

func TestPaceFindsStragglers(t *testing.T) {
	clause.Cite(t, "D-GP-3", "D-GP-4", "D-GP-5", "D-GP-6", "TD-GP-2")
	for _, c := range []struct {
		ranks, runs int
		jitter      float64
		least       int
	}{{4, 60, 0.02, 60}, {8, 60, 0.02, 60}, {64, 10, 0.02, 10}, {1000, 2, 0.02, 2}, {4, 60, 0.1, 50}, {8, 60, 0.1, 58}, {64, 10, 0.1, 10}, {1000, 2, 0.1, 2}} {
		found := 0
		for seed := range c.runs {
			p := goodput.NewPace(c.ranks)
			f := newFleet(uint64(seed), c.ranks, c.jitter)
			f.slow = map[int]float64{c.ranks / 2: 1.25}
			f.meet(p, 33, nil)
			got := p.Stragglers()
			if len(got) == 1 && got[0].Rank == c.ranks/2 {
				found++
				if s := got[0]; c.jitter < 0.05 && (s.Slower() < 0.2 || s.Slower() > 0.3 || s.Cost <= 0 || s.Share() > 0.6) {
					t.Errorf("%d ranks: slower by %.2f, share %.2f: %+v; want a quarter", c.ranks, s.Slower(), s.Share(), s)
				}
			} else if len(got) > 0 {
				t.Errorf("%d ranks, jitter %v: Stragglers() = %+v; want rank %d alone", c.ranks, c.jitter, got, c.ranks/2)
			}
		}
		if found < c.least {
			t.Errorf("%d ranks, jitter %v: found %d of %d; want %d", c.ranks, c.jitter, found, c.runs, c.least)
		}
	}
}

func TestPaceForgets(t *testing.T) {
	clause.Cite(t, "D-GP-4")
	p := goodput.NewPace(8)
	f := newFleet(7, 8, 0.02)
	f.slow = map[int]float64{3: 1.5}
	f.meet(p, 32, nil)
	f.slow = nil
	f.meet(p, 32, nil)
	if got := p.Stragglers(); len(got) != 1 {
		t.Errorf("after one clean window: Stragglers() = %+v; want rank 3", got)
	}
	f.meet(p, 32, nil)
	if got := p.Stragglers(); len(got) != 0 {
		t.Errorf("after two clean windows: Stragglers() = %+v; want none", got)
	}
}

func TestPaceNamesTheHost(t *testing.T) {
	clause.Cite(t, "D-GP-6")
	p := goodput.NewPace(32)
	f := newFleet(9, 32, 0.02)
	f.slow = map[int]float64{8: 1.3, 9: 1.3, 10: 1.3, 11: 1.3, 12: 1.3, 13: 1.3, 20: 1.3} // six of eight of host 1, and one of host 2
	f.meet(p, 32, func(rank int) string { return fmt.Sprintf("node-%d", rank/8) })
	got := p.Stragglers()
	if len(got) != 2 || got[0].Rank != -1 || got[0].Host != "node-1" || got[1].Rank != 20 {
		t.Errorf("Stragglers() = %+v; want node-1 and rank 20", got)
	}
}

// Ranks that do not take part in a barrier are not late for it.
func TestPaceOfSomeRanks(t *testing.T) {
	p := goodput.NewPace(5)
	now := time.Duration(0)
	for range 64 {
		now += time.Second
		p.Passed("some", []time.Duration{now, now + time.Millisecond, -1, now + 300*time.Millisecond, now}, nil)
	}
	if got := p.Stragglers(); len(got) != 1 || got[0].Rank != 3 || got[0].Places != 32 {
		t.Errorf("Stragglers() = %+v; want rank 3", got)
	}
	if got := goodput.Lag([]time.Duration{-1, 5, 2, 3}); got != 2 {
		t.Errorf("Lag() = %v; want 2ns", got)
	}
}

// A client that makes up names of barriers does not make the server large.
func TestPaceIsBounded(t *testing.T) {
	p := goodput.NewPace(100_000)
	at := make([]time.Duration, 100_000)
	for i := range 10 {
		p.Passed(fmt.Sprintf("class %c", 'a'+i), at, nil)
	}
	if got := p.Stragglers(); len(got) != 0 {
		t.Errorf("Stragglers() = %+v; want none", got)
	}
}

func BenchmarkPace(b *testing.B) {
	for _, ranks := range []int{8, 10_000} {
		b.Run(fmt.Sprintf("ranks=%d", ranks), func(b *testing.B) {
			p, f := goodput.NewPace(ranks), newFleet(1, ranks, 0.1)
			at := make([]time.Duration, ranks)
			for b.Loop() {
				f.now += time.Second
				for r := range at {
					at[r] = f.now + time.Duration(r%7)*time.Millisecond
				}
				p.Passed("x", at, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(ranks), "ns/arrival")
		})
	}
}
