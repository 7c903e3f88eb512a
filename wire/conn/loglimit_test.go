package conn_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/conn"
)

// A log gets ten lines a second about what peers do, and the count of the others.
func TestLimitLog(t *testing.T) {
	clause.Cite(t, "SEC-103")
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := conn.LimitLog(slog.New(slog.NewTextHandler(&out, nil))).With("server", "a")
		for range 1000 {
			log.Info("connection ended")
		}
		time.Sleep(time.Second)
		log.Info("connection ended")
		log.Info("connection ended")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 12 || !strings.Contains(lines[10], "server=a dropped=990") || strings.Contains(lines[11], "dropped") {
			t.Errorf("%d lines, the eleventh is %q; want 12, and 990 counted", len(lines), lines[min(10, len(lines)-1)])
		}
		if conn.LimitLog(nil) != nil {
			t.Error("LimitLog(nil) is a logger; want nil")
		}
	})
}
