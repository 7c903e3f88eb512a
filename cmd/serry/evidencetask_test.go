package main

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
)

// evidenceCommand is a task of a job in which rank 1 makes one piece of evidence: evidence-task WHAT. The others wait for it.
const evidenceCommand = "evidence-task"

func evidenceTask() {
	if err := makeEvidence(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func makeEvidence(what string) error {
	ctx := context.Background()
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
	if cfg.Task.Index == 0 && what == "key" {
		_, err := m.KV().Wait(ctx, "data/1")
		return err
	}
	if cfg.Task.Index == 0 {
		return m.Barrier(ctx, "save-100", serry.BarrierOptions{})
	}
	own, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	switch what {
	case "kill":
		err = own.Signal(syscall.SIGKILL)
	case "raise":
		fmt.Fprint(os.Stderr, "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nValueError: bad sample 17\n")
		return m.Leave(ctx)
	case "leave":
		return m.Leave(ctx)
	case "step":
		err = os.WriteFile(os.Getenv("SERRY_STEP_FILE"), []byte("812"), 0o600)
	}
	if err != nil {
		return err
	}
	<-m.Context().Done()
	return context.Cause(m.Context())
}
