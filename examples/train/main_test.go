package main

import (
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

// Three workers train to the end, and have the same model; make demo kills one of four.
func TestTrain(t *testing.T) {
	for _, dialect := range []client.Dialect{client.Serry, client.XLA} {
		for _, atomic := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/atomic=%v", dialect, atomic), func(t *testing.T) { trainAll(t, dialect, atomic) })
		}
	}
}

func trainAll(t *testing.T, dialect client.Dialect, atomic bool) {
	const tasks = 3
	s, err := server.New(server.Config{Cluster: coord.Config{
		Jobs:            []coord.Job{{Name: "worker", Tasks: tasks}},
		RegisterBarrier: true, RegisterTimeout: time.Minute, Recoverable: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var service, job errgroup.Group
	service.Go(func() error { return s.Serve(listener) })
	workers := make([]worker, tasks)
	for i := range workers {
		workers[i] = worker{tasks: tasks, steps: 25, pace: time.Millisecond, atomic: atomic}
		job.Go(func() error {
			return workers[i].run(t.Context(), client.Config{Address: listener.Addr().String(), Dialect: dialect, Task: serry.TaskID{Index: i}})
		})
	}
	if err := job.Wait(); err != nil {
		t.Errorf("run() = %v", err)
	}
	for i, w := range workers {
		if w.step != 25 || w.model != workers[0].model {
			t.Errorf("worker %d made %d steps; want 25, and the model of worker 0", i, w.step)
		}
	}
	s.Close()
	if err := service.Wait(); err != nil {
		t.Error(err)
	}
}
