package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/link"
)

// collectiveCommand is a task of a job whose ranks run collectives: collective-task WHAT. The last rank then begins another operation
// than the others ("other"), or none ("never"). Whatever comes of that, it waits for a signal.
const collectiveCommand = "collective-task"

const collectiveTasks = 3

func collectiveTask() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := joinAndReduce(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func joinAndReduce(ctx context.Context, what string) error {
	cfg, _, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	fmt.Println("at", os.Getenv("SERRY_ADDRESS"))
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	n, err := link.Open(ctx, m, m.KV(), link.Options{})
	if err != nil {
		return err
	}
	defer n.Close(context.WithoutCancel(ctx))
	g, err := collective.New(m, n, collective.Options{})
	if err != nil {
		return err
	}
	defer g.Close(context.WithoutCancel(ctx))
	devices := make([]serry.DeviceID, collectiveTasks)
	for i := range devices {
		devices[i] = serry.DeviceID(i)
	}
	c, err := g.Clique(ctx, devices, collective.CliqueOptions{})
	if err != nil {
		return err
	}
	values := []float32{1, 2}
	for range 3 {
		if err := collective.AllReduceSlice(ctx, c, values, values, collective.Sum); err != nil {
			return err
		}
	}
	// Else a rank could be told of the next operation while it is in this one.
	if err := m.Barrier(ctx, "three operations", serry.BarrierOptions{Timeout: time.Minute}); err != nil {
		return err
	}
	switch last := m.Task().Index == collectiveTasks-1; {
	case last && what == "never":
	case last:
		err = collective.AllReduceSlice(ctx, c, values, values, collective.Max)
	default:
		err = collective.AllReduceSlice(ctx, c, values, values, collective.Sum)
	}
	if err != nil && !errors.Is(err, collective.ErrMismatch) {
		return err
	}
	<-ctx.Done()
	return nil
}
