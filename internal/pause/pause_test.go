package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := pause.For(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("For(1m) = %v after %v; want nil after 1m", err, time.Since(began))
		}
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		began = time.Now()
		if err := pause.For(ctx, time.Minute); err != why || time.Since(began) != time.Second {
			t.Errorf("For(1m) of a context that ends = %v after %v; want %v after 1s", err, time.Since(began), why)
		}
	})
}
