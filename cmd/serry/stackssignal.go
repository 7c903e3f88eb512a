package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/wire"
)

// readBySignal asks ranks of this host for their stacks by a signal (D-ST-8, 9), one after the other, and says so before: it can wake
// a rank out of the very call that it hangs in.
func (c *stacksCommand) readBySignal(ctx context.Context, s wire.Status, ranks []rankHere) []rankReading {
	readings := make([]rankReading, len(ranks))
	for i, r := range ranks {
		number := signalOf(r.pids)
		fmt.Fprintf(c.errors, "serry: %s is asked by signal %d: a call that it waits in may return early\n", diagnose.RankText(s, r.task), number)
		stacks, err := pystack.FirstDump(ctx, r.pids, number)
		readings[i] = rankReading{Task: r.task, Stacks: stacks, err: err}
		if err != nil {
			readings[i].Error = err.Error()
		}
	}
	return readings
}

// signalOf is the signal that the processes of a rank were prepared for.
func signalOf(pids []int) int {
	for _, pid := range pids {
		variables, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue
		}
		for v := range strings.SplitSeq(string(variables), "\x00") {
			if text, ok := strings.CutPrefix(v, pystack.EnvSignal+"="); ok {
				if n, err := strconv.Atoi(text); err == nil {
					return n
				}
			}
		}
	}
	return pystack.DumpSignal
}
