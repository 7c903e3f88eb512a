// Scenarios lets things go wrong in jobs of four processes of unmodified jax, and measures how long serry takes to say
// what is wrong, and whether it is right.
//
// usage: go run ./bench/scenarios [flags] [name]...
//
// Each row is a job of its own under serry run. A rank, the last one as a rule, does what the row says at step 30 or at the start
// (train.py), and prints the time. From then on serry why is asked again and again; the time counts to the first line that is right, of
// serry why or of serry run itself. A row is missed if there is none in time.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

//go:embed train.py
var program []byte

func main() { sheet.Main("bench", run) }

// A scenario is what happens, and what is right to say about it.
type scenario struct {
	name, clause, right string
	most                time.Duration // until it is said
	serve               bool          // it happens to a service that is started by hand, without a job
}

// Bars: what ends a process is known at once, what keeps it from going on takes time to tell from work.
const (
	atOnce = time.Second
	soon   = 12 * time.Second
)

var scenarios = []scenario{
	{name: "segv", clause: "D-SC-1", right: `rank 3 (ended|died).*signal 11`, most: atOnce},
	{name: "kill", clause: "D-SC-2", right: `rank 3 (ended|died).*signal 9`, most: atOnce},
	{name: "raise", clause: "D-SC-4", right: `rank 3 raised ValueError: bad sample 17 in shard 3`, most: atOnce},
	{name: "exit", clause: "D-SC-5", right: `rank 3 wants to leave.* while ranks 0-2 wait|rank 3 wants to leave; ranks 0, 1 and 2 do not`, most: soon},
	{name: "hard-exit", clause: "D-SC-6", right: `rank 3 exited at \S+ with code 0`, most: soon},
	{name: "sleep", clause: "D-SC-7", right: `rank 3 is (stalled|stuck) since \S+ \(\S+\); ranks 0-2 wait for it`, most: soon},
	{name: "barrier", clause: "D-SC-8", right: `rank 3 is (stalled|stuck)( since \S+ \(\S+\))?[;:] (ranks 0-2|3 ranks) wait for it at barrier "save-100"`, most: soon},
	{name: "crossed", clause: "D-SC-9", right: `deadlock since \S+: ranks 0-1 wait at barrier "a", ranks 2-3 at barrier "b"|ranks wait for each other: rank 2 is at "b" and missing at "a"`, most: soon},
	{name: "write", clause: "D-SC-11", right: `rank 3 is slow, not stuck: .*; ranks 0-2 wait`, most: soon},
	{name: "stop", clause: "D-SC-15", right: `rank 3 is stopped since \S+ \(SIGSTOP\); ranks 0-2 wait for it`, most: soon},
	{name: "gil", clause: "D-SC-16", right: `rank 3 is (stalled|stuck) since \S+ \(\S+\); ranks 0-2 wait for it`, most: soon},
	{name: "loop", clause: "D-SC-17", right: `rank 3 has been busy in loop \(train.py:\d+\)`, most: soon},
	{name: "compile", clause: "D-SC-18", right: `no failure; ranks 0-2 wait while rank 3 compiles`, most: soon},
	{name: "program", clause: "D-SC-19", right: `rank 3 runs a different program: eval.py, ranks 0-2 run train.py`, most: soon},
	{name: "world", clause: "D-SC-20", right: `rank 3 expects 5 ranks \(OMPI_COMM_WORLD_SIZE\), the job has 4`, most: soon},
	{name: "two-ids", clause: "D-SC-21", right: `rank 2: two processes claim this rank`, most: soon},
	{name: "port", clause: "D-SC-23", right: `port \d+ is taken by `, most: atOnce, serve: true},
	{name: "disk-full", clause: "D-SC-24", right: `rank 3 raised OSError: \[Errno 28\] No space left on device`, most: atOnce},
	{name: "slow-start", clause: "D-SC-27", right: `starting: 3 of 4 ranks are here after \S+, missing rank 3|rank 3 is stalled since \S+ \(\S+\); ranks 0-2 wait for it at the start of the job`, most: soon},
	{name: "no-device", clause: "D-SC-28", right: `rank 1 is (stalled|stuck) since \S+ \(\S+\); ranks 0,2-3 wait for it`, most: soon},
}

type options struct {
	jax, binary string
	names       []string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	fs := flag.NewFlagSet("scenarios", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.jax, "jax", ".cache/venv/jax-new/bin/python", "`interpreter` with jax")
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	if err := sheet.Parse(fs, args); err != nil {
		return err
	}
	o.names = fs.Args()
	dir, err := os.MkdirTemp("", "serry-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		if o.binary, err = proc.Build(ctx, dir); err != nil {
			return err
		}
	}
	for _, path := range []*string{&o.binary, &o.jax} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	for _, name := range []string{"train.py", "eval.py"} { // rank 3 runs the second where the row says so
		if err := os.WriteFile(filepath.Join(dir, name), program, 0o600); err != nil {
			return err
		}
	}
	return o.all(ctx, dir, stdout, stderr)
}

