package front

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// TestH2Spec runs the public conformance suite for HTTP/2. The one case that may be skipped is on the
// limit of concurrent streams, which the front does not have.
func TestH2Spec(t *testing.T) {
	clause(t, "F-50", "FR-12")
	if testing.Short() {
		t.Skip("runs an outside program")
	}
	tool := h2spec(t)
	_, _, addr := startTCP(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool, "-h", host, "-p", port, "-o", "1", "-P", methodEcho).CombinedOutput()
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

// h2spec returns the path of the program and installs it if need be.
func h2spec(t *testing.T) string {
	t.Helper()
	if tool := os.Getenv("SERRY_H2SPEC"); tool != "" {
		return tool
	}
	bin, err := filepath.Abs(filepath.Join("..", "..", ".cache", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(bin, "h2spec")
	if _, err := os.Stat(tool); !errors.Is(err, os.ErrNotExist) {
		return tool
	}
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/summerwind/h2spec/cmd/h2spec@latest")
	install.Env = append(os.Environ(), "GOBIN="+bin)
	if out, err := install.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("installing h2spec: %v\n%s", err, out)
		}
		t.Skipf("SKIPPED, no HTTP/2 conformance shown: installing h2spec: %v\n%s", err, out)
	}
	return tool
}
