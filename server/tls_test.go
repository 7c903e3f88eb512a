package server_test

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/xlapb"
)

// identities makes certificates for a server and a client of one authority.
func identities(t *testing.T) (ofServer, ofClient *mtls.Identity) {
	t.Helper()
	dir := t.TempDir()
	ca, err := mtls.NewAuthority(dir, "lab", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string) *mtls.Identity {
		if err := ca.Issue(dir, mtls.Subject{Name: name, Hosts: []string{"lab"}, Life: time.Hour}); err != nil {
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
	return load("server"), load("client")
}

func TestTLS(t *testing.T) {
	lab.Clause(t, "C-WIRE-12")
	synctest.Test(t, func(t *testing.T) {
		ofServer, ofClient := identities(t) // here, where it is the year 2000
		cfg := cluster(1)
		cfg.TLS = ofServer.Server()
		s := start(t, cfg)
		l := bufconn.Listen(1 << 16)
		go s.Serve(l)

		wantCode(t, "RegisterTask with a certificate", registerBy(t, l, credentials.NewTLS(ofClient.Client("lab"))), codes.OK)
		stranger := ofClient.Client("lab")
		stranger.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
		wantCode(t, "RegisterTask without one", registerBy(t, l, credentials.NewTLS(stranger)), codes.Unavailable)
		wantCode(t, "RegisterTask without TLS", registerBy(t, l, insecure.NewCredentials()), codes.Unavailable)
	})
}

// dialBy makes a client with these credentials.
func dialBy(t *testing.T, l *bufconn.Listener, creds credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///lab", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// registerBy registers over a connection of its own.
func registerBy(t *testing.T, l *bufconn.Listener, creds credentials.TransportCredentials) error {
	t.Helper()
	conn := dialBy(t, l, creds)
	defer conn.Close()
	_, err := xlapb.NewCoordinationServiceClient(conn).RegisterTask(t.Context(), &xlapb.RegisterTaskRequest{Incarnation: 7})
	return err
}
