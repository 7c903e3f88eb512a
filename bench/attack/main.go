// Attack measures what strangers who reach the port of a server can do to the job that it serves: connections
// that say nothing, floods of frames, messages that expand to gigabytes, thousands of waiting calls, names full of
// escapes, all at once, as long as a real jax job of four processes steps beside them (SECT-20).
//
// usage: go run ./bench/attack [flags]
//
// The job runs twice: alone, and beside the strangers. They have the last processor and the job has all
// others, both times; the server may use every one. So the figures are what the server loses, and not what a
// machine loses on which strangers compute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() { sheet.Main("attack", run) }

// What must hold (SECT-20).
const (
	maxSlower = 2 // times the p99 of a step without strangers
	maxPeak   = 256 << 20
	maxLog    = 1 << 20
)

// files is how many files the strangers open.
const files = 8 << 10

// options are the flags, and the processors.
type options struct {
	lasts          time.Duration
	python, binary string
	only           string

	everywhere, forJob, forStrangers proc.CPUs
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if err := errors.Join(proc.CheckPython(o.python), proc.RaiseFiles(files)); err != nil {
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
	all, err := rows()
	if err != nil {
		return err
	}
	alone, err := o.measureJob(ctx, o.binary, func(context.Context, string) {})
	if err != nil {
		return err
	}
	if alone.err != nil {
		return fmt.Errorf("the job fails without strangers: %w", alone.err)
	}
	runtime.GOMAXPROCS(max(1, len(o.forStrangers.List)))
	beside, err := o.measureJob(ctx, o.binary, func(ctx context.Context, addr string) { attack(ctx, addr, some(all, o.only)) })
	if err != nil {
		return err
	}
	return show(stdout, alone, beside)
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	fs := flag.NewFlagSet("attack", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.DurationVar(&o.lasts, "for", time.Minute, "how `long` the job steps")
	fs.StringVar(&o.python, "python", proc.DefaultPython, "`interpreter` with jax (scripts/venvs.sh jax-new)")
	fs.StringVar(&o.binary, "serry", "", "`binary` to measure (default: build it)")
	fs.StringVar(&o.only, "only", "", "`names` of rows, with commas (default: all)")
	if err := sheet.Parse(fs, args); err != nil {
		return o, err
	}
	if o.lasts <= 0 || fs.NArg() > 0 {
		fmt.Fprintln(stderr, "-for: want more than 0; and no argument")
		return o, sheet.ErrUsage
	}
	o.everywhere, o.forJob, o.forStrangers, err = proc.SplitCPUs()
	return o, err
}

// some are the rows with these names, or all if there is no name.
func some(all []row, names string) (chosen []row) {
	for _, r := range all {
		if names == "" || strings.Contains(","+names+",", ","+r.name+",") {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

// show prints the table. The error says that something does not hold.
func show(w io.Writer, alone, beside measure) error {
	ended := "0"
	if beside.err != nil {
		ended = "failed"
	}
	missed := false
	judge := func(ok bool) string {
		if ok {
			return "ok"
		}
		missed = true
		return "MISS"
	}
	mib := func(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
	ms := func(v float64) string { return fmt.Sprintf("%.2f ms", v) }
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\talone\tbeside strangers\tbar\t")
	fmt.Fprintf(t, "steps\t%d\t%d\t\t\n", len(alone.steps), len(beside.steps))
	fmt.Fprintf(t, "step, p50\t%s\t%s\t\t\n", ms(alone.p50()), ms(beside.p50()))
	fmt.Fprintf(t, "step, p99\t%s\t%s\t<= %dx\t%s\n", ms(alone.p99()), ms(beside.p99()), maxSlower, judge(beside.err == nil && beside.p99() <= maxSlower*alone.p99()))
	fmt.Fprintf(t, "resident memory of the server, most\t%s\t%s\t<= %s\t%s\n", mib(alone.peak), mib(beside.peak), mib(maxPeak), judge(beside.peak <= maxPeak))
	fmt.Fprintf(t, "log of the server\t%d B\t%d B\t<= %s\t%s\n", alone.log, beside.log, mib(maxLog), judge(beside.log <= maxLog))
	fmt.Fprintf(t, "the job exits with\t0\t%s\t0\t%s\n", ended, judge(beside.err == nil))
	if err := t.Flush(); err != nil {
		return err
	}
	if missed {
		return errors.Join(errors.New("a bar is not kept"), beside.err)
	}
	return nil
}
