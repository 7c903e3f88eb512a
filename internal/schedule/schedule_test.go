package schedule

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// mostRanks is up to how many ranks every schedule is checked.
const mostRanks = 33

// jobs are the jobs of an operation with so many ranks that differ for an algorithm.
func jobs(op Op, a Algorithm, p int) []Job {
	list := []Job{{Op: op, Ranks: p}}
	switch {
	case a == TwoLevel:
		list = nil
		for h := 1; h <= p; h++ {
			if p%h == 0 {
				list = append(list, Job{Op: op, Ranks: p, Hosts: h})
			}
		}
	case a == Chain || a == DoubleTree:
		list = append(list, Job{Op: op, Ranks: p, Pieces: 3, Root: p / 2}, Job{Op: op, Ranks: p, Pieces: 7, Root: p - 1})
	case slices.Contains([]Op{Broadcast, Reduce, Gather, Scatter}, op):
		list = append(list, Job{Op: op, Ranks: p, Root: p / 2}, Job{Op: op, Ranks: p, Root: p - 1})
	}
	return list
}

// Every rank ends with every contribution exactly once, over links that hold one message, in place too.
func TestSchedulesAreRight(t *testing.T) {
	lab.Clause(t, "CLT-DES-1", "CLT-DES-2", "CL-ALG-5")
	for _, op := range Operations() {
		for _, a := range Algorithms(op) {
			t.Run(string(op)+"/"+string(a), func(t *testing.T) {
				for p := 1; p <= mostRanks; p++ {
					for _, j := range jobs(op, a, p) {
						checkJob(t, a, j)
					}
				}
			})
		}
	}
}

func checkJob(t *testing.T, a Algorithm, j Job) {
	t.Helper()
	places := []bool{false}
	if slices.Contains([]Op{AllReduce, ReduceScatter, AllGather, Broadcast, Reduce}, j.Op) {
		places = append(places, true)
	}
	for _, inPlace := range places {
		w, err := newWorld(a, j, inPlace)
		if err == nil {
			err = w.play()
		}
		if err != nil {
			t.Fatalf("%+v by %s, in place %v: %v", j, a, inPlace, err)
		}
	}
}

// Rounds and bytes are those of the theory.
func TestSchedulesCostWhatTheModelSays(t *testing.T) {
	lab.Clause(t, "CLT-DES-1")
	type cost struct {
		rounds int
		sent   float64 // in vectors
	}
	share := func(p int) float64 { return float64(p-1) / float64(p) }
	log := logRounds
	for _, row := range []struct {
		op   Op
		a    Algorithm
		cost func(p int) cost
		only func(p int) bool
	}{
		{AllReduce, Ring, func(p int) cost { return cost{2 * (p - 1), 2 * share(p)} }, nil},
		{AllReduce, Direct, func(p int) cost { return cost{2, 2 * share(p)} }, nil},
		{AllReduce, OneShot, func(p int) cost { return cost{1, float64(p - 1)} }, nil},
		{AllReduce, Halving, func(p int) cost { return cost{2 * log(p), 2 * share(p)} }, nil},
		{AllReduce, Doubling, func(p int) cost { return cost{log(p), float64(log(p))} }, func(p int) bool { return bits.OnesCount(uint(p)) == 1 }},
		{ReduceScatter, Ring, func(p int) cost { return cost{p - 1, share(p)} }, nil},
		{ReduceScatter, Pairwise, func(p int) cost { return cost{p - 1, share(p)} }, nil},
		{ReduceScatter, Direct, func(p int) cost { return cost{1, share(p)} }, nil},
		{ReduceScatter, Halving, func(p int) cost { return cost{log(p), share(p)} }, nil},
		{AllGather, Ring, func(p int) cost { return cost{p - 1, share(p)} }, nil},
		{AllGather, Direct, func(p int) cost { return cost{1, share(p)} }, nil},
		{AllGather, Bruck, func(p int) cost { return cost{log(p), share(p)} }, nil},
		{AllToAll, Direct, func(p int) cost { return cost{1, share(p)} }, nil},
		{AllToAll, Pairwise, func(p int) cost { return cost{p - 1, share(p)} }, nil},
		{AllToAll, Bruck, func(p int) cost { return cost{log(p), float64(log(p)) / 2} }, func(p int) bool { return bits.OnesCount(uint(p)) == 1 }},
		{Broadcast, Tree, func(p int) cost { return cost{log(p), float64(log(p))} }, nil},
		{Barrier, Dissemination, func(p int) cost { return cost{log(p), 0} }, nil},
	} {
		for p := 2; p <= mostRanks; p++ {
			if row.only != nil && !row.only(p) {
				continue
			}
			bytes := int64(p) << 10
			got, err := TCP.Cost(row.a, Job{Op: row.op, Ranks: p}, bytes)
			if err != nil {
				t.Fatal(err)
			}
			want := row.cost(p)
			if got.Rounds != want.rounds || math.Abs(float64(got.Sent)-want.sent*float64(bytes)) > 1 {
				t.Errorf("%s of %d ranks by %s: %d rounds, %d bytes; want %d, %.0f", row.op, p, row.a, got.Rounds, got.Sent, want.rounds, want.sent*float64(bytes))
			}
		}
	}
}

