package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/rendezvous"
)

type table = rendezvous.Table[string, int, *int]

// sum adds the values.
func sum(values []int) (*int, error) {
	total := 0
	for _, v := range values {
		total += v
	}
	return &total, nil
}

// meet has n goroutines meet, each with its number, and returns what each got.
func meet(t *table, key string, n int, lead func([]int) (*int, error)) (results []*int, errs []error) {
	results, errs = make([]*int, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			results[i], errs[i] = t.Join(context.Background(), key, rendezvous.Place[int]{Name: fmt.Sprint("goroutine ", i), Size: n, Value: i}, lead)
		})
	}
	all.Wait()
	return results, errs
}

func TestAll(t *testing.T) {
	clause.Cite(t, "CL-RDV-2", "CL-RDV-3", "CL-RDV-6", "CL-RDV-13", "CLT-RDV-1", "CLT-RDV-2", "CLT-RDV-3", "CLT-RDV-4")
	var table table
	for round := range 10 { // one after the other under one key
		for n := 1; n <= 4; n++ {
			results, errs := meet(&table, "key", n, sum)
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("round %d: Join() = %v", round, err)
			}
			for i, r := range results {
				if r != results[0] || *r != n*(n-1)/2 {
					t.Errorf("round %d: participant %d of %d has %v; want the same sum as all", round, i, n, *r)
				}
			}
		}
	}
}

// The same goroutines meet again and again under one key without a pause: a meeting does not mix with the one before.
func TestBackToBack(t *testing.T) {
	clause.Cite(t, "CL-RDV-6", "CLT-RDV-5")
	var table table
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			for round := range 200 {
				r, err := table.Join(t.Context(), "key", rendezvous.Place[int]{Size: 3, Value: round}, sum)
				if err != nil || *r != 3*round {
					t.Errorf("goroutine %d, round %d: Join() = %v, %v", i, round, r, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestErrorOfTheLeader(t *testing.T) {
	clause.Cite(t, "CL-RDV-4", "CLT-RDV-6")
	var table table
	broken := errors.New("broken")
	_, errs := meet(&table, "key", 3, func([]int) (*int, error) { return nil, broken })
	for i, err := range errs {
		if err != broken {
			t.Errorf("participant %d: Join() = %v; want %v", i, err, broken)
		}
	}
	if _, errs := meet(&table, "key", 2, sum); errors.Join(errs...) != nil {
		t.Errorf("the next meeting = %v", errs)
	}
}

// One of three never comes: the others name those that did; the third, which is late, gets the same error; the next
// meeting of all succeeds.
func TestMissingParticipant(t *testing.T) {
	clause.Cite(t, "CL-RDV-7", "CL-RDV-10", "CLT-RDV-11")
	synctest.Test(t, func(t *testing.T) {
		var table table
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		errs := make([]error, 3)
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() { _, errs[i] = table.Join(ctx, "key", rendezvous.Place[int]{Name: fmt.Sprint(i), Size: 3}, sum) })
		}
		all.Wait()
		_, errs[2] = table.Join(t.Context(), "key", rendezvous.Place[int]{Name: "2", Size: 3}, sum)
		for i, err := range errs {
			if !errors.Is(err, serry.ErrTimeout) || err != errs[0] {
				t.Errorf("participant %d: Join() = %v; want that 2 of 3 came", i, err)
			}
		}
		if _, errs := meet(&table, "key", 3, sum); errors.Join(errs...) != nil {
			t.Errorf("the next meeting = %v", errs)
		}
	})
}

func TestGivingUpEndsTheMeeting(t *testing.T) {
	clause.Cite(t, "CL-RDV-11", "CLT-RDV-12")
	synctest.Test(t, func(t *testing.T) {
		var table table
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(enough) })
		errs := make([]error, 2)
		var all sync.WaitGroup
		for i, ctx := range []context.Context{ctx, t.Context()} {
			all.Go(func() {
				_, errs[i] = table.Join(ctx, "key", rendezvous.Place[int]{Name: fmt.Sprint("goroutine ", i), Size: 3}, sum)
			})
		}
		all.Wait()
		for i, err := range errs {
			if !errors.Is(err, serry.ErrCancelled) || !errors.Is(err, enough) || err.Error() != errs[0].Error() {
				t.Errorf("participant %d: Join() = %v; want the cause of the one that gave up", i, err)
			}
		}
	})
}

// A participant too many gets an error, and the meeting is not disturbed: it takes the place of none.
func TestTooMany(t *testing.T) {
	clause.Cite(t, "CL-RDV-5", "CLT-RDV-13")
	synctest.Test(t, func(t *testing.T) {
		var table table
		var all sync.WaitGroup
		var came atomic.Int32
		join := func(size int) error {
			_, err := table.Join(t.Context(), "key", rendezvous.Place[int]{Name: "one", Size: size}, func([]int) (*int, error) {
				came.Add(1)
				return nil, nil
			})
			return err
		}
		all.Go(func() {
			if err := join(2); err != nil {
				t.Errorf("Join() = %v", err)
			}
		})
		synctest.Wait()
		if err := join(3); !errors.Is(err, rendezvous.ErrCrowded) {
			t.Errorf("Join() of one that expects others = %v; want ErrCrowded", err)
		}
		if err := join(2); err != nil || came.Load() != 1 {
			t.Errorf("Join() of the second = %v", err)
		}
		all.Wait()
	})
}

// A meeting costs one wake-up for each that waits.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{2, 4, 8, 16, 32} {
		b.Run(fmt.Sprint("participants=", n), func(b *testing.B) {
			var table table
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					for range b.N {
						table.Join(context.Background(), "key", rendezvous.Place[int]{Size: n}, sum)
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/participant")
		})
	}
}

// Different keys are different meetings.
func TestKeysDoNotMix(t *testing.T) {
	clause.Cite(t, "CL-RDV-1")
	var table table
	var all sync.WaitGroup
	got := make([]int, 4)
	for i := range got {
		all.Go(func() {
			r, err := table.Join(t.Context(), fmt.Sprint(i%2), rendezvous.Place[int]{Size: 2, Value: i}, sum)
			if err != nil {
				t.Errorf("Join() = %v", err)
				return
			}
			got[i] = *r
		})
	}
	all.Wait()
	if !slices.Equal(got, []int{2, 4, 2, 4}) {
		t.Errorf("the sums are %v; want 2 and 4 by turns", got)
	}
}
