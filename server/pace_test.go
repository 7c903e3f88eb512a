package server_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
)

// Callers that each wait for their answer come to share their writes, instead of taking turns; and one
// that calls alone waits for nobody.
func TestCallersShareWrites(t *testing.T) {
	lab.Clause(t, "C-LOG-2")
	const write = 10 * time.Millisecond
	const rounds = 20
	for _, callers := range []int{1, 8} {
		t.Run(fmt.Sprint("callers=", callers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var appends atomic.Int32
				disk := shareddisk.New(shareddisk.Config{Fault: func(op shareddisk.Op) error {
					if op.Action == shareddisk.OpAppend && !op.Done {
						appends.Add(1)
						time.Sleep(write)
					}
					return nil
				}})
				l, _ := serveOn(t, disk, cluster(callers))
				tasks := fleet(t, l, callers, 100)
				appends.Store(0)
				began := time.Now()
				var wg sync.WaitGroup
				for i, task := range tasks {
					wg.Go(func() {
						for round := range rounds {
							if err := task.insert(t.Context(), fmt.Sprintf("%d/%d", i, round)); err != nil {
								t.Errorf("InsertKeyValue() = %v", err)
							}
						}
					})
				}
				wg.Wait()
				took := time.Since(began)
				if n := appends.Load(); n < rounds || n > rounds*3/2 {
					t.Errorf("%d writes for %d callers in %d rounds; want about one a round, not two", n, callers, rounds)
				}
				if callers == 1 && took != rounds*write {
					t.Errorf("one caller took %v for %d writes of %v; want no more than those", took, rounds, write)
				}
			})
		})
	}
}
