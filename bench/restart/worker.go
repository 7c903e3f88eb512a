package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
)

// socketVariable is where a task finds us.
const socketVariable = "SERRY_BENCH_SOCKET"

// work is what a task does: it goes to barriers as it is told, until it is killed.
func work() int {
	if err := goToBarriers(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "task: error:", err)
		return 1
	}
	return 0
}

func goToBarriers(ctx context.Context) error {
	pass := func(string) error { return nil } // under torchrun, where the benchmark itself waits for all tasks
	if os.Getenv("SERRY_ADDRESS") != "" {
		cfg, _, err := client.ConfigFromEnv()
		if err != nil {
			return err
		}
		m, err := client.Join(ctx, cfg)
		if err != nil {
			return err
		}
		defer m.Close()
		pass = func(id string) error { return m.Barrier(ctx, id, serry.BarrierOptions{}) }
	}
	c, err := net.Dial("unix", os.Getenv(socketVariable))
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintln(c, os.Getpid())
	for lines := bufio.NewScanner(c); lines.Scan(); {
		id, ok := strings.CutPrefix(lines.Text(), "barrier ")
		if !ok {
			return fmt.Errorf("told %q; want a barrier", lines.Text())
		}
		if err := pass(id); err != nil {
			return err
		}
		fmt.Fprintln(c, "passed")
	}
	return nil
}
