package conn

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// linesPerSecond is how many lines a log may get in a second about what peers do (SEC-103).
const linesPerSecond = 10

// LimitLog returns a logger for lines that any peer can cause, with a certificate or without: it hands on ten a
// second, and counts the others on the next line that it hands on. Debug lines, which are off unless a person
// wants all of them, have no limit. A nil logger stays nil, and one with the limit stays as it is.
func LimitLog(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	if _, limited := l.Handler().(limitedHandler); limited {
		return l
	}
	return slog.New(limitedHandler{l.Handler(), new(lineLimit)})
}

// A lineLimit counts the lines of one second.
type lineLimit struct {
	mu      sync.Mutex
	from    time.Time
	lines   int // since then
	dropped int // since the last line that was handed on
}

// take says whether a line may be handed on, and how many were not since the last.
func (l *lineLimit) take(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.from) >= time.Second {
		l.from, l.lines = now, 0
	}
	if l.lines >= linesPerSecond {
		l.dropped++
		return 0, false
	}
	l.lines++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// A limitedHandler hands on the lines that its limit allows.
type limitedHandler struct {
	slog.Handler
	limit *lineLimit
}

func (h limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level <= slog.LevelDebug {
		return h.Handler.Handle(ctx, r)
	}
	dropped, ok := h.limit.take(time.Now())
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("dropped", dropped))
	}
	return h.Handler.Handle(ctx, r)
}

func (h limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limitedHandler{h.Handler.WithAttrs(attrs), h.limit}
}

func (h limitedHandler) WithGroup(name string) slog.Handler {
	return limitedHandler{h.Handler.WithGroup(name), h.limit}
}
