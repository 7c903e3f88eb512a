package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
)

// beClient is our side of the comparison: it joins, says so, and makes the calls that each line of in
// asks for: which call, how many callers, for how many seconds.
func beClient(ctx context.Context, dialect string, args []string, in io.Reader, out io.Writer, profile string) error {
	if len(args) != 2 {
		return fmt.Errorf("want an address and a task, have %q", args)
	}
	task, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	cfg := client.Config{
		Address: args[0], Task: serry.TaskID{Job: "worker", Index: task},
		Dialect: map[string]client.Dialect{"serry": client.Serry, "xla": client.XLA}[dialect], HeartbeatTimeout: time.Hour,
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Fprintln(out, "ready")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var call string
		var crowd int
		var seconds float64
		if _, err := fmt.Sscanf(lines.Text(), "%s %d %g", &call, &crowd, &seconds); err != nil {
			return err
		}
		n, took, err := callAll(ctx, m.KV(), call, crowd, time.Duration(seconds*float64(time.Second)))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, n, took.Seconds())
	}
	return lines.Err()
}

// callAll lets callers call until the time is over. Each makes its next call when the last is answered.
func callAll(ctx context.Context, kv *client.KV, call string, crowd int, turn time.Duration) (n int64, took time.Duration, err error) {
	value := make([]byte, 64)
	var total atomic.Int64
	var failed atomic.Pointer[error]
	var callers sync.WaitGroup
	start := time.Now()
	for i := range crowd {
		callers.Go(func() {
			key, counter := fmt.Sprintf("bench/value/%d", i), fmt.Sprintf("bench/count/%d", i)
			for first := true; first || time.Since(start) < turn; first = false {
				var err error
				switch call {
				case "put":
					err = kv.Put(ctx, key, value)
				case "get":
					_, err = kv.Get(ctx, key)
				case "add":
					_, err = kv.Add(ctx, counter, 1)
				}
				if err != nil {
					failed.Store(&err)
					return
				}
				total.Add(1)
			}
		})
	}
	callers.Wait()
	if e := failed.Load(); e != nil {
		err = *e
	}
	return total.Load(), time.Since(start), err
}
