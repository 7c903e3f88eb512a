package web

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// Where the job does not answer, questions that came at once end at once, and not one after the other.
func TestKeepHasNoQueue(t *testing.T) {
	lab.Clause(t, "D-WEB-12")
	synctest.Test(t, func(t *testing.T) {
		const patience = 8 * time.Second
		k := newKeep[int](time.Second, patience)
		began := time.Now()
		errs := make(chan error)
		for _, name := range []string{"a", "b", "c", "d"} {
			go func() {
				_, err := k.get(t.Context(), name, func(ctx context.Context) (int, error) {
					<-ctx.Done()
					return 0, context.Cause(ctx)
				})
				errs <- err
			}()
		}
		for range 4 {
			if err := <-errs; !errors.Is(err, errNoAnswer) || time.Since(began) > patience {
				t.Errorf("get() = %v after %v; want %v within %v", err, time.Since(began), errNoAnswer, patience)
			}
		}
		if v, err := k.get(t.Context(), "a", func(context.Context) (int, error) { return 1, nil }); v != 1 || err != nil {
			t.Errorf("get() afterwards = %d, %v; want 1", v, err)
		}
	})
}
