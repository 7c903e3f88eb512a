package interop

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// An unmodified jax program has the process index and the devices that its machine had before, although
// the launchers have exchanged their numbers.
func TestJAXKeepsItsRank(t *testing.T) {
	lab.Clause(t, "P-RMP-8", "P-TOP-5")
	skipShort(t)
	beside(t, 2)
	python, state := jaxNew.python(t), t.TempDir()
	want := map[string]string{"a": "process 0 of 2 with devices [0]", "b": "process 1 of 2 with devices [2048]"}
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		coordinator := unusedAddress(t)
		said := make([]bytes.Buffer, len(order))
		launchers := make([]*exec.Cmd, len(order))
		for node, machine := range order {
			cmd := exec.Command(os.Getenv("SERRY_BINARY"), "run", "-n", "1", "--nnodes", "2", "--node-rank", strconv.Itoa(node),
				"--coordinator", coordinator, "--state-dir", state, "--", python, "testdata/rank.py")
			cmd.Env = append(os.Environ(), "SERRY_MACHINE_ID="+machine, "SERRY_HOSTNAME=host-"+machine, "JAX_PLATFORMS=cpu")
			cmd.Stdout, cmd.Stderr = &said[node], &said[node]
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test failed
			launchers[node] = cmd
		}
		for node, machine := range order {
			err := launchers[node].Wait()
			m := regexp.MustCompile(`machine ` + machine + ` is (.*)`).FindSubmatch(said[node].Bytes())
			if err != nil || m == nil || string(bytes.TrimSpace(m[1])) != want[machine] {
				t.Errorf("order %v: on machine %s, launcher %d: %v; want %q in\n%s", order, machine, node, err, want[machine], said[node].Bytes())
			}
		}
	}
}
