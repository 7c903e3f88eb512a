// Mesh compares package mesh with JAX's own code on the same machine: the same index maps and
// device orders, in turn, and one table of medians and ratios. JAX has no planner of byte ranges
// to compare with; the plans stand for themselves.
//
// usage: go run ./bench/mesh [flags]
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	sheet.Main("bench", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("mesh", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 7, "how often each figure is taken, at least 5 for a claim")
	python := flags.String("python", cmp.Or(os.Getenv("SERRY_JAX_PYTHON"), ".cache/venv/jax-new/bin/python"), "`interpreter` with the jax to compare with")
	if err := sheet.Parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "want -rounds of 1 or more and no arguments")
		return sheet.ErrUsage
	}
	jax, err := startPeer(ctx, *python, stderr)
	if err != nil {
		return err
	}
	defer jax.stop()
	rows, err := alternate(jax, figures(), *rounds)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "median (least-most) of %d rounds, jax %s and serry in turn on one machine\n", *rounds, jax.version)
	return printRows(stdout, rows)
}

// A row is one figure with the times both sides took.
type row struct {
	figure
	jax, ours []time.Duration // jax is empty where it has no counterpart
	note      string
}

// alternate takes every figure in every round, JAX first, and compares results.
func alternate(jax *peer, list []figure, rounds int) ([]row, error) {
	rows := make([]row, len(list))
	for i, f := range list {
		rows[i].figure = f
	}
	for range rounds {
		for i := range rows {
			r := &rows[i]
			var want int64
			if r.ask != nil {
				took, sum, err := jax.measure(r.ask)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", r.name, err)
				}
				r.jax, want = append(r.jax, took), sum
			}
			got, err := r.run()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
			if r.ask != nil && got.sum != want {
				return nil, fmt.Errorf("%s: serry and jax computed different things (%d, %d)", r.name, got.sum, want)
			}
			r.ours, r.note = append(r.ours, got.took), got.note
		}
	}
	return rows, nil
}

func printRows(out io.Writer, rows []row) error {
	w := sheet.Table(out)
	fmt.Fprintln(w, "figure\tjax\tserry\tratio\twanted\t")
	for _, r := range rows {
		theirs, ratio := "none", "-"
		mine := sheet.Median(r.ours)
		times := 0.0
		if len(r.jax) > 0 {
			times = float64(sheet.Median(r.jax)) / float64(mine)
			theirs, ratio = spread(r.jax), fmt.Sprintf("%.0fx", times)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, theirs, spread(r.ours), ratio, r.verdict(times, mine), r.note)
	}
	return w.Flush()
}

// verdict holds the figure against what is wanted of it.
func (f figure) verdict(ratio float64, took time.Duration) string {
	met, want := true, ""
	switch {
	case f.wantRatio > 0:
		met, want = ratio >= f.wantRatio, fmt.Sprintf(">= %.0fx", f.wantRatio)
	case f.wantTime > 0:
		met, want = took <= f.wantTime, fmt.Sprintf("<= %v", f.wantTime)
	default:
		return ""
	}
	if !met {
		return want + " MISSED"
	}
	return want + " met"
}

func spread(list []time.Duration) string {
	return fmt.Sprintf("%s (%s-%s)", short(sheet.Median(list)), short(slices.Min(list)), short(slices.Max(list)))
}

// short prints three digits.
func short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}
