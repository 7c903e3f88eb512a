// Cli times the commands of serry against the service of a large job: each is started as a process,
// as a person would, and the time until it has ended is taken. One table of medians.
//
// usage: go run ./bench/cli [flags]
//
// The job is simulated: all tasks are registered over a few connections, all but one of them wait
// at a barrier, and each has published a key of the size of a topology.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2) // the flag package has said why
	default:
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

// bar is what every command promises.
const bar = 50 * time.Millisecond

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("cli", flag.ContinueOnError)
	flags.SetOutput(stderr)
	tasks := flags.Int("n", 10_000, "`number` of tasks of the job")
	rounds := flags.Int("rounds", 21, "how often each command is run")
	serry := flags.String("serry", "bin/serry", "`binary` to time")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if *tasks < 2 || *rounds < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "want -n of 2 or more, -rounds of 1 or more, and no arguments")
		return errUsage
	}
	s, err := start(ctx, *serry, *tasks)
	if err != nil {
		return err
	}
	defer s.stop()
	job, err := play(ctx, s.address, *tasks)
	if err != nil {
		return err
	}
	defer job.stop()
	fmt.Fprintf(stderr, "bench: %d tasks at %s\n", *tasks, s.address)
	return measure(ctx, s, *rounds, stdout)
}

// commands are timed one after the other.
func commands() []string {
	return []string{
		"version", "status", "status -o json", "tasks", "tasks -o wide", "tasks -o json", "tasks -o yaml", "tasks worker/7",
		"barriers", "why", "why -o json", "watch --past", "kv ls", "kv ls -o json", "kv get topology/7", "kv put note text", "context",
	}
}

func measure(ctx context.Context, s *service, rounds int, stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "command\tmedian ms\tleast\tmost\tcpu ms\toutput KiB\t<= %d ms\t\n", bar.Milliseconds())
	slow := 0
	for _, c := range commands() {
		f, err := s.timed(ctx, strings.Fields(c), rounds)
		if err != nil {
			return fmt.Errorf("serry %s: %w", c, err)
		}
		verdict := "yes"
		if f.median() > bar {
			verdict, slow = "no", slow+1
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t\n", c, millis(f.median()), millis(f.times[0]), millis(f.times[len(f.times)-1]),
			millis(f.cpu/time.Duration(rounds)), f.bytes>>10, verdict)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if slow > 0 {
		return fmt.Errorf("%d commands took longer than %v", slow, bar)
	}
	return nil
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }

// A figure is how long one command took.
type figure struct {
	times []time.Duration // sorted
	cpu   time.Duration   // of all runs together
	bytes int             // of its output
}

func (f figure) median() time.Duration { return f.times[len(f.times)/2] }

// A service is serry serve.
type service struct {
	binary, address string
	cmd             *exec.Cmd
}

func start(ctx context.Context, binary string, tasks int) (*service, error) {
	cmd := exec.CommandContext(ctx, binary, "serve", "--tasks", fmt.Sprint(tasks), "--listen", "127.0.0.1:0",
		"--heartbeat-timeout", "1h", "--log-level", "error")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) == 0 {
		return nil, fmt.Errorf("serry serve said %q: %w", line, err)
	}
	return &service{binary: binary, address: fields[len(fields)-1], cmd: cmd}, nil
}

func (s *service) stop() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	_ = s.cmd.Wait()
}

// timed runs a command some times.
func (s *service) timed(ctx context.Context, args []string, rounds int) (figure, error) {
	var f figure
	for range rounds {
		cmd := exec.CommandContext(ctx, s.binary, args...)
		cmd.Env = append(os.Environ(), "SERRY_ADDRESS="+s.address)
		began := time.Now()
		out, err := cmd.Output()
		if err != nil {
			return f, err
		}
		f.times = append(f.times, time.Since(began))
		f.cpu += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		f.bytes = len(out)
	}
	slices.Sort(f.times)
	return f, nil
}
