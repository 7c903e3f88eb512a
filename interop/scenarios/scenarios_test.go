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

// rows are crashes, exceptions, and hangs: before a collective, at a barrier of the service, by a signal, of ranks that wait for each
// other, and with the interpreter lock held; of the first it must be said, too, that it is stuck. Others are slow, run another program, do
// not start, or find that a port is taken or a disk is full. The rest of make scenarios needs other hosts, or rights that a machine may not give.
var rows = []string{
	"segv", "raise", "sleep", "barrier", "stop", "crossed", "write", "gil", "loop", "compile", "program", "world", "slow-start", "no-device", "port", "disk-full",
}

// Each situation is named, with what the line rests on and the grade of the table, however long a busy machine takes for it.
func TestSlice(t *testing.T) {
	clause.Cite(t, "D-SC-0", "D-SC-1", "D-SC-4", "D-SC-7", "D-SC-8", "D-SC-9", "D-SC-11", "D-SC-15", "D-SC-16", "D-SC-17", "D-SC-18", "D-SC-19", "D-SC-20",
		"D-SC-23", "D-SC-24", "D-SC-27", "D-SC-28", "D-HG-4", "D-HG-5", "D-EV-3", "TD-EV-4", "TD-RC-2", "TD-ST-7")
	t.Parallel()
	// Most of the time a job waits, so six of them are played at the same time.
	text := play(t, "scenarios", append([]string{"-jax-0.9.2=", "-tensorflow=", "-hang-after", "10s", "-patient", "-wait", "3m", "-at-once", "6"}, rows...)...)
	for _, row := range rows {
		if !strings.Contains(text, "\n"+row+" ") {
			t.Errorf("bench/scenarios did not play %s", row)
		}
	}
}

// A healthy job of real jax that trains, saves, compiles and waits for data raises no alarm, though no rank may stand still for more
// than 30 s. An hour of it is make soak-healthy.
func TestHealthyMinute(t *testing.T) {
	clause.Cite(t, "D-SC-29", "TD-HG-4")
	t.Parallel()
	text := play(t, "healthy", "-for", "60s", "-longest", "10s", "-hang-after", "30s")
	if !strings.Contains(text, "alarms 0: ok") {
		t.Errorf("bench/healthy:\n%s", text)
	}
}

// play builds a benchmark and runs it with the newest jax. It returns what it says.
func play(t *testing.T, bench string, args ...string) string {
	t.Helper()
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
	binary := filepath.Join(t.TempDir(), bench)
	if out, err := exec.Command("go", "build", "-o", binary, "../../bench/"+bench).CombinedOutput(); err != nil {
		t.Fatalf("go build ../../bench/%s: %v\n%s", bench, err, out)
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = "../.." // where its interpreters are
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("bench/%s %v: %v\n%s", bench, args, err, text)
	}
	t.Logf("%s", text)
	return string(text)
}
