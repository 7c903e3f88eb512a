package node_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/mtls"
)

// Servers of one service lend clients their own certificates, so they do not start where certificates are bound to
// tasks, and say why.
func TestNodeRefusesTaskURI(t *testing.T) {
	lab.Clause(t, "SEC-42", "A-TLS-10")
	id := identity(t, "spiffe://lab/worker/0")
	seat := shareddisk.New(shareddisk.Config{LeaseTTL: leaseTTL}).Open()
	defer seat.Close()
	_, err := node.New(node.Config{
		Store: seat, Address: "lab:1", TLS: id.Client,
		Server: server.Config{
			Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}},
			TLS:     id.Server(), TaskURI: "spiffe://lab/{job}/{task}",
		},
	})
	if err == nil || !strings.Contains(err.Error(), "--tls-task-uri") || !strings.Contains(err.Error(), "its own certificate") {
		t.Errorf("New() = %v; want a refusal with its reason", err)
	}
}

// identity makes a certificate with a URI name.
func identity(t *testing.T, uri string) *mtls.Identity {
	t.Helper()
	dir := t.TempDir()
	ca, err := mtls.NewAuthority(dir, "lab", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Issue(dir, mtls.Subject{Name: "node", Hosts: []string{"lab"}, URIs: []string{uri}, Life: time.Hour}); err != nil {
		t.Fatal(err)
	}
	id, err := mtls.Load(mtls.Files{Cert: filepath.Join(dir, "node.pem"), Key: filepath.Join(dir, "node-key.pem"), CA: filepath.Join(dir, "ca.pem")})
	if err != nil {
		t.Fatal(err)
	}
	return id
}
