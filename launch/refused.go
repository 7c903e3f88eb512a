package launch

import (
	"cmp"
	"context"
	"log/slog"
)

// A refusedHandler is the log of the meeting. A launcher that the meeting refuses says so on its own host; the person who
// looks at the first launcher reads it here, whatever the level of the log is (DLV-21). The server limits how often it
// tells the same.
type refusedHandler struct {
	feed *feed
	to   slog.Handler
}

// meetingLog is a log that goes on to another, or to none if that is nil.
func meetingLog(f *feed, l *slog.Logger) *slog.Logger {
	return slog.New(refusedHandler{f, cmp.Or(l, slog.New(slog.DiscardHandler)).Handler()})
}

// refusal is what a server logs of a registration that it refuses.
const refusal = "registration refused"

func (h refusedHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || h.to.Enabled(ctx, l)
}

func (h refusedHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == refusal {
		from := "another host"
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "peer" {
				from = a.Value.String()
			}
			return true
		})
		h.feed.note(Note{Warning: true, Text: "a launcher at " + from + " was refused: it is of another job, or its node is none of this one"})
	}
	if !h.to.Enabled(ctx, r.Level) {
		return nil
	}
	return h.to.Handle(ctx, r)
}

func (h refusedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return refusedHandler{h.feed, h.to.WithAttrs(attrs)}
}

func (h refusedHandler) WithGroup(name string) slog.Handler {
	return refusedHandler{h.feed, h.to.WithGroup(name)}
}
