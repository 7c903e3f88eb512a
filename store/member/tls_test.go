package member_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
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

// The peer port takes certificates of the members alone: not those that the same authority has issued to a task, an
// operator, another host or without a name, and no plain text. What is refused is refused in the handshake, so it
// neither sends raft messages nor reads the list of members nor joins.
func TestPeerPortTakesMembersOnly(t *testing.T) {
	clause.Cite(t, "SEC-62", "SECT-17", "SECT-20")
	dir := folder(t)
	a, err := mtls.NewAuthority(dir, "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string, hosts ...string) mtls.Files {
		uris := []string{"spiffe://test/" + name}
		if name == "none" {
			uris = nil
		}
		if err := a.Issue(dir, mtls.Subject{Name: name, Hosts: hosts, URIs: uris, Life: time.Hour}); err != nil {
			t.Fatal(err)
		}
		return mtls.Files{Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"), CA: filepath.Join(dir, "ca.pem")}
	}
	own := issue("peer", "127.0.0.1")
	addresses := reserve(t, 1)
	m, err := member.Start(t.Context(), member.Config{Name: "a", Peers: map[string]string{"a": addresses[0]}, Dir: folder(t), TLS: &member.TLS{Cert: own.Cert, Key: own.Key, CA: own.CA}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ask := func(files mtls.Files, scheme, method, path string) error {
		id, err := mtls.Load(files)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), method, scheme+"://"+addresses[0]+path, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		c := http.Client{Transport: &http.Transport{TLSClientConfig: id.Client("127.0.0.1"), DisableKeepAlives: true}}
		answer, err := c.Do(request)
		if err != nil {
			return err
		}
		return answer.Body.Close() // any answer is one of a port that is open
	}
	if err := ask(own, "https", http.MethodGet, "/members"); err != nil {
		t.Errorf("a member is refused: %v", err)
	}
	for name, files := range map[string]mtls.Files{
		"a task": issue("task"), "an operator": issue("operator"), "another host": issue("host", "192.0.2.7"), "no name": issue("none"),
	} {
		for path, method := range map[string]string{
			"/members": http.MethodGet, "/raft": http.MethodPost, "/raft/stream/message/1": http.MethodGet, "/members/promote/1": http.MethodPost,
		} {
			if err := ask(files, "https", method, path); err == nil {
				t.Errorf("%s %s is answered with the certificate of %s; want it refused in the handshake", method, path, name)
			}
		}
	}
	if err := ask(own, "http", http.MethodGet, "/members"); err == nil {
		t.Error("plain text opens the port; want it refused")
	}
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
