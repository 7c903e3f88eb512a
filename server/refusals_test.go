package server_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/mtls"
)

// A record is what a server logged.
type record struct {
	mu sync.Mutex
	bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Buffer.Write(b)
}

// count says how many lines have all of the words.
func (r *record) count(words ...string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for line := range strings.Lines(r.String()) {
		found := true
		for _, w := range words {
			found = found && strings.Contains(line, w)
		}
		if found {
			n++
		}
	}
	return n
}

func TestRefusedHandshakesAreLogged(t *testing.T) {
	lab.Clause(t, "A-TLS-7", "T-TLS-22")
	synctest.Test(t, func(t *testing.T) {
		ofServer, ofClient := identities(t)
		log := new(record)
		cfg := cluster(1)
		cfg.TLS, cfg.Log = ofServer.Server(), slog.New(slog.NewTextHandler(log, nil))
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)

		wantCode(t, "RegisterTask without TLS", registerBy(t, l, insecure.NewCredentials()), codes.Unavailable)
		bare := ofClient.Client("lab")
		bare.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
		for range 5 {
			wantCode(t, "RegisterTask without a certificate", registerBy(t, l, credentials.NewTLS(bare)), codes.Unavailable)
		}
		synctest.Wait()
		if log.count("peer=", "not look like a TLS handshake") == 0 {
			t.Errorf("the log does not say why a plain client was refused:\n%s", log)
		}
		if log.count("peer=", "provide a certificate") == 0 {
			t.Errorf("the log does not say why a client without a certificate was refused:\n%s", log)
		}
		if n := log.count("connection refused", "provide a certificate"); n != 1 {
			t.Errorf("the same refusal is logged %d times; want once", n)
		}
	})
}

func TestCertificateNamesTask(t *testing.T) {
	lab.Clause(t, "A-TLS-10", "T-TLS-23")
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		ca, err := mtls.NewAuthority(dir, "lab", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		load := func(name string, uris ...string) *mtls.Identity {
			if err := ca.Issue(dir, mtls.Subject{Name: name, Hosts: []string{"lab"}, URIs: uris, Life: time.Hour}); err != nil {
				t.Fatal(err)
			}
			id, err := mtls.Load(mtls.Files{
				Cert: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+"-key.pem"), CA: filepath.Join(dir, "ca.pem"),
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		cfg := cluster(1)
		cfg.TLS, cfg.TaskURI = load("server").Server(), "spiffe://lab/{job}/{task}"
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)

		other, none := load("other", "spiffe://lab/worker/1"), load("none")
		own := load("own", "spiffe://lab/worker/7", "spiffe://lab/worker/0")
		wantCode(t, "RegisterTask with the certificate of another task", registerBy(t, l, credentials.NewTLS(other.Client("lab"))), codes.PermissionDenied)
		wantCode(t, "RegisterTask with a certificate of nobody", registerBy(t, l, credentials.NewTLS(none.Client("lab"))), codes.PermissionDenied)
		wantCode(t, "RegisterTask with its own certificate", registerBy(t, l, credentials.NewTLS(own.Client("lab"))), codes.OK)
	})
}

func TestTaskURIWantsCertificates(t *testing.T) {
	lab.Clause(t, "A-TLS-10")
	for name, change := range map[string]func(*server.Config){
		"no TLS":        func(c *server.Config) { c.TLS = nil },
		"no task in it": func(c *server.Config) { c.TaskURI = "spiffe://lab/" },
	} {
		cfg := cluster(1)
		cfg.TLS, cfg.TaskURI = new(tls.Config), "spiffe://lab/{task}"
		if err := cfg.Validate(); err != nil {
			t.Fatalf("Validate() = %v", err)
		}
		change(&cfg)
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: Validate() = nil; want an error", name)
		}
	}
}
