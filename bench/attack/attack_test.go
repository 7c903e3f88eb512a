package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
)

// Strangers do all that they can to a real server for a few seconds. The tasks of its job go on, it takes no more
// memory than the bar allows, and it logs little.
func TestStrangersBesideAJob(t *testing.T) {
	lab.Clause(t, "SECT-20", "SEC-100", "SEC-102", "SEC-103")
	if testing.Short() {
		t.Skip("it builds serry, and takes seconds")
	}
	if err := proc.RaiseFiles(files); err != nil {
		t.Fatal(err) // fewer files would be fewer strangers
	}
	binary, err := proc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := proc.Start(t.Context(), binary, "serve", "--tasks", fmt.Sprint(processes), "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Kill()
	addr, err := server.Address()
	if err != nil {
		t.Fatal(err)
	}
	all, err := rows()
	if err != nil {
		t.Fatal(err)
	}
	clients := make([]*client.Member, processes)
	err = eachTask(func(i int) (err error) {
		clients[i], err = client.Join(t.Context(), client.Config{Address: addr, Task: serry.TaskID{Index: i}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var strangers sync.WaitGroup
	strangers.Go(func() { attack(ctx, addr, all) })
	steps := 0
	for ; ctx.Err() == nil; steps++ {
		step := fmt.Sprint("step ", steps)
		err := eachTask(func(i int) error { return clients[i].Barrier(t.Context(), step, serry.BarrierOptions{}) })
		if err != nil {
			t.Fatalf("step %d: %v; log:\n%s", steps, err, server.Log.String())
		}
	}
	strangers.Wait()
	if err := eachTask(func(i int) error { return clients[i].Leave(t.Context()) }); err != nil {
		t.Errorf("Leave() = %v", err)
	}
	_, peak, err := proc.Memory(server.PID)
	if err != nil {
		t.Fatalf("the server has ended: %v; log:\n%s", err, server.Log.String())
	}
	if peak > maxPeak || server.Log.Total() > maxLog || steps == 0 {
		t.Errorf("%d steps, %d bytes of memory, %d bytes of log; want some, %d and %d at most", steps, peak, server.Log.Total(), maxPeak, maxLog)
	}
}

// eachTask does something for all tasks at once.
func eachTask(do func(i int) error) error {
	errs := make([]error, processes)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// The table says which bar is missed, and that the program failed.
func TestShow(t *testing.T) {
	alone := measure{steps: []float64{1, 2, 3}, peak: 10 << 20}
	for _, tt := range []struct {
		name   string
		beside measure
		misses int
	}{
		{"all kept", measure{steps: []float64{6}, peak: maxPeak, log: maxLog}, 0},
		{"too slow", measure{steps: []float64{6.1}}, 1},
		{"large, with much to say", measure{steps: []float64{1}, peak: maxPeak + 1, log: maxLog + 1}, 2},
		{"the job failed", measure{err: io.ErrUnexpectedEOF}, 2},
	} {
		var out strings.Builder
		err := show(&out, alone, tt.beside)
		if n := strings.Count(out.String(), "MISS"); n != tt.misses || (err != nil) != (n > 0) {
			t.Errorf("%s: %d misses, error %v; want %d\n%s", tt.name, n, err, tt.misses, out.String())
		}
	}
}
