package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/rendezvous"
)

// The first meeting computes a result. The second call returns at once, without one.
func TestOnce(t *testing.T) {
	clause.Cite(t, "CL-RDV-12", "CLT-RDV-7")
	var table table
	var once rendezvous.Once
	calls := 0
	for round := range 3 {
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() {
				r, joined, err := table.JoinOnce(t.Context(), &once, "key", rendezvous.Place[int]{Size: 2, Value: i}, func(values []int) (*int, error) {
					calls++ // by one goroutine alone
					return sum(values)
				})
				if first := round == 0; err != nil || joined != first || (r != nil) != first || first && *r != 1 {
					t.Errorf("round %d: JoinOnce() = %v, %v, %v", round, r, joined, err)
				}
			})
		}
		all.Wait()
		if !once.Complete() {
			t.Errorf("round %d: the flag is not complete", round)
		}
	}
	if calls != 1 {
		t.Errorf("the result was computed %d times; want once", calls)
	}
}

// Several meetings race under one flag. All participants of a meeting join, or none does; then the flag is complete.
func TestOnceInARace(t *testing.T) {
	clause.Cite(t, "CL-RDV-12", "CLT-RDV-8", "CLT-RDV-9")
	for _, together := range []bool{false, true} {
		for round := range 20 {
			raceOnce(t, fmt.Sprintf("round %d, together %v", round, together), together)
		}
	}
}

// raceOnce has 16 meetings of 8 goroutines under one flag. Together means that no goroutine calls before all are there.
func raceOnce(t *testing.T, name string, together bool) {
	const meetings, size = 16, 8
	var table rendezvous.Table[int, int, *int]
	var once rendezvous.Once
	var joiners [meetings]atomic.Int32
	var there, all sync.WaitGroup
	there.Add(meetings * size)
	join := func(key int) (*int, bool, error) {
		return table.JoinOnce(context.Background(), &once, key, rendezvous.Place[int]{Size: size, Value: key}, sum)
	}
	for key := range meetings {
		for range size {
			all.Go(func() {
				there.Done()
				if together {
					there.Wait()
				}
				r, joined, err := join(key)
				if err != nil || joined != (r != nil) || joined && *r != key*size {
					t.Errorf("%s: JoinOnce(%d) = %v, %v, %v", name, key, r, joined, err)
				}
				if joined {
					joiners[key].Add(1)
				}
			})
		}
	}
	all.Wait()
	some := false
	for key := range joiners {
		n := joiners[key].Load()
		some = some || n > 0
		if n != 0 && n != size {
			t.Errorf("%s: %d participants of meeting %d joined; want all or none", name, n, key)
		}
	}
	if !some || !once.Complete() {
		t.Errorf("%s: some meeting took place: %v, complete: %v", name, some, once.Complete())
	}
	if r, joined, err := join(0); r != nil || joined || err != nil {
		t.Errorf("%s: a later JoinOnce() = %v, %v, %v; want nothing", name, r, joined, err)
	}
}

// A meeting that fails does not complete the flag. One that is late for it is told, also when another meeting has completed
// the flag meanwhile.
func TestOnceAfterAFailure(t *testing.T) {
	clause.Cite(t, "CL-RDV-12", "CL-RDV-10")
	synctest.Test(t, func(t *testing.T) {
		var table table
		var once rendezvous.Once
		join := func(ctx context.Context, key string, size int) (bool, error) {
			_, joined, err := table.JoinOnce(ctx, &once, key, rendezvous.Place[int]{Name: key, Size: size}, sum)
			return joined, err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if joined, err := join(ctx, "missed", 2); !joined || !errors.Is(err, serry.ErrTimeout) {
			t.Errorf("JoinOnce() alone = %v, %v; want ErrTimeout", joined, err)
		}
		if once.Complete() {
			t.Error("a meeting that failed completes the flag")
		}
		if joined, err := join(t.Context(), "other", 1); !joined || err != nil || !once.Complete() {
			t.Errorf("JoinOnce() of another meeting = %v, %v; complete: %v", joined, err, once.Complete())
		}
		if joined, err := join(t.Context(), "missed", 2); !joined || !errors.Is(err, serry.ErrTimeout) {
			t.Errorf("JoinOnce() of one that is late = %v, %v; want the error of the other", joined, err)
		}
		if joined, err := join(t.Context(), "missed", 2); joined || err != nil {
			t.Errorf("JoinOnce() = %v, %v; want nothing", joined, err)
		}
	})
}
