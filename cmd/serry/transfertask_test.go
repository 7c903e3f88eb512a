package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// transferCommand is a task of a job of two. The first one sends a value that the second never receives, and the second
// one wants a value that the first never sends. Then it waits for a signal.
const transferCommand = "transfer-task"

func transferTask() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := joinAndTransfer(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func joinAndTransfer(ctx context.Context) error {
	cfg, _, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	n, err := link.Open(ctx, m, m.KV(), link.Options{})
	if err != nil {
		return err
	}
	e, err := transfer.New(ctx, m, n, transfer.Options{})
	if err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
	defer cancel()
	defer n.Close(brief)
	defer e.Close(ctx)
	op := transfer.Op{Key: transfer.Key{Seq: 7}, Src: 0, Dst: 1, Spec: transfer.Spec{Type: memory.U8, Dims: []int64{3}}}
	if m.Task().Index == 0 {
		if op.Buffer, err = e.Pool().Buffer(op.Spec, transfer.Memory{Region: memory.Of([]byte("abc")), Device: serry.DeviceID(0)}); err != nil {
			return err
		}
		if err := op.Buffer.Define(e.Pool().Ready()); err != nil {
			return err
		}
	} else {
		op.Key.Seq = 8
	}
	if _, err := e.Transfer(ctx, []transfer.Op{op}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
