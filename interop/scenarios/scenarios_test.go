package scenarios

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// rows are a crash, an exception, and hangs: before a collective, at a barrier of the service, by a signal, and of ranks that wait for each
// other. Of the first hang it must be said, too, that it is stuck.
var rows = []string{"segv", "raise", "sleep", "barrier", "stop", "crossed"}

// Each situation is named, however long a busy machine takes for it.
func TestSlice(t *testing.T) {
	clause.Cite(t, "D-SC-1", "D-SC-4", "D-SC-7", "D-SC-8", "D-SC-9", "D-SC-15", "D-HG-4", "D-HG-5", "D-EV-3", "TD-EV-4")
	if testing.Short() {
		t.Skip("real clients take a minute; not run with -short")
	}
	out, err := exec.Command("../../scripts/venvs.sh", "jax-new").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 3 && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, NOTHING TESTED: no jax on this machine\n%s", out)
	}
	if err != nil {
		t.Fatalf("scripts/venvs.sh jax-new = %v\n%s", err, out)
	}
	bench := filepath.Join(t.TempDir(), "scenarios")
	if out, err := exec.Command("go", "build", "-o", bench, "../../bench/scenarios").CombinedOutput(); err != nil {
		t.Fatalf("go build ../../bench/scenarios: %v\n%s", err, out)
	}
	cmd := exec.Command(bench, append([]string{"-jax-0.9.2=", "-tensorflow=", "-hang-after", "10s", "-patient", "-wait", "3m", "-at-once", "3"}, rows...)...)
	cmd.Dir = "../.." // where its interpreters are
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("bench/scenarios %v: %v\n%s", rows, err, text)
	}
	t.Logf("%s", text)
	for _, row := range rows {
		if !strings.Contains(string(text), "\n"+row+" ") {
			t.Errorf("bench/scenarios did not play %s", row)
		}
	}
}
