package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/pause"
)

// What it costs a launcher to look at its ranks once a second (D-EV-5, TD-EV-3).
const (
	sampledRanks = 8
	mostPercent  = 0.5              // of a processor, for all ranks together
	samplingWarm = 15 * time.Second // until all ranks sleep, and have been named
)

// idle is a rank with a stack of some depth that does nothing.
const idle = `import time
def sleep(n):
    if n > 0:
        sleep(n - 1)
    time.sleep(3600)
print('asleep', flush=True)
sleep(20)
`

// sampling starts serry run with ranks that sleep, with and without looking at them, and prints what the launcher used of a
// processor. It is an error if that is too much.
func (o options) sampling(ctx context.Context, dir string, stdout io.Writer) error {
	script := filepath.Join(dir, "idle.py")
	if err := os.WriteFile(script, []byte(idle), 0o600); err != nil {
		return err
	}
	with, err := o.launcherUse(ctx, script)
	if err != nil {
		return err
	}
	without, err := o.launcherUse(ctx, script, "--no-stacks")
	if err != nil {
		return err
	}
	used := 100 * (with - without)
	fmt.Fprintf(stdout, "\nsampling of %d idle ranks for %v: %.2f %% of a processor (launcher %.2f %%, with --no-stacks %.2f %%); at most %.1f %%: %s\n",
		sampledRanks, o.sampled, used, 100*with, 100*without, mostPercent, sheet.Kept(used <= mostPercent))
	if used > mostPercent {
		return fmt.Errorf("sampling costs %.2f %% of a processor; at most %.1f %% is wanted", used, mostPercent)
	}
	return nil
}

// launcherUse is the share of a processor that a launcher uses while its ranks sleep.
func (o options) launcherUse(ctx context.Context, script string, flags ...string) (float64, error) {
	args := append(append([]string{o.binary, "run", "-n", fmt.Sprint(sampledRanks)}, flags...), "--", o.pythons[0], script)
	p, err := proc.Start(ctx, args...)
	if err != nil {
		return 0, err
	}
	defer p.Kill()
	if !strings.Contains(p.Line, "asleep") {
		return 0, fmt.Errorf("%s run said %q; want a rank that sleeps", o.binary, p.Line)
	}
	if err := pause.For(ctx, samplingWarm); err != nil {
		return 0, err
	}
	before, err := proc.CPUTime(p.PID)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause.For(ctx, o.sampled); err != nil {
		return 0, err
	}
	after, err := proc.CPUTime(p.PID)
	return (after - before).Seconds() / time.Since(began).Seconds(), err
}
