package interop

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
)

// TestMain builds the server once for all tests.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		flag.Set("test.parallel", "100") // tests wait for their turn by processes, see beside
	}
	if os.Getenv("SERRY_BINARY") != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "serry-interop-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "serry")
	build := exec.Command("go", "build", "-o", binary, "github.com/serry-dev/serry/cmd/serry")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "interop: %v: %v\n%s", build, err, out)
		return 1
	}
	os.Setenv("SERRY_BINARY", binary)
	return m.Run()
}

// skipShort skips a test of real clients where tests are to be short.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real clients take minutes; not run with -short")
	}
}

// atOnce is how many processes of real clients run at a time, over all tests. They use two processors well: most of the
// time most of them wait for a timeout, for another process or for a disk.
const atOnce = 10

// turns has one unit for each of these processes.
var turns = semaphore.NewWeighted(atOnce)

// beside makes a test parallel, and returns when so many more processes may run. The test has them until its processes
// are gone. Tests with many of them are not overtaken by others.
func beside(t *testing.T, processes int64) {
	t.Helper()
	t.Parallel()
	processes = min(processes, atOnce)
	came := time.Now()
	if err := turns.Acquire(t.Context(), processes); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { turns.Release(processes) })
	t.Logf("had its turn after %v", time.Since(came).Round(time.Millisecond)) // part of what go test gives as its time
}

// A venv is the name of a Python environment that scripts/venvs.sh makes.
type venv string

const (
	jaxNew     venv = "jax-new"   // dialect N
	jax092     venv = "jax-0.9.2" // dialect O, no job name
	jax082     venv = "jax-0.8.2" // dialect O, job jax_worker, slow heartbeats
	tensorflow venv = "tf"        // dialect O, jobs
	torch      venv = "torch"     // no client of the service: PyTorch reads records of collectives
)

// both are one client of each dialect.
var both = []venv{jaxNew, jax092}

// eachVenv runs test once for every environment named, beside other tests: it has so many processes at a time.
func eachVenv(t *testing.T, venvs []venv, processes int64, test func(t *testing.T, v venv)) {
	t.Helper()
	for _, v := range venvs {
		t.Run(string(v), func(t *testing.T) {
			beside(t, processes)
			test(t, v)
		})
	}
}

// python returns the interpreter of an environment, which it makes first if
// it is not there. Exit codes 3 and 4 of the script say that this machine
// cannot have it.
func (v venv) python(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../scripts/venvs.sh", string(v)).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 3 && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, NOTHING TESTED: no %s on this machine\n%s", v, out)
	}
	if err != nil {
		t.Fatalf("scripts/venvs.sh %s = %v\n%s", v, err, out)
	}
	path, err := filepath.Abs(filepath.Join("../.cache/venv", string(v), "bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
