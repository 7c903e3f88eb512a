package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// T-TF-1: two TensorFlow workers attach to a service that is none of them, and
// use every call their context has.
func TestTensorFlowWorkers(t *testing.T) {
	lab.Clause(t, "T-TF-1", "A-TF-1", "A-TF-3", "A-TF-4", "C-VER-1")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--jobs", "worker=2")
	w := startTensorFlow(t, "testdata/tf_worker.py", srv.addr, 2)
	w.expect("joined")
	w[0].tell("get greeting")
	w[1].tell("set greeting hello")
	w[1].expect("ok")
	w[0].expect("hello")
	w[0].tell("set greeting again")
	if got := w[0].line(); !strings.HasPrefix(got, "AlreadyExistsError") {
		t.Errorf("second set = %q; want AlreadyExistsError", got)
	}
	w[0].tell("delete greeting")
	w[0].expect("ok")
	w[0].tell("set greeting again")
	w[0].expect("ok")
	for _, id := range []string{"first", "second", "first"} {
		w.all("barrier "+id, "ok")
	}
	w.all("states", "[0, 0]")
	w.all("reduce", "3")
	w.leaves()
}

// T-TF-2: a strategy of TensorFlow's own takes a step.
func TestTensorFlowStrategy(t *testing.T) {
	lab.Clause(t, "T-TF-2", "A-TF-2")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--jobs", "worker=2")
	w := startTensorFlow(t, "testdata/tf_strategy.py", srv.addr, 2)
	w.expect("weight 4")
	w.leaves()
}

// T-TF-3: one worker is killed; the other, waiting for it in an all-reduce,
// gets an UnavailableError within a second.
func TestTensorFlowWorkerKilled(t *testing.T) {
	lab.Clause(t, "T-TF-3", "A-TF-6", "C-LOST-4")
	skipShort(t)
	beside(t, 2)
	srv := serve(t, "--jobs", "worker=2")
	w := startTensorFlow(t, "testdata/tf_worker.py", srv.addr, 2)
	w.expect("joined")
	w.all("reduce", "3")
	w[0].tell("reduce")
	killed := time.Now()
	w[1].kill()
	got := w[0].line()
	within(t, "the other gets its error", time.Since(killed))
	if !contains(got, "UnavailableError", "/job:worker/replica:0/task:1") {
		t.Errorf("reduce after the loss of worker/1 = %q; want UnavailableError that names it", got)
	}
}

// startTensorFlow starts a program in n workers. Their addresses have to be
// known before they listen.
func startTensorFlow(t *testing.T, script, coordinator string, n int) group {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = unusedAddress(t)
	}
	workers := make(group, n)
	for i := range workers {
		workers[i] = start(t, fmt.Sprintf("worker %d", i), environment(),
			tensorflow.python(t), script, coordinator, strings.Join(addrs, ","), fmt.Sprint(i))
	}
	return workers
}
