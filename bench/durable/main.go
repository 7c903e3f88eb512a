// Durable shows what it costs that a job outlives its coordinator: barriers and writes with serry's three
// stores (memory, a file, etcd members inside three serry processes) beside the stock service of jaxlib,
// which keeps nothing, and beside the same etcd with one put for each call.
//
// usage: go run ./bench/durable [flags]
//
// The load is that of bench/coord: dialect xla.coordination by package wire/back, a connection per task.
// All peers are started anew in every round, in turn, on the same processors and the same disk.
// bench/README.md says how to read the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if len(os.Args) > 1 && os.Args[1] == memberCommand {
		err = serveMember(ctx, os.Args[2:], os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
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

// options are the flags.
type options struct {
	tasks, writers int
	rounds, waves  int
	putFor         time.Duration
	noStock, json  bool
	python, dir    string
	binaries       []string
	stores         []string // of serry, to measure
	cpus           int
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("durable", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&o.tasks, "n", barTasks, "`number` of tasks that meet")
	fs.IntVar(&o.writers, "writers", barWriters, "`number` of tasks that write")
	fs.IntVar(&o.rounds, "rounds", 5, "how often each figure is taken")
	fs.IntVar(&o.waves, "waves", 32, "barriers of a round, of which the median counts")
	fs.DurationVar(&o.putFor, "puts", 3*time.Second, "how long keys are written in a round")
	fs.BoolVar(&o.noStock, "no-stock", false, "leave out the stock service: no ratios to it")
	fs.StringVar(&o.python, "python", proc.DefaultPython, "`interpreter` with the jaxlib to compare with")
	binaries := fs.String("serry", "", "binaries to measure, in turn, as `path,...` (default: build one)")
	only := fs.String("only", strings.Join(stores(), ","), "stores of serry to measure, as `name,...`")
	fs.StringVar(&o.dir, "dir", "", "`folder` for all that is written (default: a temporary one)")
	fs.IntVar(&o.cpus, "cpus", 2, "processors that servers and load share, the first ones")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	o.stores = strings.Split(*only, ",")
	if *binaries != "" {
		o.binaries = strings.Split(*binaries, ",")
	}
	var err error
	switch {
	case slices.ContainsFunc(o.stores, func(s string) bool { return !slices.Contains(stores(), s) }):
		err = fmt.Errorf("-only %q: want some of %s", *only, strings.Join(stores(), ","))
	case fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case o.tasks < 1 || o.writers < 1 || o.writers > o.tasks:
		err = errors.New("want -n of 1 or more, and -writers from 1 to that")
	case o.rounds < 1 || o.waves < 1 || o.cpus < 1 || o.putFor <= 0:
		err = errors.New("-rounds, -waves, -cpus and -puts: want more than 0")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return o, errUsage
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := proc.RaiseFiles(uint64(o.tasks + 100)); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, "serry-durable")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if len(o.binaries) == 0 {
		binary, err := proc.Build(ctx, dir)
		if err != nil {
			return err
		}
		o.binaries = []string{binary}
	}
	peers, err := o.peers()
	if err != nil {
		return err
	}
	cpus, err := proc.FirstCPUs(o.cpus)
	if err != nil {
		return err
	}
	if err := cpus.PinSelf(); err != nil { // servers inherit it
		return err
	}
	b := &bench{options: o, peers: peers, dir: dir, sheet: newRecord(), progress: stderr}
	failed := b.run(ctx) // what has been measured is shown all the same
	rows := b.sheet.rows(o, peers)
	if o.json {
		return errors.Join(failed, printJSON(stdout, rows, o))
	}
	fmt.Fprintf(stdout, "median (least-most) of %d rounds; servers and load on processors %v\n", o.rounds, cpus.List)
	return errors.Join(failed, printTable(stdout, rows, peers))
}
