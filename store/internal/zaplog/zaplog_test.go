package zaplog_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
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
	z.Error("setting up serving from embedded etcd failed.", zap.Error(&net.OpError{Op: "accept", Err: net.ErrClosed})) // its end
	z.Error("setting up serving from embedded etcd failed.", zap.Error(errors.New("server is stopping")))               // before it was ready
	z.Warn("simple token is not cryptographically signed")
	z.Error("failed to update storage version", zap.Error(errors.New("missing term information")))
	want := "level=WARN msg=slow source=etcd member=a ms=7\nlevel=ERROR msg=broken source=etcd member=a error=why\n" +
		"level=DEBUG msg=\"setting up serving from embedded etcd failed.\" source=etcd member=a error=\"accept: use of closed network connection\"\n" +
		"level=DEBUG msg=\"setting up serving from embedded etcd failed.\" source=etcd member=a error=\"server is stopping\"\n" +
		"level=DEBUG msg=\"simple token is not cryptographically signed\" source=etcd member=a\n" +
		"level=DEBUG msg=\"failed to update storage version\" source=etcd member=a error=\"missing term information\"\n"
	if out.String() != want {
		t.Errorf("logged\n%swant\n%s", out.String(), want)
	}
	zaplog.New(nil, "etcd").Error("to nobody")
}
