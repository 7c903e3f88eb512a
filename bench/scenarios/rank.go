package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/preempt"
)

// rankCommand runs a rank that is a Go member, in the rows about preemption.
const rankCommand = "rank"

// playPreempt plays a job of Go members, of which one is told to go.
func playPreempt(ctx context.Context, o options, s scenario) (finding, error) {
	self, err := os.Executable()
	if err != nil {
		return finding{}, err
	}
	j := o.newJob()
	if err := j.run(nil, nil, []string{"-n", "4"}, self, rankCommand, s.name); err != nil {
		return finding{}, err
	}
	return j.injected(ctx, s)
}

const (
	stepTime   = 20 * time.Millisecond
	saveTime   = 300 * time.Millisecond
	noticeStep = 30
)

// runRank makes steps. Rank 1 is told to go at one of them; then all ranks agree on a step, and save.
func runRank(ctx context.Context, args []string, stdout, _ io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("%q: want %s and the name of a row", args, rankCommand)
	}
	cfg, _, err := client.ConfigFromEnv()
	if err != nil {
		return err
	}
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	sync, err := preempt.New(m, m.KV(), nil, preempt.Options{Mode: preempt.Rounds})
	if err != nil {
		return err
	}
	defer sync.Close()
	tick := time.NewTicker(stepTime)
	defer tick.Stop()
	for step := int64(1); ; step++ {
		select {
		case <-tick.C:
		case <-m.Context().Done():
			return context.Cause(m.Context())
		}
		if step == noticeStep && m.Task().Index == 1 {
			fmt.Fprintln(stdout, "INJECT")
			if err := sync.Post(ctx, preempt.Notice{Source: "the benchmark"}); err != nil {
				return err
			}
		}
		save, err := sync.Reached(ctx, step)
		if err != nil {
			return err
		}
		if save && (args[1] == "preempt" || m.Task().Index != 3) {
			<-time.After(saveTime)
			if err := sync.Saved(ctx, step); err != nil {
				return err
			}
		}
	}
}