// A ring takes the time of its formula, and no algorithm is faster than the bound.
func TestModelTime(t *testing.T) {
	const p, bytes = 8, 8 << 20
	m := Model{Latency: time.Millisecond, Byte: 1, Sum: 2}
	got, err := m.Cost(Ring, Job{Op: AllReduce, Ranks: p}, bytes)
	if err != nil {
		t.Fatal(err)
	}
	want := 2*(p-1)*time.Millisecond + 2*(p-1)*bytes/p + 2*(p-1)*bytes/p
	if got.Time != want {
		t.Errorf("Cost(ring, 8 ranks) = %v; want %v", got.Time, want)
	}
	for _, op := range Operations() {
		for _, a := range Algorithms(op) {
			for i, size := range []int64{8, 1 << 20, 8, 1 << 20} {
				j := Job{Op: op, Ranks: p << (i / 2), Hosts: p / 2, Pieces: 4}
				bill, err := m.Cost(a, j, size)
				least, term := m.Bound(j, size)
				if a == OneShot || a == Direct {
					least, term = m.Latency, "latency" // they use all ports at once
				}
				if err != nil || bill.Time < least {
					t.Errorf("Cost(%s, %s, %d) = %v, %v; want at least %v, for its %s", op, a, size, bill.Time, err, least, term)
				}
			}
		}
	}
}

// Where the number of ranks is no power of two, the chosen algorithm takes at most half as long again as with the
// next power.
func TestOddNumbersOfRanks(t *testing.T) {
	lab.Clause(t, "CL-ALG-1", "CL-ALG-3")
	for _, op := range Operations() {
		for p := 3; p <= mostRanks; p++ {
			for _, size := range []int64{8, 2 << 10, 64 << 10, 1 << 20, 64 << 20} {
				cost := func(p int) time.Duration {
					a, j := Choose(Job{Op: op, Ranks: p}, size)
					bill, err := TCP.Cost(a, j, size)
					if err != nil {
						t.Fatal(err)
					}
					return bill.Time
				}
				if odd, even := cost(p), cost(1<<logRounds(p)); odd > even*3/2+time.Microsecond {
					t.Errorf("%s of %d bytes takes %v with %d ranks and %v with %d", op, size, odd, p, even, 1<<logRounds(p))
				}
			}
		}
	}
}

func TestUnevenBlocks(t *testing.T) {
	lab.Clause(t, "CL-ALG-4")
	for _, bytes := range []int64{0, 1, 3, 7, 8, 1<<40 + 5} {
		var all int64
		for b := range 7 {
			n := Size(bytes, 7, b, b+1)
			if n < bytes/7 || n > bytes/7+1 {
				t.Errorf("Size(%d, 7, %d) = %d; want %d or one more", bytes, b, n, bytes/7)
			}
			all += n
		}
		if all != bytes || Size(bytes, 7, 0, 7) != bytes {
			t.Errorf("7 blocks of %d bytes have %d, together %d", bytes, all, Size(bytes, 7, 0, 7))
		}
	}
}

func TestBadJobs(t *testing.T) {
	good := Job{Op: AllReduce, Ranks: 4}
	for name, row := range map[string]struct {
		a    Algorithm
		j    Job
		rank int
	}{
		"no ranks":        {Ring, Job{Op: AllReduce}, 0},
		"many ranks":      {Ring, Job{Op: AllReduce, Ranks: MaxRanks + 1}, 0},
		"root":            {Tree, Job{Op: Reduce, Ranks: 4, Root: 4}, 0},
		"uneven hosts":    {TwoLevel, Job{Op: AllReduce, Ranks: 4, Hosts: 3}, 0},
		"no hosts":        {TwoLevel, good, 0},
		"pieces":          {DoubleTree, Job{Op: AllReduce, Ranks: 4, Pieces: -1}, 0},
		"other operation": {Dissemination, good, 0},
		"no operation":    {Ring, Job{Op: "nothing", Ranks: 4}, 0},
		"rank":            {Ring, good, 4},
	} {
		if _, err := New(row.a, row.j, row.rank); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: New(%s, %+v, %d) = %v; want ErrInvalid", name, row.a, row.j, row.rank, err)
		}
	}
}

func TestRoundsInWords(t *testing.T) {
	lab.Clause(t, "CL-ALG-2")
	s, err := New(Direct, Job{Op: ReduceScatter, Ranks: 3}, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := "send in[0] to rank 0; send in[2] to rank 2; receive tmp0[1] from rank 0; receive tmp2[1] from rank 2; out[1] = tmp0[1] + in[1] + tmp2[1]"
	if got := s.Rounds[0].String(); got != want {
		t.Errorf("String() = %q; want %q", got, want)
	}
	b, err := New(Dissemination, Job{Op: Barrier, Ranks: 2}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.Rounds[0].String(), "send to rank 1; receive from rank 1"; got != want {
		t.Errorf("String() = %q; want %q", got, want)
	}
}
