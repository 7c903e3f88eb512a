package interop

import (
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// Nobody has joined before all have come, and nobody has left before all want
// to.
func TestJoinAndLeaveTogether(t *testing.T) {
	lab.Clause(t, "A-CON-7", "C-REG-8", "C-SHUT-3", "IT-01", "IT-03", "IT-07", "PJ-01", "PJ-07", "PJ-11", "T-E2E-1")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 3, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3")
		first := newClient(t, srv.addr, clientConfig{venv: v, task: 0})
		first.begin("connect")
		second := newClient(t, srv.addr, clientConfig{venv: v, task: 1})
		second.begin("connect")
		last := newClient(t, srv.addr, clientConfig{venv: v, task: 2})
		last.pause(300)
		first.quiet()
		second.quiet()
		connect(last)
		first.end().value(nil)
		second.end().value(nil)

		first.begin("shutdown")
		second.begin("shutdown")
		last.pause(300)
		first.quiet()
		second.quiet()
		last.call("shutdown").value(nil)
		first.end().value(nil)
		second.end().value(nil)
		for _, c := range []*client{first, second, last} {
			c.leaves()
		}
	})
}

// An init timeout of 0 is none: the client waits for one that comes late.
func TestZeroInitTimeoutIsNone(t *testing.T) {
	lab.Clause(t, "PJ-04", "T-E2E-4")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--tasks", "2")
	early := newClient(t, srv.addr, clientConfig{venv: jaxNew, task: 0, init: noTimeout})
	early.begin("connect")
	late := newClient(t, srv.addr, clientConfig{venv: jaxNew, task: 1, init: noTimeout})
	late.pause(5000)
	early.quiet()
	connect(late)
	early.end().value(nil)
	leave(early, late)
}

// Who waits for one that does not come is told after the register timeout.
func TestJoinEndsWithoutTheLast(t *testing.T) {
	lab.Clause(t, "C-REG-11", "IT-08", "T-E2E-13")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3", "--register-timeout", "2s")
		clients := make([]*client, 2)
		for i := range clients {
			clients[i] = newClient(t, srv.addr, clientConfig{venv: v, task: i})
			clients[i].begin("connect")
		}
		for _, c := range clients {
			c.aborts("DEADLINE_EXCEEDED", "Barrier timed out")
		}
	})
}

// Who waits to leave is told after the shutdown timeout, and so is the one
// that did not want to.
func TestLeaveEndsWithoutTheLast(t *testing.T) {
	lab.Clause(t, "C-SHUT-5", "IT-05", "T-E2E-10")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2", "--shutdown-timeout", "1s")
		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		clients[0].begin("shutdown")
		for _, c := range clients {
			c.aborts("INTERNAL", "Shutdown barrier has failed.", "timed out")
		}
	})
}

// A process that is replaced while it waits for the others is told so. One
// that dies while it waits has not come: the job begins when its successor is
// there.
func TestRestartWhileJoining(t *testing.T) {
	lab.Clause(t, "C-REG-10", "C-REG-15", "IT-10", "PJ-14", "T-E2E-15")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3")
		begin := func(task int) *client {
			c := newClient(t, srv.addr, clientConfig{venv: v, task: task})
			c.begin("connect")
			return c
		}
		waits, replaced, waiting := begin(0), begin(2), begin(2)
		select { // whichever of the two came first
		case <-replaced.ended:
		case <-waiting.ended:
			replaced, waiting = waiting, replaced
		case <-time.After(patience):
		}
		replaced.aborts("ALREADY_EXISTS", "request from a newer incarnation")
		waiting.kill()

		last, again := begin(1), begin(2)
		clients := []*client{waits, last, again}
		for _, c := range clients {
			c.end().value(nil)
		}
		barrier("all", clients...)
		leave(clients...)
	})
}

// A second process with the number of a running one ends the run, since one
// of the two must be wrong. It itself asks again and is the first of the next.
func TestSecondProcessWithTheSameNumber(t *testing.T) {
	lab.Clause(t, "C-REG-14", "C-EPOCH-4", "T-E2E-14")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 3, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		clients := join(t, srv.addr, 2, clientConfig{venv: v})
		double := newClient(t, srv.addr, clientConfig{venv: v, task: 1})
		double.begin("connect")
		for _, c := range clients {
			c.aborts("ABORTED", "different incarnation")
		}
		other := newClient(t, srv.addr, clientConfig{venv: v, task: 0})
		connect(other)
		double.end().value(nil)
		leave(other, double)
	})
}

// A process with a number the job does not have is refused, for good, and
// disturbs nobody.
func TestUnknownTask(t *testing.T) {
	lab.Clause(t, "C-REG-3", "C-CLI-1")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 1, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "1")
		stranger := newClient(t, srv.addr, clientConfig{venv: v, task: 7})
		stranger.begin("connect")
		stranger.aborts("INVALID_ARGUMENT", "Unexpected task registered")
		leave(join(t, srv.addr, 1, clientConfig{venv: v})...)
	})
}

// jaxlib gives clients of one process one connection. Each is a task of its
// own, and when the process is killed all of them are named.
func TestTasksShareAConnection(t *testing.T) {
	lab.Clause(t, "C-LOST-1", "C-LOST-4", "C-INC-6")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "3")
		run := func() (two *process, one *client) {
			two = start(t, "tasks 0 and 1", environment(), v.python(t), "testdata/many.py", srv.addr, "0", "1")
			one = newClient(t, srv.addr, clientConfig{venv: v, task: 2})
			connect(one)
			barrier("all", one)
			two.expect("joined")
			return two, one
		}
		two, one := run()
		two.stdin.Close()
		leave(one)
		two.leaves()

		two, one = run()
		two.kill()
		names := map[venv][]string{jaxNew: {"task 0: ", "task 1: "}, jax092: {"task:0: ", "task:1: "}}
		one.aborts(append(names[v], "UNAVAILABLE")...)
	})
}
