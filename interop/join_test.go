package interop

import (
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// A process that dies while it waits for the others has not come: the job
// begins when its successor is there. One that is replaced while it waits is
// told so.
func TestRestartWhileJoining(t *testing.T) {
	lab.Clause(t, "C-REG-10", "C-REG-15", "T-E2E-15")
	eachTransport(t, func(t *testing.T, tr transport) {
		eachVenv(t, both, func(t *testing.T, v venv) {
			srv := serve(t, tr, "--tasks", "2")
			replaced := newClient(t, srv.addr, clientConfig{venv: v, task: 0})
			replaced.begin("connect")
			waiting := newClient(t, srv.addr, clientConfig{venv: v, task: 0})
			waiting.begin("connect")
			select { // whichever came first
			case <-replaced.ended:
			case <-waiting.ended:
				replaced, waiting = waiting, replaced
			case <-time.After(patience):
			}
			replaced.aborts("ALREADY_EXISTS", "request from a newer incarnation")
			waiting.kill()

			other := newClient(t, srv.addr, clientConfig{venv: v, task: 1})
			third := newClient(t, srv.addr, clientConfig{venv: v, task: 0})
			connect(other, third)
			barrier("both", third, other)
			leave(third, other)
		})
	})
}

// A second process with the number of a running one ends the run, since one
// of the two must be wrong. It itself asks again and is the first of the next.
func TestSecondProcessWithTheSameNumber(t *testing.T) {
	lab.Clause(t, "C-REG-14", "C-EPOCH-4", "T-E2E-14")
	eachTransport(t, func(t *testing.T, tr transport) {
		eachVenv(t, both, func(t *testing.T, v venv) {
			srv := serve(t, tr, "--tasks", "2")
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
	})
}

// A process with a number the job does not have is refused, for good, and
// disturbs nobody.
func TestUnknownTask(t *testing.T) {
	lab.Clause(t, "C-REG-3", "C-CLI-1")
	eachTransport(t, func(t *testing.T, tr transport) {
		eachVenv(t, both, func(t *testing.T, v venv) {
			srv := serve(t, tr, "--tasks", "1")
			stranger := newClient(t, srv.addr, clientConfig{venv: v, task: 7})
			stranger.begin("connect")
			stranger.aborts("INVALID_ARGUMENT", "Unexpected task registered")
			leave(join(t, srv.addr, 1, clientConfig{venv: v})...)
		})
	})
}

// jaxlib gives clients of one process one connection. Each is a task of its
// own, and when the process is killed all of them are named.
func TestTasksShareAConnection(t *testing.T) {
	lab.Clause(t, "C-LOST-1", "C-LOST-4", "C-INC-6")
	eachTransport(t, func(t *testing.T, tr transport) {
		eachVenv(t, both, func(t *testing.T, v venv) {
			srv := serve(t, tr, "--tasks", "3")
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
	})
}
