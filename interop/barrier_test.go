package interop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-3: every way a barrier ends, with the texts that programs match on.
func TestBarriers(t *testing.T) {
	lab.Clause(t, "T-REAL-3", "A-PY-4", "C-CLI-7", "A-BAR-1", "A-BAR-2", "A-BAR-5", "A-BAR-7",
		"IT-11", "IT-12", "IT-13", "IT-14", "IT-16", "IT-17", "IT-18", "IT-19", "IT-21",
		"PJ-15", "PJ-16", "PJ-17", "PJ-18", "PJ-19")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 3, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3")
		clients := join(t, srv.addr, 3, clientConfig{venv: v})
		for _, id := range []string{"one", "two", "one", "two"} {
			barrier(id, clients...)
		}
		subsets(clients[0], clients[1], clients[2])
		timeouts(clients[0], clients[1], clients[2])
		outOfStep(clients[0], clients[1])
		leave(clients...)
	})
}

// subsets are barriers of some tasks only.
func subsets(a, b, c *client) {
	a.t.Helper()
	even := []int{0, 2}
	a.begin("wait_at_barrier", "even", 60_000, even)
	c.call("wait_at_barrier", "even", 60_000, even).value(nil)
	a.end().value(nil)

	// Who does not belong fails at once and with him who waits and who comes.
	c.begin("wait_at_barrier", "not for b", 60_000, even)
	b.call("wait_at_barrier", "not for b", 60_000, even).raises("INVALID_ARGUMENT: A non-participating task")
	c.end().raises("INVALID_ARGUMENT: A non-participating task")
	a.call("wait_at_barrier", "not for b", 60_000, even).raises("INVALID_ARGUMENT: A non-participating task")

	a.call("wait_at_barrier", "of one", 60_000, []int{0}).value(nil)
	b.call("wait_at_barrier", "of one", 60_000, []int{1}).raises("INVALID_ARGUMENT", "Conflicting tasks specified")
}

// timeouts are barriers that somebody misses.
func timeouts(a, b, c *client) {
	a.t.Helper()
	a.begin("wait_at_barrier", "missing", 200)
	b.call("wait_at_barrier", "missing", 200).raises("DEADLINE_EXCEEDED: Barrier timed out")
	a.end().raises("DEADLINE_EXCEEDED: Barrier timed out")
	c.call("wait_at_barrier", "missing", 60_000).raises("DEADLINE_EXCEEDED: Barrier timed out")
	barrier("missing", a, b, c) // the next use is whole again

	pair := []int{0, 1}
	a.begin("wait_at_barrier", "left", 200, pair)
	b.call("wait_at_barrier", "right", 200, pair).raises("DEADLINE_EXCEEDED: Barrier timed out")
	a.end().raises("DEADLINE_EXCEEDED: Barrier timed out")
}

// outOfStep has one task two uses ahead of the other.
func outOfStep(a, b *client) {
	a.t.Helper()
	pair := []int{0, 1}
	for range 2 {
		a.begin("wait_at_barrier", "step", 60_000, pair)
		b.call("wait_at_barrier", "step", 60_000, pair).value(nil)
		a.end().value(nil)
	}
	for range 2 {
		a.call("wait_at_barrier", "step", 100, pair).raises("DEADLINE_EXCEEDED: Barrier timed out")
	}
	b.call("wait_at_barrier", "step", 60_000, pair).raises("INTERNAL", "too quick / slow")
}

// All who ask for one set get the same answer; who asks must be in it.
func TestLiveNodes(t *testing.T) {
	lab.Clause(t, "A-LIVE-1", "A-LIVE-2", "IT-22", "PJ-20", "PJ-21")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 3, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3")
		clients := join(t, srv.addr, 3, clientConfig{venv: v})
		for _, c := range clients {
			c.begin("get_live_nodes", []int{0, 1, 2})
		}
		var first map[string]uint64
		clients[0].end().value(&first)
		if len(first) != 3 {
			t.Errorf("get_live_nodes = %v; want three tasks", first)
		}
		for _, c := range clients[1:] {
			var got map[string]uint64
			c.end().value(&got)
			if diff := cmp.Diff(first, got); diff != "" {
				t.Errorf("%s: get_live_nodes differs from task 0's (-want +got)\n%s", c.name, diff)
			}
		}
		for i, c := range clients {
			others := []int{(i + 1) % 3, (i + 2) % 3}
			c.call("get_live_nodes", others).raises("INVALID_ARGUMENT")
		}
		leave(clients...)
	})
}

// A recoverable task that restarts joins a barrier that was used before and
// that another waits at, or is the first at the next.
func TestRestartedTaskAtABarrier(t *testing.T) {
	lab.Clause(t, "C-BAR-4", "C-BAR-18", "C-BAR-19", "IT-33")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2", "--recoverable")
		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		a, b := clients[0], clients[1]
		restart := func() {
			a.kill()
			a = newClient(t, srv.addr, clientConfig{venv: v, task: 0})
			connect(a)
		}
		for range 3 {
			barrier("step", a, b)
		}
		restart()
		a.begin("wait_at_barrier", "step", 60_000) // the first at the fourth use
		b.call("wait_at_barrier", "step", 60_000).value(nil)
		a.end().value(nil)

		b.begin("wait_at_barrier", "step", 60_000)
		restart()
		a.call("wait_at_barrier", "step", 60_000).value(nil)
		b.end().value(nil)
		barrier("before the end", a, b)
		leave(a, b)
	})
}

// A lost task of a recoverable job is nobody else's error.
func TestRecoverableLossIsSilent(t *testing.T) {
	lab.Clause(t, "C-PROP-1", "C-POLL-9", "IT-32")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 3, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3", "--recoverable", "--heartbeat-timeout", "12s")
		clients := join(t, srv.addr, 3, clientConfig{venv: v, heartbeat: 12})
		clients[1].kill()
		clients[0].pause(24_000) // twice the timeout
		for _, c := range []*client{clients[0], clients[2]} {
			c.quiet()
			c.call("key_value_set", c.name, "lives").value(nil)
		}
		leave(clients[0], clients[2])
	})
}
