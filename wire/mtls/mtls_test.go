package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

const prefix = "spiffe://example.org/coord/"

// identities makes the certificates of the test cases: two authorities, and peers of each.
func identities(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca1, err := NewAuthority(filepath.Join(dir, "ca1"), "ca1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ca2, err := NewAuthority(filepath.Join(dir, "ca2"), "ca2", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		by *Authority
		Subject
	}{
		{ca1, Subject{Name: "client", URIs: []string{prefix + "client"}}},
		{ca1, Subject{Name: "server", URIs: []string{prefix + "server"}}},
		{ca1, Subject{Name: "multi", URIs: []string{"spiffe://other.example/x", prefix + "multi"}}},
		{ca1, Subject{Name: "evil", URIs: []string{"spiffe://evil.example/intruder"}}},
		{ca1, Subject{Name: "nouri", Hosts: []string{"localhost"}}},
		{ca2, Subject{Name: "outcast", URIs: []string{prefix + "outcast"}}},
	} {
		s.Life = time.Hour
		if err := s.by.Issue(dir, s.Subject); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func files(dir, name, ca, prefix string) Files {
	return Files{
		Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"),
		CA: filepath.Join(dir, ca, "ca.pem"), PeerPrefix: prefix,
	}
}

// meet lets the two sides shake hands and exchange a byte, and returns what each saw. Over a pipe without memory they could both wait: one that
// refuses the other says so while that is still writing. The server's end is only half closed, so that its last words arrive.
func meet(t *testing.T, server, client *tls.Config) (serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	done := make(chan error, 1)
	go func() {
		_, err := tls.Server(a, server).Write([]byte{1})
		a.(*net.TCPConn).CloseWrite()
		done <- err
	}()
	_, clientErr = tls.Client(b, client).Read(make([]byte, 1))
	b.(*net.TCPConn).CloseWrite()
	return <-done, clientErr
}

func TestWhoIsAccepted(t *testing.T) {
	clause.Cite(t, "A-TLS-4", "A-TLS-5", "A-TLS-6", "T-TLS-1", "T-TLS-2", "T-TLS-3", "T-TLS-4", "T-TLS-5", "T-TLS-6", "T-TLS-7", "T-TLS-9",
		"T-TLS-10", "T-TLS-11", "T-TLS-12", "T-TLS-13",
		"TL-1", "TL-2", "TL-3", "TL-4", "TL-5", "TL-6", "TL-7", "TL-9", "TL-10", "TL-11", "TL-12", "TL-13")
	dir := identities(t)
	for _, c := range []struct {
		name   string
		server Files
		client Files
		host   string
		by     string // who refuses: "", "server" or "client"
	}{
		{"prefix on both sides", files(dir, "server", "ca1", prefix), files(dir, "client", "ca1", prefix), "127.0.0.1", ""},
		{"server outside the client's prefix", files(dir, "server", "ca1", prefix), files(dir, "client", "ca1", "spiffe://other/"), "127.0.0.1", "client"},
		{"client outside the prefix", files(dir, "server", "ca1", prefix), files(dir, "evil", "ca1", prefix), "127.0.0.1", "server"},
		{"client of another authority", files(dir, "server", "ca1", prefix), files(dir, "outcast", "ca1", prefix), "127.0.0.1", "server"},
		{"second URI name fits", files(dir, "server", "ca1", prefix), files(dir, "multi", "ca1", prefix), "127.0.0.1", ""},
		{"no URI name", files(dir, "server", "ca1", prefix), files(dir, "nouri", "ca1", prefix), "127.0.0.1", "server"},
		{"host name is checked without a prefix", files(dir, "server", "ca1", prefix), files(dir, "client", "ca1", ""), "127.0.0.1", "client"},
		{"host name fits", files(dir, "nouri", "ca1", ""), files(dir, "client", "ca1", ""), "localhost", ""},
		{"host name does not fit", files(dir, "nouri", "ca1", ""), files(dir, "client", "ca1", ""), "127.0.0.1", "client"},
		{"any client of the authority", files(dir, "nouri", "ca1", ""), files(dir, "evil", "ca1", ""), "localhost", ""},
		{"client without URI name", files(dir, "nouri", "ca1", ""), files(dir, "nouri", "ca1", ""), "localhost", ""},
		{"wrong authority, no prefix", files(dir, "nouri", "ca1", ""), files(dir, "outcast", "ca1", ""), "localhost", "server"},
		{"sides trust different roots", files(dir, "server", "ca2", prefix), files(dir, "outcast", "ca1", prefix), "127.0.0.1", ""},
		{"client trusts the wrong root", files(dir, "server", "ca2", prefix), files(dir, "outcast", "ca2", prefix), "127.0.0.1", "client"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, err := Load(c.server)
			if err != nil {
				t.Fatal(err)
			}
			client, err := Load(c.client)
			if err != nil {
				t.Fatal(err)
			}
			serverErr, clientErr := meet(t, server.Server(), client.Client(c.host))
			refused := serverErr != nil || clientErr != nil
			if refused != (c.by != "") {
				t.Fatalf("server says %v, client says %v; want refused by %q", serverErr, clientErr, c.by)
			}
			if remote := "remote error"; c.by == "server" && strings.Contains(serverErr.Error(), remote) ||
				c.by == "client" && strings.Contains(clientErr.Error(), remote) {
				t.Errorf("server says %v, client says %v; want it refused by the %s", serverErr, clientErr, c.by)
			}
		})
	}
}

func TestSetUpSaysWhatIsWrong(t *testing.T) {
	clause.Cite(t, "A-TLS-2", "A-TLS-3", "T-TLS-8", "T-TLS-20", "TL-8")
	dir := identities(t)
	for name, c := range map[string]struct {
		files Files
		want  string
	}{
		"prefix without a slash": {files(dir, "server", "ca1", "spiffe://example.org"), "must end in a slash"},
		"no certificate":         {Files{Key: "k", CA: "c"}, "certificate file is not given"},
		"no key":                 {Files{Cert: filepath.Join(dir, "server.pem"), CA: "c"}, "private key file is not given"},
		"no such root":           {files(dir, "server", "ca3", ""), "root CA file"},
		"key of somebody else": {Files{Cert: filepath.Join(dir, "server.pem"), Key: filepath.Join(dir, "client-key.pem"),
			CA: filepath.Join(dir, "ca1", "ca.pem")}, "private key"},
		"root is no certificate": {Files{Cert: filepath.Join(dir, "server.pem"), Key: filepath.Join(dir, "server-key.pem"),
			CA: filepath.Join(dir, "server-key.pem")}, "no certificate in it"},
	} {
		if _, err := Load(c.files); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Load() = %v; want %q in it", name, err, c.want)
		}
	}
}

