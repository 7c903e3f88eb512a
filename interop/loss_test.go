package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// soon bounds what should take a second, on a machine busy with other things.
// It lies below the heartbeat timeout of 100 s, after which the reference
// service would have noticed as well.
const soon = time.Minute

// T-REAL-4: a process is killed; the others end within a second and say which
// task it was. Heartbeat timeout and grace are the defaults.
func TestKilledProcessEndsTheJob(t *testing.T) {
	lab.Clause(t, "CL-EX-2", "T-REAL-4", "C-LOST-1", "C-LOST-4", "A-DIE-1", "C-PROP-4", "IT-04", "IT-31", "PJ-08")
	skipShort(t)
	t.Parallel()
	names := map[venv]string{ // the task, in the words of each dialect
		jaxNew: "task 1: ",
		jax092: "task:1: ",
		jax082: "/job:jax_worker/replica:0/task:1: ",
	}
	eachVenv(t, []venv{jaxNew, jax092, jax082}, 3, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3")
		clients := join(t, srv.addr, 3, clientConfig{venv: v})
		clients[0].begin("wait_at_barrier", "never whole", 100_000)
		clients[2].begin("blocking_key_value_get", "never set", 100_000)

		killed := time.Now()
		clients[1].kill()
		for _, c := range []*client{clients[0], clients[2]} {
			c.aborts("Terminating process because the JAX distributed service detected fatal errors",
				"UNAVAILABLE", names[v], "connection closed")
		}
		within(t, "the others end", time.Since(killed))
	})
}

// T-REAL-5, T-REAL-10: in a recoverable job the others live on. The live set
// shrinks, the killed process comes back under its old number, whichever it
// was, and the live set grows. Its topology is taken although it is there
// already; Gloo's cliques cannot be joined again.
func TestKilledProcessComesBack(t *testing.T) {
	lab.Clause(t, "CL-EX-2", "CL-ATM-1", "T-REAL-5", "T-REAL-10", "A-RES-1", "A-RES-2", "A-RES-3", "A-LIVE-4", "C-KV-15", "P-TOP-1")
	skipShort(t)
	t.Parallel()
	for _, victim := range []int{0, 1} {
		t.Run(fmt.Sprintf("process %d", victim), func(t *testing.T) {
			beside(t, 3)
			srv := serve(t, "--tasks", "3", "--recoverable")
			job := startLive(t, srv.addr)
			job.all("sum", "sum 3")
			job.all("live", "live 0,2048,4096")

			killed := time.Now()
			job[victim].kill()
			others := job.without(victim)
			others.all("live", fmt.Sprint("lost ", victim*2048))
			within(t, "the live set shrinks", time.Since(killed))
			less := map[int]string{0: "live 2048,4096", 1: "live 0,4096"}[victim]
			others.all("live", less)

			back := startJax(t, srv.addr, jaxNew, victim, "testdata/live.py", "3", fmt.Sprint(victim))
			back.expect("devices 0,2048,4096")
			job[victim] = back
			back.tell("live")
			others.all("live", less) // a block ends with the set the next one has
			others.all("live", "live 0,2048,4096")
			back.expect("live 0,2048,4096")

			back.tell("sum")
			if got := back.line(); !contains(got, "ALREADY_EXISTS", "cpu:gloo/0,2048,4096/") {
				t.Errorf("sum of the restarted process: %q; want ALREADY_EXISTS of its Gloo key", got)
			}
			job.leaves()
		})
	}
}

// T-REAL-5 in the old dialect, with the client's own call.
func TestLiveNodesShrinkAndGrow(t *testing.T) {
	lab.Clause(t, "T-REAL-5", "A-LIVE-2", "A-LIVE-3", "C-VER-2")
	skipShort(t)
	t.Parallel()
	eachVenv(t, []venv{jax092, jax082}, 2, func(t *testing.T, v venv) {
		flags := []string{"--tasks", "2", "--recoverable"}
		if v == jax082 {
			flags = flags[:2] // this client says so itself
		}
		srv := serve(t, flags...)
		clients := join(t, srv.addr, 2, clientConfig{venv: v, recoverable: true})
		before, _ := liveNodes(clients[0], clients[1])

		clients[1].kill()
		var alone map[string]uint64
		clients[0].call("get_live_nodes", []int{0, 1}).value(&alone)
		if len(alone) != 1 || alone["0"] != before["0"] {
			t.Errorf("get_live_nodes = %v; want task 0 alone of %v", alone, before)
		}

		clients[1] = newClient(t, srv.addr, clientConfig{venv: v, task: 1, recoverable: true})
		connect(clients[1])
		after, same := liveNodes(clients[0], clients[1])
		if len(after) != 2 || after["0"] != before["0"] || after["1"] == before["1"] || after["1"] != same["1"] {
			t.Errorf("get_live_nodes = %v and %v; want both tasks, task 1 in another incarnation than %v", after, same, before)
		}
		barrier("together again", clients...)
		leave(clients...)
	})
}

// within logs how long something took that should take a second.
func within(t *testing.T, what string, took time.Duration) {
	t.Helper()
	t.Logf("%s after %v", what, took.Round(time.Millisecond))
	if took > soon {
		t.Errorf("%s after %v; want about a second, and less than %v", what, took, soon)
	}
}

// startLive starts testdata/live.py in three processes, with a device each.
func startLive(t *testing.T, addr string) group {
	t.Helper()
	g := make(group, 3)
	for i := range g {
		g[i] = startJax(t, addr, jaxNew, i, "testdata/live.py", "3", fmt.Sprint(i))
	}
	g.expect("devices 0,2048,4096")
	return g
}
