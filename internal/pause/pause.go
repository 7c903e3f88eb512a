// Package pause waits. It has one function, [For].
package pause

import (
	"context"
	"time"
)

// For waits for d, unless ctx ends before: then the error is the cause of that.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
