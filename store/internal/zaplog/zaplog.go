// Package zaplog lets the parts of etcd, which log with zap, log to a slog.Logger.
package zaplog

import (
	"context"
	"log/slog"

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
	c.log.Log(context.Background(), level(e.Level), e.Message, attrs(fields)...)
	return nil
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
