package member_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/serry-dev/serry/store/member"
	"github.com/serry-dev/serry/wire/mtls"
)

// folder is a folder with a path short enough for a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "serry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// certificate makes an authority and a certificate for this host.
func certificate(t *testing.T) *member.TLS {
	t.Helper()
	dir := folder(t)
	a, err := mtls.NewAuthority(dir, "test", time.Hour)
	if err == nil {
		err = a.Issue(dir, mtls.Subject{Name: "peer", Hosts: []string{"127.0.0.1"}, Life: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	return &member.TLS{Cert: filepath.Join(dir, "peer.pem"), Key: filepath.Join(dir, "peer-key.pem"), CA: filepath.Join(dir, "ca.pem")}
}

// Members talk over TLS, and not with one whose certificate is another's.
func TestTLS(t *testing.T) {
	ours, theirs := certificate(t), certificate(t)
	for _, c := range []struct {
		name   string
		second *member.TLS
		ok     bool
	}{{"one authority", ours, true}, {"two authorities", theirs, false}, {"none", nil, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limit := time.Second // for what must not work
			if c.ok {
				limit = 30 * time.Second
			}
			addresses := reserve(t, 2)
			peers := map[string]string{"a": addresses[0], "b": addresses[1]}
			result := make(chan error)
			for name, files := range map[string]*member.TLS{"a": ours, "b": c.second} {
				cfg := member.Config{Name: name, Peers: peers, Dir: folder(t), TLS: files}
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					m, err := member.Start(ctx, cfg)
					if err == nil {
						t.Cleanup(func() { m.Close() })
					}
					result <- err
				}()
			}
			for range 2 {
				if err := <-result; (err == nil) != c.ok {
					t.Errorf("Start() = %v; want success: %v", err, c.ok)
				}
			}
		})
	}
}
