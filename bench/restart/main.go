// Restart measures how long a job is out of order when one of its tasks is killed: from SIGKILL until
// all tasks, the new one among them, have passed a barrier together. serry run is compared with
// torchrun.
//
// usage: go run ./bench/restart [flags]
//
// The tasks do nothing but wait. Under serry run they are this program; they join its coordination
// service and meet in a barrier there. torchrun is measured twice: with tasks as it is made for, which
// import torch and meet in its store (task.py), and with this program again, which then meets in the
// process of the benchmark at no cost, so that only the launcher is left. torchrun always starts all
// tasks again; serry run is measured doing that, and doing what it can do besides: starting the one
// that was killed.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	if os.Getenv(socketVariable) != "" {
		os.Exit(work())
	}
	sheet.Main("bench", run)
}

// bar is how many times faster than torchrun serry run has to be, by medians.
const bar = 10

// options are the flags.
type options struct {
	tasks, rounds int
	torch         string
	peers         string
	binary        string
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
	jobs, err := o.start(ctx, dir, stderr)
	defer func() {
		for _, j := range jobs {
			j.end()
		}
	}()
	if err != nil {
		return err
	}
	// In turn, so that whatever changes on the machine meanwhile changes for all.
	for round := range o.rounds {
		fmt.Fprintf(stderr, "\rround %d of %d", round+1, o.rounds)
		for _, j := range jobs {
			took, err := j.round(ctx)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", j.name, round+1, err)
			}
			j.took = append(j.took, took)
		}
	}
	fmt.Fprintln(stderr)
	return show(stdout, o, jobs)
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("restart", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.tasks, "n", 16, "number of tasks")
	fs.IntVar(&o.rounds, "rounds", 50, "how often a task is killed")
	fs.StringVar(&o.torch, "torch", ".cache/venv/torch", "`environment` with the torchrun to compare with (scripts/venvs.sh torch)")
	fs.StringVar(&o.peers, "peers", "all", "`which` of torchrun to compare with: all, bare (with tasks in Go), none")
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	if err := sheet.Parse(fs, args); err != nil {
		return o, err
	}
	if o.tasks < 1 || o.rounds < 1 || fs.NArg() > 0 || !slices.Contains([]string{"all", "bare", "none"}, o.peers) {
		fmt.Fprintln(stderr, "-n and -rounds: want 1 or more; -peers: all, bare or none; and no argument")
		return o, sheet.ErrUsage
	}
	return o, nil
}

// start starts one job under each launcher.
func (o options) start(ctx context.Context, dir string, stderr io.Writer) ([]*job, error) {
	if o.binary == "" {
		var err error
		if o.binary, err = proc.Build(ctx, dir); err != nil {
			return nil, err
		}
	}
	worker, err := os.Executable()
	if err != nil {
		return nil, err
	}
	n, rounds := strconv.Itoa(o.tasks), strconv.Itoa(o.rounds)
	var jobs []*job
	for _, policy := range []string{"failed", "all"} {
		j, err := startJob(ctx, dir, "serry run --restart "+policy, o.tasks, policy == "failed", nil,
			o.binary, "run", "-n", n, "--cluster", "none", "--restart", policy, "--max-restarts", rounds, "--shutdown-timeout", "0", "--", worker)
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, j)
	}
	return o.startPeers(ctx, dir, worker, jobs)
}

// What the peers are called.
const (
	bareTorchrun   = "torchrun, tasks in Go"
	pythonTorchrun = "torchrun"
)

//go:embed task.py
var pythonTask []byte

// startPeers adds the jobs of torchrun.
func (o options) startPeers(ctx context.Context, dir, worker string, jobs []*job) ([]*job, error) {
	if o.peers == "none" {
		return jobs, nil
	}
	venv, err := filepath.Abs(o.torch)
	if err != nil {
		return jobs, err
	}
	if _, err := os.Stat(filepath.Join(venv, "bin/torchrun")); err != nil {
		return jobs, fmt.Errorf("%w: run scripts/venvs.sh torch", err)
	}
	script := filepath.Join(dir, "task.py")
	if err := os.WriteFile(script, pythonTask, 0o666); err != nil {
		return jobs, err
	}
	for _, peer := range []struct {
		name string
		task []string
	}{
		{bareTorchrun, []string{"--no-python", worker}},
		{pythonTorchrun, []string{script}},
	} {
		if peer.name == pythonTorchrun && o.peers == "bare" {
			continue
		}
		command := append([]string{filepath.Join(venv, "bin/torchrun"), "--standalone", "--nnodes", "1",
			"--nproc-per-node", strconv.Itoa(o.tasks), "--max-restarts", strconv.Itoa(o.rounds)}, peer.task...)
		env := []string{"LD_LIBRARY_PATH=" + filepath.Join(venv, "stubs"), "OMP_NUM_THREADS=1"}
		j, err := startJob(ctx, dir, peer.name, o.tasks, false, env, command...)
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// show prints the table, and says whether the bar was met.
func show(w io.Writer, o options, jobs []*job) error {
	fmt.Fprintf(w, "one of %d tasks killed; from then until all have passed a barrier: %d rounds\n", o.tasks, o.rounds)
	t := sheet.Table(w)
	fmt.Fprintf(t, "launcher\tmedian\tleast\tmost\t%s\t%s\tbar\n", bareTorchrun, pythonTorchrun)
	medians := make(map[string]time.Duration)
	for _, j := range jobs {
		slices.Sort(j.took)
		medians[j.name] = sheet.Median(j.took)
	}
	var missed []error
	for _, j := range jobs {
		var bare, python, verdict string
		if ours := j.name != bareTorchrun && j.name != pythonTorchrun; ours {
			bare, _ = ratio(medians[bareTorchrun], medians[j.name])
			var times float64
			if python, times = ratio(medians[pythonTorchrun], medians[j.name]); times > 0 {
				verdict = fmt.Sprintf(">= %dx met", bar)
			}
			if times > 0 && times < bar {
				verdict = fmt.Sprintf(">= %dx missed", bar)
				missed = append(missed, fmt.Errorf("%s is %.1f times faster than torchrun; want %d", j.name, times, bar))
			}
		}
		round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
		fmt.Fprintf(t, "%s\t%v\t%v\t%v\t%s\t%s\t%s\n", j.name, round(medians[j.name]), round(j.took[0]), round(j.took[len(j.took)-1]), bare, python, verdict)
	}
	return errors.Join(append(missed, t.Flush())...)
}

// ratio is how many times longer a peer takes than we do, if it was measured.
func ratio(peer, ours time.Duration) (text string, times float64) {
	if peer == 0 {
		return "", 0
	}
	times = float64(peer) / float64(ours)
	return fmt.Sprintf("%.1fx", times), times
}