func TestRenewedFilesAreUsed(t *testing.T) {
	clause.Cite(t, "A-TLS-8", "T-TLS-21")
	dir := identities(t)
	server, err := Load(files(dir, "server", "ca1", prefix))
	if err != nil {
		t.Fatal(err)
	}
	outcast, err := Load(files(dir, "outcast", "ca1", prefix))
	if err != nil {
		t.Fatal(err)
	}
	if serverErr, _ := meet(t, server.Server(), outcast.Client("x")); serverErr == nil {
		t.Fatal("the server took a client of another authority")
	}
	roots, err := os.ReadFile(filepath.Join(dir, "ca2", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca1", "ca.pem"), append(roots, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Reload(); err != nil {
		t.Fatal(err)
	}
	if serverErr, _ := meet(t, server.Server(), outcast.Client("x")); serverErr != nil && !strings.Contains(serverErr.Error(), "remote error") {
		t.Fatalf("after the roots were renewed the server says %v; want the client taken", serverErr)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.pem"), []byte("half a"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Reload(); err == nil {
		t.Error("Reload() of a half-written file = nil; want an error")
	}
	if serverErr, _ := meet(t, server.Server(), outcast.Client("x")); serverErr != nil && !strings.Contains(serverErr.Error(), "remote error") {
		t.Errorf("with a half-written file the server says %v; want the last good one in use", serverErr)
	}
}

func TestAuthorityKeepsKeys(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewAuthority(dir, "job", time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := NewAuthority(dir, "job", time.Hour); !errors.Is(err, os.ErrExist) {
		t.Errorf("NewAuthority() over an existing one = %v; want %v", err, os.ErrExist)
	}
	a, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Subject{
		{Name: "../up", Life: time.Hour},
		{Name: "x", Life: time.Hour, URIs: []string{"no uri"}},
		{Name: "x"},
	} {
		if err := a.Issue(dir, s); err == nil {
			t.Errorf("Issue(%+v) = nil; want an error", s)
		}
	}
}

// A browser needs no certificate of its own, and sees the one of the server, with the hosts that it is for.
func TestBrowsersNeedNoCertificate(t *testing.T) {
	clause.Cite(t, "D-WEB-15")
	dir := identities(t)
	id, err := Load(files(dir, "nouri", "ca1", ""))
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := id.Hosts()
	if err != nil || len(hosts) != 1 || hosts[0] != "localhost" {
		t.Errorf("Hosts() = %q, %v; want localhost", hosts, err)
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca1", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for name, fails := range map[string]bool{"localhost": false, "elsewhere.example.org": true} {
		if _, err := meet(t, id.Browsers(), &tls.Config{RootCAs: roots, ServerName: name}); (err != nil) != fails {
			t.Errorf("a browser that wants %s sees %v; want an error: %v", name, err, fails)
		}
	}
}
