package preempt

import (
	"context"
	"time"
)

// A Notice says that a task will be taken away.
type Notice struct {
	Deadline time.Time // when; zero: now
	Source   string    // who says so: "signal terminated", "file /run/stop"
}

// A Notifier waits for notices. Wait returns the first one, also to those who ask later; it ends
// with ctx, or with an error where no notice can come any more.
type Notifier interface {
	Wait(ctx context.Context) (Notice, error)
}
