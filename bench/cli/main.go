// Cli times the commands of serry against the service of a large job: each is started as a process,
// as a person would, and the time until it has ended is taken. One table of medians.
//
// usage: go run ./bench/cli [flags]
//
// The job is simulated: all tasks are registered over a few connections, all but one of them wait
// at a barrier, and each has published a key of the size of a topology.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	sheet.Main("bench", run)
}

// stalled is the exit status of why where a barrier takes longer than usual, as one of this job does.
const stalled = 3

// bar is what every command promises.
const bar = 50 * time.Millisecond

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("cli", flag.ContinueOnError)
	flags.SetOutput(stderr)
	tasks := flags.Int("n", 10_000, "`number` of tasks of the job")
	rounds := flags.Int("rounds", 21, "how often each command is run")
	serry := flags.String("serry", "bin/serry", "`binary` to time")
	if err := sheet.Parse(flags, args); err != nil {
		return err
	}
	if *tasks < 2 || *rounds < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "want -n of 2 or more, -rounds of 1 or more, and no arguments")
		return sheet.ErrUsage
	}
	s, err := proc.Start(ctx, *serry, "serve", "--tasks", fmt.Sprint(*tasks), "--listen", "127.0.0.1:0",
		"--heartbeat-timeout", "1h", "--log-level", "error")
	if err != nil {
		return err
	}
	defer s.Kill()
	address, err := s.Address()
	if err != nil {
		return err
	}
	job, err := play(ctx, address, *tasks)
	if err != nil {
		return err
	}
	defer job.stop()
	fmt.Fprintf(stderr, "bench: %d tasks at %s\n", *tasks, address)
	return measure(ctx, service{*serry, address}, *rounds, stdout)
}

// commands are timed one after the other.
func commands() []string {
	return []string{
		"version", "status", "status -o json", "tasks", "tasks -o wide", "tasks -o json", "tasks -o yaml", "tasks worker/7",
		"barriers", "why", "why -o json", "watch --past", "kv ls", "kv ls -o json", "kv get topology/7", "kv put note text", "context",
	}
}

// A service is a running serry serve, and the binary that is timed against it.
type service struct {
	binary, address string
}

func measure(ctx context.Context, s service, rounds int, stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "command\tmedian ms\tleast\tmost\tcpu ms\toutput KiB\t<= %d ms\t\n", bar.Milliseconds())
	slow := 0
	for _, c := range commands() {
		f, err := s.timed(ctx, strings.Fields(c), rounds)
		if err != nil {
			return fmt.Errorf("serry %s: %w", c, err)
		}
		verdict := "yes"
		if sheet.Median(f.times) > bar {
			verdict, slow = "no", slow+1
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t%d\t%s\t\n", c, sheet.Millis(sheet.Median(f.times)), sheet.Millis(f.times[0]), sheet.Millis(f.times[len(f.times)-1]),
			sheet.Millis(f.cpu/time.Duration(rounds)), f.bytes>>10, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if slow > 0 {
		return fmt.Errorf("%d commands took longer than %v", slow, bar)
	}
	return nil
}

// A figure is how long one command took.
type figure struct {
	times []time.Duration // sorted
	cpu   time.Duration   // of all runs together
	bytes int             // of its output
}

// timed runs a command some times.
func (s service) timed(ctx context.Context, args []string, rounds int) (figure, error) {
	var f figure
	for range rounds {
		cmd := exec.CommandContext(ctx, s.binary, args...)
		cmd.Env = append(os.Environ(), "SERRY_ADDRESS="+s.address)
		began := time.Now()
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != stalled) {
			return f, err
		}
		f.times = append(f.times, time.Since(began))
		f.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		f.bytes = len(out)
	}
	slices.Sort(f.times)
	return f, nil
}
