// Healthy runs four processes of unmodified jax that train, save checkpoints, compile and wait for data at random, and shows that
// serry raises no alarm meanwhile (D-SC-29).
//
// usage: go run ./bench/healthy [flags]
//
// serry run would end the job if it called a rank stuck. serry why is asked every few seconds, and may call nothing a failure. That
// a rank has stalled for a while is no alarm: it is told, and taken back. The exit code is 0 only if there was no alarm.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

//go:embed healthy.py
var program []byte

func main() { sheet.Main("healthy", run) }

type options struct {
	length, longest, hangAfter time.Duration
	seed                       uint64
	python, binary             string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	fs := flag.NewFlagSet("healthy", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&o.length, "for", time.Hour, "how long the job trains")
	fs.DurationVar(&o.longest, "longest", 40*time.Second, "the longest time that a rank waits for data")
	fs.DurationVar(&o.hangAfter, "hang-after", 0, "`time` after which ranks that keep the others waiting are stuck (default: as serry run has it)")
	fs.Uint64Var(&o.seed, "seed", 1, "`number` that says what happens when")
	fs.StringVar(&o.python, "jax", ".cache/venv/jax-new/bin/python", "`interpreter` with jax")
	fs.StringVar(&o.binary, "serry", "", "`binary` to run (default: build it)")
	if err := sheet.Parse(fs, args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serry-healthy")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.binary == "" {
		if o.binary, err = proc.Build(ctx, dir); err != nil {
			return err
		}
	}
	for _, path := range []*string{&o.binary, &o.python} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "healthy.py"), program, 0o600); err != nil {
		return err
	}
	return o.train(ctx, dir, stdout)
}

// A tally is what was said during the job.
type tally struct {
	steps   string
	stalls  int      // that serry run told of
	ended   int      // and took back
	asked   int      // how often serry why was asked
	alarms  []string // lines that call a healthy job stuck or failed
	address string
}

// train runs the job to its end.
func (o options) train(ctx context.Context, dir string, stdout io.Writer) error {
	args := []string{"run", "-n", "4", "--on-hang", "abort"}
	if o.hangAfter > 0 {
		args = append(args, "--hang-after", o.hangAfter.String())
	}
	args = append(args, "--", o.python, "healthy.py", fmt.Sprint(o.seed), fmt.Sprint(o.length.Seconds()), fmt.Sprint(o.longest.Seconds()))
	cmd := exec.CommandContext(ctx, o.binary, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(output); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	t := o.listen(ctx, lines)
	err = cmd.Wait()
	fmt.Fprintf(stdout, "trained for %v, %s steps: %d stalls told, %d taken back; serry why asked %d times; alarms %d: %s\n",
		o.length, t.steps, t.stalls, t.ended, t.asked, len(t.alarms), sheet.Kept(len(t.alarms) == 0 && err == nil))
	if err != nil {
		return fmt.Errorf("the job ended: %w", err)
	}
	if len(t.alarms) > 0 {
		return errors.New(t.alarms[0])
	}
	return nil
}

var (
	service = regexp.MustCompile(`service on (\S+)`)
	alarm   = regexp.MustCompile(`^serry: (warning|error)|is stuck since`)
)

const askEvery = 5 * time.Second

// listen reads what serry run says until it ends, and asks serry why.
func (o options) listen(ctx context.Context, lines <-chan string) tally {
	t := tally{steps: "no"}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return t
			}
			t.hear(line)
		case <-tick.C:
			o.ask(ctx, &t)
		}
	}
}

func (t *tally) hear(line string) {
	if m := service.FindStringSubmatch(line); m != nil {
		t.address = m[1]
	}
	if _, steps, ok := strings.Cut(line, "STEPS "); ok {
		t.steps = steps
	}
	switch {
	case alarm.MatchString(line):
		t.alarms = append(t.alarms, line)
	case strings.Contains(line, " stalled since "):
		t.stalls++
	case strings.Contains(line, " went on after "):
		t.ended++
	}
}

// ask asks serry why. Its status is 1 where it sees a failure; a job that has just ended has no service, and no answer.
func (o options) ask(ctx context.Context, t *tally) {
	cmd := exec.CommandContext(ctx, o.binary, "why", "-o", "wide", "--address", t.address)
	out, err := cmd.Output()
	t.asked++
	if first, _, _ := strings.Cut(string(out), "\n"); err != nil && cmd.ProcessState.ExitCode() == 1 && first != "" {
		t.alarms = append(t.alarms, "serry why: "+first)
	}
}
