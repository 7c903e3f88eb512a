package zaplog_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"go.uber.org/zap"

	"github.com/serry-dev/serry/store/internal/zaplog"
)

func TestNew(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	z := zaplog.New(log, "etcd").With(zap.String("member", "a"))
	z.Info("not told")
	z.Warn("slow", zap.Int("ms", 7))
	z.Error("broken", zap.Error(errors.New("why")))
	want := "level=WARN msg=slow source=etcd member=a ms=7\nlevel=ERROR msg=broken source=etcd member=a error=why\n"
	if out.String() != want {
		t.Errorf("logged\n%swant\n%s", out.String(), want)
	}
	zaplog.New(nil, "etcd").Error("to nobody")
}
