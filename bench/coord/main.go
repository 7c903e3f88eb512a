// Coord compares the coordination service of serry with the one that ships in jaxlib: the same
// load, on the same processors, in turn, and one table of medians, spreads and ratios.
//
// usage: go run ./bench/coord [flags]
//
// The load goes by package wire/back: every task is a row of calls over HTTP/2, far cheaper than a
// real client, so that what is measured is the server. bench/README.md says how to read the table.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/serry-dev/serry/bench/internal/proc"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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

// options are the flags.
type options struct {
	plan     plan
	json     bool
	cpus     int
	noStock  bool
	python   string
	binaries string // by comma; empty: the one to build
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := proc.RaiseFiles(o.plan.files()); err != nil {
		return err
	}
	cpus, err := proc.FirstCPUs(o.cpus)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "serry-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	peers, err := o.peers(ctx, dir)
	if err != nil {
		return err
	}
	id, err := newIdentity(dir)
	if err != nil {
		return err
	}
	if err := cpus.PinSelf(); err != nil { // servers inherit it
		return err
	}
	if _, err := os.Stat(o.python); o.noStock && err != nil {
		o.plan.groups = slices.DeleteFunc(o.plan.groups, func(g string) bool { return g == groupReal }) // which needs it
	}
	b := &bench{plan: o.plan, peers: peers, identity: id, python: o.python, sheet: newRecord(), progress: stderr}
	failed := b.run(ctx) // what has been measured is shown all the same
	rows := b.sheet.rows(peers)
	if o.json {
		return errors.Join(failed, printJSON(stdout, rows, o.plan))
	}
	fmt.Fprintf(stdout, "median (least-most) of %d rounds; servers and load on processors %v\n", o.plan.rounds, cpus.List)
	return errors.Join(failed, printTable(stdout, rows, peers))
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{plan: fullPlan()}
	fs := flag.NewFlagSet("coord", flag.ContinueOnError)
	fs.SetOutput(stderr)
	quick := fs.Bool("quick", false, "tiny sizes and one round, to see that it runs")
	rounds := fs.Int("rounds", 0, "how often each figure is taken (default 5)")
	sizes := fs.String("n", "", "numbers of tasks, as `n,...` (default 64,256,512,2048,4096)")
	only := fs.String("only", "", "groups of rows, of `"+strings.Join(groups(), ",")+"` (default all)")
	fs.BoolVar(&o.noStock, "no-stock", false, "leave out the stock service: no ratios")
	fs.StringVar(&o.python, "python", proc.DefaultPython, "`interpreter` with the jaxlib to compare with")
	fs.StringVar(&o.binaries, "serry", "", "binaries to measure, as `path,...` (default: build one)")
	fs.IntVar(&o.cpus, "cpus", 2, "processors that servers and load share, the first ones")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of a table")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errUsage
	}
	if *quick {
		o.plan = quickPlan()
	}
	o.plan.rounds = cmp.Or(*rounds, o.plan.rounds)
	err := errors.Join(o.setSizes(*sizes), o.setGroups(*only))
	if fs.NArg() > 0 {
		err = errors.Join(err, fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	}
	if o.plan.rounds < 1 || o.cpus < 1 {
		err = errors.Join(err, errors.New("-rounds and -cpus: want 1 or more"))
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return o, errUsage
	}
	return o, nil
}

// setSizes replaces the numbers of tasks. What is measured at one size only is measured at 512 if
// that is among them, else at the largest; bars are judged at the sizes they are about only.
func (o *options) setSizes(list string) error {
	if list == "" {
		return nil
	}
	p := &o.plan
	p.sizes = nil
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			return fmt.Errorf("-n %q: want numbers above 0", list)
		}
		p.sizes = append(p.sizes, n)
	}
	slices.Sort(p.sizes)
	p.alive = slices.DeleteFunc(p.alive, func(n int) bool { return !slices.Contains(p.sizes, n) })
	if !slices.Contains(p.sizes, p.focus) {
		p.focus = slices.Max(p.sizes)
	}
	if len(p.alive) == 0 {
		p.alive = []int{p.focus}
	}
	return nil
}

func (o *options) setGroups(list string) error {
	if list == "" {
		return nil
	}
	o.plan.groups = strings.Split(list, ",")
	for _, g := range o.plan.groups {
		if !slices.Contains(groups(), g) {
			return fmt.Errorf("-only %q: want some of %s", g, strings.Join(groups(), ","))
		}
	}
	return nil
}

// peers are the services to compare, the stock one first.
func (o *options) peers(ctx context.Context, dir string) ([]peer, error) {
	var all []peer
	if !o.noStock {
		p, err := stock(o.python)
		if err != nil {
			return nil, fmt.Errorf("stock service: %w", err)
		}
		all = append(all, p)
	}
	if o.binaries == "" {
		binary, err := proc.Build(ctx, dir)
		if err != nil {
			return nil, err
		}
		return append(all, ours("serry", binary, dir)), nil
	}
	for binary := range strings.SplitSeq(o.binaries, ",") {
		own, err := os.MkdirTemp(dir, "")
		if err != nil {
			return nil, err
		}
		all = append(all, ours(binary, binary, own))
	}
	return all, nil
}