// all plays the scenarios and prints the table.
func (o options) all(ctx context.Context, dir string, stdout, stderr io.Writer) error {
	t := sheet.Table(stdout)
	fmt.Fprintln(t, "scenario\tclause\tseconds\tat most\tkept\tline")
	var took []float64
	missed := 0
	for _, s := range scenarios {
		if len(o.names) > 0 && !slices.Contains(o.names, s.name) {
			continue
		}
		fmt.Fprintf(stderr, "\r%-20s", s.name)
		play := o.play
		if s.serve {
			play = o.playService
		}
		after, line, err := play(ctx, dir, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if line == "" {
			missed++
			fmt.Fprintf(t, "%s\t%s\t-\t%.0f\tmissed\t\n", s.name, s.clause, s.most.Seconds())
			continue
		}
		took = append(took, after.Seconds())
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%.0f\t%s\t%s\n", s.name, s.clause, after.Seconds(), s.most.Seconds(), sheet.Kept(after <= s.most), line)
	}
	fmt.Fprintf(stderr, "\r%-20s\r", "")
	if err := t.Flush(); err != nil {
		return err
	}
	if len(took) > 0 {
		fmt.Fprintf(stdout, "\nfound %d of %d; seconds: median %.1f, worst %.1f\n", len(took), len(took)+missed, sheet.Median(took), slices.Max(took))
	}
	return nil
}

const (
	startPatience = 3 * time.Minute // for a job to come to the step
	sayPatience   = 30 * time.Second
	askEvery      = 200 * time.Millisecond
)

// playService starts a service on a port that this process has, and returns when and how it says so.
func (o options) playService(ctx context.Context, dir string, s scenario) (time.Duration, string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, "", err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, sayPatience)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, o.binary, "serve", "--tasks", "4", "--listen", l.Addr().String())
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // its status says what it says
	for line := range strings.Lines(string(out)) {
		if regexp.MustCompile(s.right).MatchString(line) {
			return time.Since(began), strings.TrimSpace(strings.TrimPrefix(line, "serry: ")), nil
		}
	}
	return 0, "", nil
}

// play plays one scenario, and returns when and how it was named; an empty line: it was not.
func (o options) play(ctx context.Context, dir string, s scenario) (time.Duration, string, error) {
	ctx, cancel := context.WithTimeout(ctx, startPatience+sayPatience)
	defer cancel()
	args := []string{"run", "-n", "4", "--"}
	switch s.name {
	case "program":
		args = append(args, "sh", "-c", `[ $SERRY_TASK = 3 ] && echo INJECT && exec $0 eval.py $1; exec $0 train.py $1`)
	case "world":
		args = append(args, "sh", "-c", `[ $SERRY_TASK = 3 ] && echo INJECT && export OMPI_COMM_WORLD_SIZE=5; exec $0 train.py $1`)
	}
	if len(args) == 4 {
		args = append(args, o.jax, "train.py", s.name)
	} else {
		args = append(args, o.jax, s.name)
	}
	cmd := exec.CommandContext(ctx, o.binary, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	output, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return 0, "", err
	}
	lines := make(chan string, 1<<16)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(output); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	after, line, err := o.watch(ctx, s, lines)
	cancel() // and a second signal, which ends it at once
	_ = cmd.Process.Signal(os.Interrupt)
	for range lines {
	}
	_ = cmd.Wait() // however it ended
	return after, line, err
}

var service = regexp.MustCompile(`service on (\S+)`)

// watch waits for the moment, and then for a line that is right.
func (o options) watch(ctx context.Context, s scenario, lines <-chan string) (time.Duration, string, error) {
	right := regexp.MustCompile(s.right)
	address := ""
	var injected time.Time
	for injected.IsZero() {
		line, ok := <-lines
		if !ok {
			return 0, "", errors.New("the job ended before the step")
		}
		if m := service.FindStringSubmatch(line); m != nil {
			address = m[1]
		}
		if strings.Contains(line, "INJECT") {
			injected = time.Now()
		}
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for time.Since(injected) < sayPatience {
		select {
		case line, ok := <-lines:
			if ok && right.MatchString(line) {
				return time.Since(injected), strings.TrimPrefix(line, "serry: "), nil
			}
			if !ok {
				return 0, "", nil
			}
		case <-tick.C:
			out, _ := exec.CommandContext(ctx, o.binary, "why", "-o", "wide", "--address", address).Output() // its status says what it says
			first, _, _ := strings.Cut(string(out), "\n")
			if right.MatchString(first) {
				return time.Since(injected), first, nil
			}
		case <-ctx.Done():
			return 0, "", ctx.Err()
		}
	}
	return 0, "", nil
}
