// Package zaplog lets the parts of etcd, which log with zap, log to a slog.Logger.
package zaplog

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New is a zap logger whose warnings and errors go to log, with the name of their source. What etcd
// would tell below that is dropped. A nil log drops everything.
func New(log *slog.Logger, source string) *zap.Logger {
	if log == nil {
		return zap.NewNop()
	}
	return zap.New(core{log: log.With("source", source)})
}

// A core hands entries of zap to a slog.Logger.
type core struct{ log *slog.Logger }

func (c core) Enabled(l zapcore.Level) bool {
	return l >= zapcore.WarnLevel && c.log.Enabled(context.Background(), level(l))
}

// LevelFatal is the level of what ends the process.
const LevelFatal = slog.LevelError + 4

func level(l zapcore.Level) slog.Level {
	switch {
	case l > zapcore.ErrorLevel:
		return LevelFatal
	case l == zapcore.ErrorLevel:
		return slog.LevelError
	}
	return slog.LevelWarn
}

func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{log: c.log.With(attrs(fields)...)}
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	at := level(e.Level)
	if at == slog.LevelError && slices.ContainsFunc(fields, closed) || slices.Contains(usual, e.Message) {
		at = slog.LevelDebug
	}
	c.log.Log(context.Background(), at, e.Message, attrs(fields)...)
	return nil
}

// usual is what every etcd says at its start, though nothing is wrong: its tokens are not signed, which matters to nobody,
// because the members inside servers of serry have no users; and what its log knows of its version and its first term is not
// in its database yet.
var usual = []string{
	"simple token is not cryptographically signed",
	"failed to update storage version",
	"Failed to detect schema version",
}

// stopping is the error of an etcd that was told to end before it was ready. It has no type.
const stopping = "server is stopping"

// closed says whether a field is the error of a listener that this process has closed, or of an etcd that this process
// has ended. etcd ends that way, and calls it an error of its start.
func closed(f zapcore.Field) bool {
	err, ok := f.Interface.(error)
	return ok && (errors.Is(err, net.ErrClosed) || errors.Is(err, http.ErrServerClosed) || err.Error() == stopping)
}

func (c core) Sync() error { return nil }

// attrs turns fields into what slog takes.
func attrs(fields []zapcore.Field) []any {
	out := make([]any, 0, len(fields))
	for _, f := range fields {
		m := zapcore.NewMapObjectEncoder()
		f.AddTo(m)
		for k, v := range m.Fields { // mostly one; an error may have its stack beside it
			if k == f.Key {
				out = append(out, slog.Any(k, v))
			}
		}
	}
	return out
}
