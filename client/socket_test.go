package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/server"
)

// serveTCP starts a server on a port of this host and returns its address. A busy host can stop a process for longer than
// the timeouts of tests in virtual time.
func serveTCP(t testing.TB, cfg server.Config) (*server.Server, string) {
	t.Helper()
	cfg.Cluster.HeartbeatTimeout = 2 * time.Minute
	cfg.Cluster.RegisterTimeout = 2 * time.Minute
	if cfg.Cluster.ShutdownTimeout > 0 {
		cfg.Cluster.ShutdownTimeout = 2 * time.Minute
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Shutdown(context.Background())
		<-served
	})
	return s, listener.Addr().String()
}

func TestOverTheNetwork(t *testing.T) {
	lab.Clause(t, "C-WIRE-1")
	for _, d := range []client.Dialect{client.Auto, client.Serry, client.XLA, client.TensorFlow} {
		t.Run(d.String(), func(t *testing.T) {
			_, address := serveTCP(t, cluster(1))
			m, err := client.Join(t.Context(), client.Config{Address: address, Task: worker(0), Dialect: d})
			if err != nil {
				t.Fatalf("Join() = %v", err)
			}
			defer m.Close()
			if err := m.KV().Create(t.Context(), "k", make([]byte, 5<<20)); err != nil {
				t.Errorf("Create() = %v", err)
			}
			if got, err := m.KV().Get(t.Context(), "k"); err != nil || len(got) != 5<<20 {
				t.Errorf("Get() = %d bytes, %v; want 5 MiB", len(got), err)
			}
			if err := m.Leave(t.Context()); err != nil {
				t.Errorf("Leave() = %v", err)
			}
		})
	}
}

// exitEnv makes the test binary a member that ends with its membership; its value is an address.
const exitEnv = "SERRY_TEST_EXIT_ON_FAULT"

// TestExitOnFaultProcess is not a test of its own but the process of TestExitOnFault.
func TestExitOnFaultProcess(t *testing.T) {
	address := os.Getenv(exitEnv)
	if address == "" {
		t.Skip("runs in a process of TestExitOnFault")
	}
	m, err := client.Join(t.Context(), client.Config{Address: address, Task: worker(1)})
	if err != nil {
		t.Fatal(err)
	}
	client.ExitOnFault(m, 42)
	if err := m.KV().Put(t.Context(), "ready", nil); err != nil {
		t.Fatal(err)
	}
	_, err = m.KV().Wait(t.Context(), "go")
	<-m.Context().Done()
	if errors.Is(err, serry.ErrReported) { // lost; the other goroutine ends the process
		select {}
	}
}

func TestExitOnFault(t *testing.T) {
	lab.Clause(t, "T-AG-12")
	_, address := serveTCP(t, loose(2))
	m, err := client.Join(t.Context(), client.Config{Address: address, Task: worker(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExitOnFaultProcess$")
	cmd.Env = append(os.Environ(), exitEnv+"="+address)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.KV().Wait(t.Context(), "ready"); err != nil {
		t.Fatal(err)
	}
	if err := m.Fail(t.Context(), errors.New("for the test")); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 42 {
		t.Errorf("the process of the other member ended with %v and said %s; want exit code 42", cmd.ProcessState, output.String())
	}
}
