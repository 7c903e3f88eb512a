package interop

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-13: two runs one after the other against one server. Both end well,
// and the second finds nothing of the first.
func TestSecondRunStartsEmpty(t *testing.T) {
	lab.Clause(t, "T-REAL-13", "C-EPOCH-1", "C-EPOCH-2", "C-EPOCH-4")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		for range 2 {
			clients := join(t, srv.addr, 2, clientConfig{venv: v})
			clients[1].call("key_value_try_get", "run/of").raises("NOT_FOUND")
			if left := clients[1].dir("run"); len(left) != 0 {
				t.Errorf("key_value_dir_get(run) = %v; want nothing of the run before", left)
			}
			barrier("looked", clients...)
			clients[0].call("key_value_set", "run/of", string(v)).value(nil)
			barrier("wrote", clients...)
			leave(clients...)
		}
	})
}

// A run that was killed does not stand in the way of the next one either.
func TestRunAfterAFailedOneStartsEmpty(t *testing.T) {
	lab.Clause(t, "T-REAL-13", "C-EPOCH-2", "C-EPOCH-4")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		failed := join(t, srv.addr, 2, clientConfig{venv: v})
		failed[0].call("key_value_set", "half", "done").value(nil)
		failed[0].kill()
		failed[1].aborts("UNAVAILABLE")

		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		clients[0].call("key_value_try_get", "half").raises("NOT_FOUND")
		leave(clients...)
	})
}

// A process of the next run that comes while one of the last still runs, shut
// down but not gone, waits for its end; and nothing is said to the old one that
// would kill it.
func TestNextRunWaitsForTheLastProcess(t *testing.T) {
	lab.Clause(t, "C-EPOCH-3", "C-EPOCH-4", "A-SEQ-2")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--tasks", "1")
	old := join(t, srv.addr, 1, clientConfig{venv: jaxNew})[0]
	old.call("key_value_set", "run", "first").value(nil)
	old.call("shutdown").value(nil)

	next := newClient(t, srv.addr, clientConfig{venv: jaxNew})
	next.begin("connect")
	old.holds("run", "first") // its connection is open, its epoch readable
	old.leaves()
	next.end().value(nil)
	next.call("key_value_try_get", "run").raises("NOT_FOUND")
	leave(next)
}

// A server that was replaced by an empty one says so to every call of the old
// run, and such a client ends. Errors go by heartbeat here, so that the clients
// have no poll open that would end them before.
func TestCallsOfAnotherService(t *testing.T) {
	lab.Clause(t, "C-INC-2", "C-CLI-4", "A-TOL-1", "C-POLL-11", "A-HA-2")
	skipShort(t)
	beside(t, 8)
	calls := [][]any{
		{"key_value_set", "k", "v"},
		{"key_value_try_get", "k"},
		{"blocking_key_value_get", "k", 60_000},
		{"key_value_increment", "n", 1},
		{"key_value_dir_get", "d"},
		{"key_value_delete", "k"},
		{"wait_at_barrier", "b", 60_000},
		{"get_live_nodes", []int{0, 1, 2, 3, 4, 5, 6, 7}},
	}
	flags := []string{"--tasks", fmt.Sprint(len(calls)), "--error-delivery", "heartbeat"}
	old := serve(t, flags...)
	clients := join(t, old.addr, len(calls), clientConfig{venv: jaxNew})
	barrier("polls are answered", clients...)
	old.kill()
	serveOn(t, old.addr, flags...)
	for i, c := range clients {
		method, args := calls[i][0].(string), calls[i][1:]
		c.begin(method, args...)
		// A call may meet the broken connection; a later one finds the new server.
		for line, ok := c.next(); ok; line, ok = c.next() {
			if !contains(line, "UNAVAILABLE") {
				t.Fatalf("%s: %s = %s; want its end", c.name, method, line)
			}
			c.begin(method, args...)
		}
		c.aborts("INTERNAL", "wrong service incarnation")
	}
}
