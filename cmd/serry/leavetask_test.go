package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/launch"
)

// leaveCommand is a task of which one rank leaves while the others wait for it at a barrier, as the ranks of a jax
// job wait in a collective: leave-task RANK [raise] [once]. With raise it prints an exception first, and with
// once it does so in the first attempt only.
const leaveCommand = "leave-task"

func leaveTask() {
	if err := joinAndLeave(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func joinAndLeave(rank string, how []string) error {
	ctx := context.Background()
	cfg, _, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	again := slices.Contains(how, "once") && os.Getenv(launch.EnvAttempt) != "1"
	if strconv.Itoa(cfg.Task.Index) != rank || again {
		if err := m.Barrier(ctx, "step", serry.BarrierOptions{}); err != nil {
			return err
		}
		return m.Leave(ctx)
	}
	if slices.Contains(how, "raise") {
		fmt.Fprint(os.Stderr, "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nValueError: bad sample 17\n")
	}
	return m.Leave(ctx)
}
