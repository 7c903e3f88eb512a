package node_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/node"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/xlapb"
)

// Where tasks are bound to names in certificates, the relay of a node that leads has the names that the
// certificate of the node has, and no more for being in the same process.
func TestNodeSpeaksForTheTasksOfItsCertificate(t *testing.T) {
	lab.Clause(t, "A-TLS-10")
	for name, want := range map[string]codes.Code{"spiffe://lab/worker/0": codes.OK, "spiffe://lab/worker/7": codes.PermissionDenied} {
		synctest.Test(t, func(t *testing.T) {
			id := identity(t, name)
			l := bufconn.Listen(1 << 16)
			dial := func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
			seat := shareddisk.New(shareddisk.Config{LeaseTTL: leaseTTL}).Open()
			n, err := node.New(node.Config{
				Store: seat, Address: "lab:1", Dial: dial, TLS: id.Client,
				Server: server.Config{
					Cluster: coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}},
					TLS:     id.Server(), TaskURI: "spiffe://lab/{job}/{task}",
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			served := async(func() error { return n.Serve(l) })
			conn, err := grpc.NewClient("passthrough:///lab", grpc.WithContextDialer(dial), grpc.WithTransportCredentials(credentials.NewTLS(id.Client("lab"))))
			if err != nil {
				t.Fatal(err)
			}
			_, err = xlapb.NewCoordinationServiceClient(conn).RegisterTask(t.Context(), &xlapb.RegisterTaskRequest{Incarnation: 7})
			if got := status.Code(err); got != want {
				t.Errorf("RegisterTask() at a node with the name %s = %v; want %v", name, err, want)
			}
			conn.Close()
			n.Shutdown(t.Context())
			seat.Close()
			<-served
		})
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
