package front

import (
	"context"
	_ "embed"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/rpc"
)

// tool returns the path of an outside program: what the variable names, or what is in the cache at
// the root of the repository, where it is installed from pkg if need be.
func tool(t *testing.T, variable, name, pkg string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs an outside program")
	}
	if path := os.Getenv(variable); path != "" {
		return path
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", ".cache", "bin", filepath.Dir(name)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(bin, filepath.Base(name))
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path
	}
	install := exec.CommandContext(t.Context(), "go", "install", pkg)
	install.Env = append(os.Environ(), "GOBIN="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("installing %s: %v\n%s", pkg, err, out)
		}
		t.Skipf("SKIPPED, nothing shown: installing %s: %v\n%s", pkg, err, out)
	}
	return path
}

// TestH2Spec runs the public conformance suite for HTTP/2. The one case that may be skipped is on the
// limit of concurrent streams, which the front does not have.
func TestH2Spec(t *testing.T) {
	clause.Cite(t, "F-50", "FR-12")
	h2spec := tool(t, "SERRY_H2SPEC", "h2spec", "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible")
	_, _, addr := startTCP(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, h2spec, "-h", host, "-p", port, "-o", "1", "-P", methodEcho).CombinedOutput()
	m := regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("h2spec: %v\n%s", err, out)
	}
	t.Logf("h2spec: %s", m[0])
	skipped, failed := string(m[3]), string(m[4])
	if err != nil || failed != "0" || (skipped != "0" && skipped != "1") {
		t.Errorf("h2spec: %v, %s; want none failed and at most one skipped\n%s", err, m[0], out)
	}
}

// A testService is the unary part of the service that gRPC's own clients test with.
type testService struct{}

var testServiceMethods = rpc.Methods{
	grpc_testing.TestService_EmptyCall_FullMethodName: {MaxRequestBytes: 1 << 20},
	grpc_testing.TestService_UnaryCall_FullMethodName: {MaxRequestBytes: 1 << 20},
}

func (testService) Open(rpc.Conn)               {}
func (testService) Close(rpc.Conn, error)       {}
func (testService) Cancel(rpc.Conn, rpc.CallID) {}
func (testService) Served(rpc.Conn)             {}
func (testService) Serve(c rpc.Conn, call rpc.CallID, method string, body []byte) {
	if method == grpc_testing.TestService_EmptyCall_FullMethodName {
		c.Reply(call, nil, rpc.Status{})
		return
	}
	var req grpc_testing.SimpleRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		c.Reply(call, nil, rpc.Status{Code: codes.InvalidArgument, Message: err.Error()})
		return
	}
	if st := req.GetResponseStatus(); st.GetCode() != 0 {
		c.Reply(call, nil, rpc.Status{Code: codes.Code(st.GetCode()), Message: st.GetMessage()})
		return
	}
	reply, err := proto.Marshal(&grpc_testing.SimpleResponse{Payload: &grpc_testing.Payload{Body: make([]byte, req.GetResponseSize())}})
	if err != nil {
		c.Reply(call, nil, rpc.Status{Code: codes.Internal, Message: err.Error()})
		return
	}
	c.Reply(call, reply, rpc.Status{})
}

// TestInteropClient runs the unary cases of gRPC's interoperability client. status_code_and_message
// streams in its second half, and custom_metadata needs metadata, which the front drops.
func TestInteropClient(t *testing.T) {
	clause.Cite(t, "F-50")
	client := tool(t, "SERRY_GRPC_INTEROP", "interop/client", "google.golang.org/grpc/interop/client@v1.85.0")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	start(t, l, Config{Handler: testService{}, Methods: testServiceMethods})
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"empty_unary", "large_unary", "special_status_message", "unimplemented_method", "unimplemented_service"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, client, "--server_host", host, "--server_port", port, "--test_case", name).CombinedOutput()
			if err != nil {
				t.Errorf("interop client: %v\n%s", err, out)
			}
		})
	}
}

//go:embed testdata/ccore.py
var ccoreScript string

// pythonWithGRPC returns the interpreter of an environment with grpcio. Exit codes above 2 of the
// script say that this machine cannot have one.
func pythonWithGRPC(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("runs an outside program")
	}
	out, err := exec.CommandContext(t.Context(), "../../scripts/venvs.sh", "grpcio").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 2 && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, nothing shown: no grpcio on this machine\n%s", out)
	}
	if err != nil {
		t.Fatalf("scripts/venvs.sh grpcio = %v\n%s", err, out)
	}
	return "../../.cache/venv/grpcio/bin/python"
}

// TestCCore runs the Python client of the C core against the front.
func TestCCore(t *testing.T) {
	clause.Cite(t, "F-50", "FR-7", "FR-8", "FR-15", "FR-17", "C-WIRE-3")
	python := pythonWithGRPC(t)
	h, s, addr := startTCP(t)
	h.details.Store(&[]byte{0, 1, 2, 0xff})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-c", ccoreScript, addr).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("grpcio: %v", err)
	}
	h.until(func() bool { return len(h.open) == 0 })
	if st := s.Stats(); len(st.Errors) > 0 || len(st.Refused) > 0 {
		t.Errorf("Stats() = %+v; want nothing refused", st)
	}
}
