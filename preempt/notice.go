package preempt

import (
	"context"
	"fmt"
	"strings"
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

// The dates that have no number.
const (
	forever = "infinite-future"
	always  = "infinite-past"
)

// formatTime writes a date the way jax does: RFC 3339 with a fraction and a numeric zone.
func formatTime(t time.Time) string {
	return t.Format("2006-01-02T15:04:05.999999999-07:00")
}

// parseTime reads a date in any zone, with any fraction.
func parseTime(text string) (time.Time, error) {
	switch text = strings.TrimSpace(text); text {
	case forever:
		return time.Unix(1<<40, 0), nil
	case always:
		return time.Unix(0, 0), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of a preemption notice: %w", err)
	}
	return t, nil
}
