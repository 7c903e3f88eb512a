package interop

import (
	"syscall"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// A process that stands still, as under a debugger or a busy host, is not dead
// while its heartbeats are not overdue.
func TestPausedProcessIsNotDead(t *testing.T) {
	lab.Clause(t, "C-WIRE-5", "C-LOST-4")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--tasks", "2")
	clients := join(t, srv.addr, 2, clientConfig{venv: jaxNew})
	clients[1].signal(syscall.SIGSTOP)
	clients[0].pause(2000) // twenty times the grace after a closed connection
	clients[1].signal(syscall.SIGCONT)
	barrier("both", clients...)
	leave(clients...)
}

// One process waits to leave and the other is killed: the end of the job has
// failed, and the one that waits says so.
func TestKilledWhileOthersLeave(t *testing.T) {
	lab.Clause(t, "C-SHUT-5", "C-SHUT-6", "A-DIE-4", "IT-02", "PJ-06")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		clients[0].begin("shutdown")
		clients[1].kill()
		clients[0].aborts("connection closed")
	})
}

// SIGTERM to a server without a successor: waiting calls get its own word, not
// that of a broken connection, and it exits 0. The clients end when they miss it.
func TestServerIsToldToStop(t *testing.T) {
	lab.Clause(t, "C-STOP-1", "C-STOP-2", "C-POLL-8", "C-BAR-20")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2", "--heartbeat-timeout", "12s")
		clients := join(t, srv.addr, 2, clientConfig{venv: v, heartbeat: 12})
		clients[0].begin("wait_at_barrier", "never whole", 60_000)
		clients[1].pause(1000) // by now the other waits
		srv.signal(syscall.SIGTERM)
		clients[0].end().raises("ABORTED: ")
		srv.leaves()
		for _, c := range clients {
			c.aborts("UNAVAILABLE", "Heartbeat")
		}
	})
}

// After a run that ended well nobody misses the server.
func TestServerStopsAfterTheRun(t *testing.T) {
	lab.Clause(t, "C-STOP-3")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		for _, c := range clients {
			c.begin("shutdown")
		}
		for _, c := range clients {
			c.end().value(nil)
		}
		srv.signal(syscall.SIGTERM)
		srv.leaves()
		for _, c := range clients {
			c.leaves()
		}
	})
}
