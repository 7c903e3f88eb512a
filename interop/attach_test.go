package interop

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-1: an unmodified jax program attaches by two environment variables
// alone, computes across four processes, and every process exits 0.
func TestJobAttachesByEnvironment(t *testing.T) {
	lab.Clause(t, "T-REAL-1", "A-ATT-1", "C-WIRE-1", "A-CH-4", "A-KEY-1", "C-VER-1", "C-WIRE-3")
	skipShort(t)
	t.Parallel()
	eachVenv(t, []venv{jaxNew, jax092, jax082}, 4, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "4")
		job{venv: v, processes: 4, rounds: 1}.run(t, srv.addr)
	})
}

// T-REAL-14: four processes leave and join again without ending; the second
// time is another epoch on the same server. The old backend
// still holds the old client then, and gRPC gives the new one the connection of
// the old, so the first epoch is over although no connection closed.
func TestJobJoinsAgainInTheSameProcesses(t *testing.T) {
	lab.Clause(t, "T-REAL-14", "C-EPOCH-2", "C-EPOCH-3", "C-EPOCH-4", "A-SEQ-2")
	skipShort(t)
	t.Parallel()
	eachVenv(t, []venv{jaxNew, jax092, jax082}, 4, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "4")
		job{venv: v, processes: 4, rounds: 2}.run(t, srv.addr)
	})
}

// T-REAL-2: the address is a gRPC target: a Unix socket, or a list of which
// only the second is served.
func TestTargetForms(t *testing.T) {
	lab.Clause(t, "T-REAL-2", "A-CH-9")
	skipShort(t)
	t.Parallel()
	t.Run("unix", func(t *testing.T) {
		beside(t, 2)
		target := "unix:" + filepath.Join(t.TempDir(), "serry.sock")
		serveOn(t, target, "--tasks", "2")
		leave(join(t, target, 2, clientConfig{venv: jaxNew})...)
	})
	t.Run("list", func(t *testing.T) {
		beside(t, 2)
		srv := serve(t, "--tasks", "2")
		target := fmt.Sprintf("ipv4:%s,%s", unusedAddress(t), srv.addr)
		leave(join(t, target, 2, clientConfig{venv: jaxNew})...)
	})
	t.Run("dns", func(t *testing.T) {
		beside(t, 2)
		srv := serve(t, "--tasks", "2")
		leave(join(t, "dns:///"+srv.addr, 2, clientConfig{venv: jax092})...)
	})
}

// Both dialects reach one state: a process of each is a job, up to its end by
// a loss, which each hears in its own words.
func TestDialectsMixInOneJob(t *testing.T) {
	lab.Clause(t, "C-VER-1", "C-VER-4", "C-WIRE-7")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--tasks", "2")
	mixed := func() (young, old *client) {
		young = newClient(t, srv.addr, clientConfig{venv: jaxNew, task: 0})
		old = newClient(t, srv.addr, clientConfig{venv: jax092, task: 1})
		connect(young, old)
		return young, old
	}
	young, old := mixed()
	old.begin("blocking_key_value_get", "from the young", 60_000)
	young.call("key_value_set", "from the young", "hello").value(nil)
	if got := old.end().text(); got != "hello" {
		t.Errorf("old: got %q; want hello", got)
	}
	old.call("key_value_set", "from the old", "hello").value(nil)
	young.holds("from the old", "hello")
	for range 2 { // the second use of the id counts on in both dialects
		barrier("both", young, old)
	}
	if y, o := liveNodes(young, old); !cmp.Equal(y, o) || len(y) != 2 {
		t.Errorf("get_live_nodes = %v and %v; want the same two tasks", y, o)
	}
	leave(young, old)

	young, old = mixed()
	old.kill()
	young.aborts("UNAVAILABLE", "task 1: ")
	young, old = mixed()
	young.kill()
	old.aborts("UNAVAILABLE", "task:0: ")
}

// sight is what one process of testdata/job.py prints of a round.
type sight struct {
	Gathered  []int
	Sum       float64
	Neighbour string
	Keys      []string
	Alive     []int
}

// job says how testdata/job.py runs.
type job struct {
	venv      venv
	processes int
	rounds    int
}

// run runs the job and checks what each process saw, round by round, and that
// each exits 0.
func (j job) run(t *testing.T, addr string) {
	t.Helper()
	processes := make(group, j.processes)
	for i := range processes {
		processes[i] = startJax(t, addr, j.venv, i, "testdata/job.py",
			fmt.Sprint(j.processes), fmt.Sprint(i), fmt.Sprint(j.rounds))
	}
	for range j.rounds {
		for i, p := range processes {
			var got sight
			line := p.line()
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatalf("%s: printed %q: %v", p.name, line, err)
			}
			if diff := cmp.Diff(wantSight(j.processes, i), got); diff != "" {
				t.Errorf("%s: saw (-want +got)\n%s", p.name, diff)
			}
		}
	}
	processes.leaves()
}

// startJax starts a program that attaches to the server by environment alone
// (A-ATT-1).
func startJax(t *testing.T, addr string, v venv, task int, script string, args ...string) *process {
	t.Helper()
	return start(t, fmt.Sprintf("%s process %d", v, task),
		environment("JAX_COORDINATOR_ADDRESS="+addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0"),
		append([]string{v.python(t), script}, args...)...)
}

func wantSight(n, me int) sight {
	want := sight{
		Sum:       float64(n * (n + 1) / 2),
		Neighbour: fmt.Sprintf("hello from %d", (me+1)%n),
	}
	for i := range n {
		want.Gathered = append(want.Gathered, i)
		want.Alive = append(want.Alive, i)
		want.Keys = append(want.Keys, fmt.Sprintf("from/%d", i))
	}
	return want
}

// barrier takes clients through one use of a barrier of all tasks.
func barrier(id string, clients ...*client) {
	for _, c := range clients {
		c.t.Helper()
		c.begin("wait_at_barrier", id, 60_000)
	}
	for _, c := range clients {
		c.end().value(nil)
	}
}

// liveNodes asks two clients at once who of both is alive, with incarnations.
func liveNodes(a, b *client) (fromA, fromB map[string]uint64) {
	a.t.Helper()
	a.begin("get_live_nodes", []int{0, 1})
	b.begin("get_live_nodes", []int{0, 1})
	a.end().value(&fromA)
	b.end().value(&fromB)
	return fromA, fromB
}
