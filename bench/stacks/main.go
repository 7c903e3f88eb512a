// Stacks measures what it takes to read the Python stacks of a process, and how many of them are right: serry's reader
// beside py-spy.
//
// usage: go run ./bench/stacks [flags]
//
// Each row is a program: threads that sleep at the end of recursions (asleep.py), threads that never sleep and call
// each other at random (busy.py), and a process of jax after a computation (withjax.py). Both readers read the same
// process, in turn. The reader of serry finds the Python in the process anew each time. py-spy is a command, so its time
// has that of starting it; a launcher that uses it pays for that. The last row has a command on both sides.
//
// A reading is right if it has what the program says of itself, or for threads that never sleep, if each function
// calls the one above it in the line that it is at.
//
// The last line is what it costs a launcher to look at ranks that sleep, once a second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() { sheet.Main("bench", run) }

// Bars: how many times faster than py-spy the reader has to be, by medians, and how long all ranks of a host may take
// (D-ST-16).
const (
	bar      = 20
	mostHost = 200 // milliseconds
)

// options are the flags.
type options struct {
	rounds  int
	pyspy   string
	jax     string
	binary  string
	pythons []string
	sampled time.Duration // how long a launcher looks at ranks that sleep
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
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
	rows, err := o.measure(ctx, dir, stderr)
	if err != nil {
		return err
	}
	err = show(stdout, o.rounds, rows)
	if o.sampled > 0 {
		err = errors.Join(err, o.sampling(ctx, dir, stdout))
	}
	return err
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	pythons := ""
	fs := flag.NewFlagSet("stacks", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.rounds, "rounds", 30, "how often each process is read")
	fs.StringVar(&o.pyspy, "py-spy", ".cache/venv/py-spy/bin/py-spy", "`command` to compare with (scripts/venvs.sh py-spy)")
	fs.StringVar(&o.jax, "jax", ".cache/venv/jax-new/bin/python", "`interpreter` with jax; empty: leave the row out")
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	fs.StringVar(&pythons, "pythons", "", "`interpreters` with commas between them (default: those of pyenv, or python3)")
	fs.DurationVar(&o.sampled, "sampled", time.Minute, "how long a launcher looks at ranks that sleep, for what that costs; 0: leave it out")
	if err := sheet.Parse(fs, args); err != nil {
		return o, err
	}
	if o.rounds < 1 || o.sampled < 0 || fs.NArg() > 0 {
		fmt.Fprintln(stderr, "-rounds: want 1 or more; -sampled: 0 or more; and no argument")
		return o, sheet.ErrUsage
	}
	if o.pythons = strings.FieldsFunc(pythons, func(r rune) bool { return r == ',' }); len(o.pythons) == 0 {
		o.pythons = findPythons()
	}
	return o, nil
}

// findPythons lists the interpreters of known versions that pyenv has, or else the one on PATH.
func findPythons() []string {
	root := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); root == "" && err == nil {
		root = filepath.Join(home, ".pyenv")
	}
	found, _ := filepath.Glob(filepath.Join(root, "versions", "3.1[123].*", "bin", "python3")) // the pattern is well formed
	if len(found) == 0 {
		found = []string{"python3"}
	}
	return found
}

// A row is a program that was read by both.
type row struct {
	name        string
	ours, peer  reader
	right       func(reading) bool
	took        [2][]float64 // milliseconds
	rightCounts [2]int
	bar         int     // how many times faster; 0: none
	most        float64 // milliseconds; 0: no limit
}

// measure reads every program, by both readers in turn.
func (o options) measure(ctx context.Context, dir string, stderr io.Writer) ([]*row, error) {
	var rows []*row
	programs, err := o.programs(dir)
	if err != nil {
		return nil, err
	}
	for _, p := range programs {
		fmt.Fprintf(stderr, "\r%-40s", p.name)
		r, err := o.program(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		rows = append(rows, r)
	}
	r, err := o.commands(ctx, dir)
	fmt.Fprintln(stderr)
	return append(rows, r), err
}

// program starts a program and reads it.
func (o options) program(ctx context.Context, p program) (*row, error) {
	child, err := proc.Start(ctx, p.python, p.file)
	if err != nil {
		return nil, err
	}
	defer child.Kill()
	r := &row{name: p.name, ours: readOurs(child.PID), peer: readPySpy(ctx, o.pyspy, child.PID), bar: p.bar}
	if r.right, err = p.judge(child.Line); err != nil {
		return nil, err
	}
	return r, r.measure(o.rounds)
}

// commands reads the ranks of a job by commands.
func (o options) commands(ctx context.Context, dir string) (*row, error) {
	const ranks = 8
	file, err := unpack(dir, "asleep.py")
	if err != nil {
		return nil, err
	}
	job, err := proc.Start(ctx, o.binary, "run", "-n", strconv.Itoa(ranks), "--cluster", "none", "--", o.pythons[0], file)
	if err != nil {
		return nil, err
	}
	defer job.Kill()
	r := &row{name: fmt.Sprintf("%d ranks, as commands", ranks), right: func(s reading) bool { return len(s) == ranks }, most: mostHost}
	r.ours = func() (reading, error) { return o.stacks(ctx) }
	pids, err := r.ours()
	for ; len(pids) < ranks && ctx.Err() == nil && err == nil; pids, err = r.ours() {
		continue // until all of them are Pythons
	}
	if err := errors.Join(err, context.Cause(ctx)); err != nil {
		return nil, err
	}
	r.peer = func() (reading, error) {
		all := make(reading)
		for pid := range pids {
			got, err := readPySpy(ctx, o.pyspy, pid)()
			if err != nil {
				return nil, err
			}
			all[pid] = got[pid]
		}
		return all, nil
	}
	return r, r.measure(o.rounds)
}
