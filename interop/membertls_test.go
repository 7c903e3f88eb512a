package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	member "github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/mtls"
)

// Unmodified jax processes join a server that requires mutual TLS by the five variables that jax has
// for it, and a Go member does by the same files.
func TestJaxByMutualTLS(t *testing.T) {
	lab.Clause(t, "A-TLS-12", "A-TLS-13", "A-ATT-8")
	skipShort(t)
	beside(t, 4)
	certs := newCertificates(t)
	certs.issue("coord", certs.prefix+"coord")
	certs.issue("task", certs.prefix+"task")
	srv := serve(t, certs.serverFlags("--tasks", "4")...)
	certs.runJob(srv.addr, "task", 4)

	srv = serve(t, certs.serverFlags("--tasks", "1")...)
	m, err := member.Join(t.Context(), member.Config{Address: srv.addr, Task: worker(0), TLS: certs.identity("task").Client("127.0.0.1")})
	if err != nil {
		t.Fatalf("Join() with a certificate = %v", err)
	}
	if err := m.Leave(t.Context()); err != nil {
		t.Errorf("Leave() = %v", err)
	}
}

// Who is not of the job does not get in: of another authority, of another name, without a certificate.
// The server says whom it refused and why.
func TestServerTellsWhomTLSRefuses(t *testing.T) {
	lab.Clause(t, "A-TLS-7", "A-TLS-12", "T-TLS-3", "T-TLS-4", "T-TLS-22")
	skipShort(t)
	beside(t, 4)
	certs, others := newCertificates(t), newCertificates(t)
	certs.issue("coord", certs.prefix+"coord")
	certs.issue("stranger", "spiffe://example.org/another/task")
	others.issue("outcast", others.prefix+"task")
	tests := []struct {
		name string
		env  []string
		why  string
	}{
		{"another name", certs.env("stranger", certs.ca()), "spiffe://example.org/another/task"},
		{"another authority", others.env("outcast", certs.ca()), "signed by unknown authority"},
		{"plain text", nil, "does not look like a TLS handshake"},
	}
	const refusedFor = 20 * time.Second // each of four processes asks at least once by then
	servers, strangers := make([]*server, len(tests)), make([]*client, len(tests))
	for i, test := range tests {
		servers[i] = serve(t, certs.serverFlags("--tasks", "1")...)
		strangers[i] = startMemberWithin(t, servers[i].addr, jaxNew, 1, 0, refusedFor, test.env...)
	}
	plain := serve(t, "--tasks", "1")
	secure := startMemberWithin(t, plain.addr, jaxNew, 1, 0, refusedFor, certs.env("stranger", certs.ca())...)
	secure.aborts("DEADLINE_EXCEEDED") // the other way round: TLS towards a server without
	for i, test := range tests {
		strangers[i].aborts("DEADLINE_EXCEEDED")
		if said := servers[i].stderr.String(); !contains(said, "peer=127.0.0.1:", test.why) {
			t.Errorf("%s: server said\n%s\nwant a line with the peer and %q", test.name, said, test.why)
		}
	}
}

// certificates are an authority of `serry cert` with what it has issued.
type certificates struct {
	t      *testing.T
	dir    string
	prefix string // that both sides ask of each other
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{t: t, dir: filepath.Join(t.TempDir(), "certs"), prefix: "spiffe://example.org/job/"}
	c.serry("cert", "new", c.dir)
	return c
}

func (c *certificates) serry(args ...string) {
	c.t.Helper()
	if out, err := exec.Command(os.Getenv("SERRY_BINARY"), args...).CombinedOutput(); err != nil {
		c.t.Fatalf("serry %q: %v\n%s", args, err, out)
	}
}

// issue makes a certificate with a URI as its only name.
func (c *certificates) issue(name, uri string) {
	c.t.Helper()
	c.serry("cert", "issue", c.dir, name, "--uri", uri)
}

func (c *certificates) ca() string              { return filepath.Join(c.dir, "ca.pem") }
func (c *certificates) cert(name string) string { return filepath.Join(c.dir, name+".pem") }
func (c *certificates) key(name string) string  { return filepath.Join(c.dir, name+"-key.pem") }

// serverFlags are those of a server that shows the certificate "coord", and more.
func (c *certificates) serverFlags(more ...string) []string {
	return append(c.flags("coord"), more...)
}

// flags are those of a process of ours that shows a certificate.
func (c *certificates) flags(name string) []string {
	return []string{"--tls-cert", c.cert(name), "--tls-key", c.key(name), "--tls-ca", c.ca(), "--tls-peer-prefix", c.prefix}
}

// env are jax's variables for a process that shows a certificate and trusts ca.
func (c *certificates) env(name, ca string) []string {
	return []string{
		"JAX_MTLS_CERT_FILE=" + c.cert(name), "JAX_MTLS_KEY_FILE=" + c.key(name), "JAX_MTLS_CA_FILE=" + ca,
		"JAX_MTLS_PEER_URI_PREFIX=" + c.prefix, "JAX_DISTRIBUTED_VERIFY_SECURE_CREDENTIALS=true",
	}
}

// identity is a certificate as a Go program uses it.
func (c *certificates) identity(name string) *mtls.Identity {
	c.t.Helper()
	id, err := mtls.Load(mtls.Files{Cert: c.cert(name), Key: c.key(name), CA: c.ca(), PeerPrefix: c.prefix})
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// runJob runs testdata/job.py, every process with the same certificate, and checks what each saw.
func (c *certificates) runJob(addr, name string, processes int) {
	c.t.Helper()
	env := append(c.env(name, c.ca()), "JAX_COORDINATOR_ADDRESS="+addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")
	job := make(group, processes)
	for i := range job {
		job[i] = start(c.t, fmt.Sprint("process ", i), environment(env...),
			jaxNew.python(c.t), "testdata/job.py", fmt.Sprint(processes), fmt.Sprint(i), "1")
	}
	for i, p := range job {
		var got sight
		if err := json.Unmarshal([]byte(p.line()), &got); err != nil {
			c.t.Fatalf("%s: %v", p.name, err)
		}
		if diff := cmp.Diff(wantSight(processes, i), got); diff != "" {
			c.t.Errorf("%s: saw (-want +got)\n%s", p.name, diff)
		}
	}
	job.leaves()
}
