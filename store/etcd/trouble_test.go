package etcd_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

// Whoever waits for an etcd that is not there is told so, and why; and when it is there.
func TestTrouble(t *testing.T) {
	dir := folder(t)
	r, w := io.Pipe()
	defer r.Close()
	st := open(t, etcd.Config{Endpoints: []string{"unix:" + dir + "/client.sock"}, Log: slog.New(slog.NewTextHandler(w, nil))})
	asked := make(chan error, 1)
	go func() {
		_, err := st.Leader(t.Context())
		asked <- err
	}()
	lines := make(chan string, 100)
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	next := func(parts ...string) {
		t.Helper()
		line := <-lines
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Errorf("the log says %s; want %q in it", line, part)
			}
		}
	}
	next("level=WARN", `msg="etcd does not answer"`, "client.sock: connect: no such file or directory")
	one(t, member.Config{Dir: dir})
	next("level=INFO", `msg="etcd answers again" outage=`)
	if err := <-asked; !errors.Is(err, store.ErrNoLeader) {
		t.Errorf("Leader() of an etcd that came late = %v; want %v", err, store.ErrNoLeader)
	}
	if _, err := st.Leader(context.Background()); !errors.Is(err, store.ErrNoLeader) {
		t.Errorf("Leader() = %v; want %v", err, store.ErrNoLeader)
	}
}
