package interop

import (
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-8: a server that stands still for less than a heartbeat's deadline is
// forgiven, by its clients and by itself.
func TestShortStallIsForgiven(t *testing.T) {
	lab.Clause(t, "T-REAL-8", "A-TOL-3", "C-LOST-6")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		// Half the timeout is both the pace and the deadline of a heartbeat,
		// so some of these stalls have one in them.
		srv := serve(t, "--tasks", "2", "--heartbeat-timeout", "20s", "--heartbeat-slack", "0s")
		clients := join(t, srv.addr, 2, clientConfig{venv: v, heartbeat: 20})
		for range 3 {
			srv.signal(syscall.SIGSTOP)
			clients[0].pause(4000)
			srv.signal(syscall.SIGCONT)
			barrier("after the stall", clients...)
		}
		leave(clients...)
	})
}

// T-REAL-8: a longer one ends the clients, by their own deadline. The server
// takes up its work again with the next run.
func TestLongStallEndsTheClients(t *testing.T) {
	lab.Clause(t, "T-REAL-8", "A-TOL-3", "A-DIE-3", "C-EPOCH-2", "C-EPOCH-4")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2", "--heartbeat-timeout", "10s")
		clients := join(t, srv.addr, 2, clientConfig{venv: v, heartbeat: 10})
		srv.signal(syscall.SIGSTOP)
		for _, c := range clients {
			c.aborts("DEADLINE_EXCEEDED", "Heartbeat")
		}
		srv.signal(syscall.SIGCONT)
		leave(join(t, srv.addr, 2, clientConfig{venv: v, heartbeat: 10})...)
	})
}

// T-REAL-11: jaxlib 0.8.2 beats no faster than its timeout. With the same
// timeout on the server and the default slack it lives.
func TestSlowHeartbeatsAreNoDeath(t *testing.T) {
	lab.Clause(t, "T-REAL-11", "A-TOL-2a", "C-HB-9")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--tasks", "2", "--heartbeat-timeout", "6s")
	clients := join(t, srv.addr, 2, clientConfig{venv: jax082, heartbeat: 6})
	clients[0].pause(20_000) // three beats
	barrier("alive", clients...)
	leave(clients...)
}

// pause lets time pass by the client's own clock: it waits for a key that
// nobody sets.
func (c *client) pause(milliseconds int) {
	c.t.Helper()
	c.call("blocking_key_value_get", "never", milliseconds).raises("DEADLINE_EXCEEDED: GetKeyValue() timed out")
}
