// Package sheet is what the benchmarks have in common in front of a person: their main function and
// flags, medians and quantiles, and the words of their tables.
package sheet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"text/tabwriter"
	"time"
)

// ErrUsage means that the flags are wrong and the user has been told why.
var ErrUsage = errors.New("usage")

// Main runs a benchmark until it ends or a signal comes, and exits with 1 if it failed and with 2 if its
// flags were wrong. name stands before an error.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case errors.Is(err, ErrUsage):
		os.Exit(2)
	default:
		fmt.Fprintf(os.Stderr, "%s: error: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse reads flags. The flag set tells what is wrong with them.
func Parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return ErrUsage
	}
	return err
}

// A Number is something that has a median.
type Number interface {
	~int64 | ~float64
	cmp.Ordered
}

// Median is the middle of the values, or half way between the two in the middle; 0 for none.
func Median[T Number](v []T) T {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(v))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Quantile is the least value that is not below a share of all values; 0 for none.
func Quantile(v []float64, share float64) float64 {
	v = slices.Sorted(slices.Values(v))
	for i := range v {
		if float64(i+1) >= share*float64(len(v)) {
			return v[i]
		}
	}
	return 0
}

// Figure prints three digits or more.
func Figure(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Millis is a duration in milliseconds.
func Millis(d time.Duration) float64 { return d.Seconds() * 1e3 }

// Kept is the word for a bar that was met or not.
func Kept(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISS"
}

// Table starts a table whose cells are separated by tabs. Flush writes it.
func Table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// JSON writes a value as one indented object.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// A Cell is what one peer showed in one row, as JSON has it too.
type Cell struct {
	Peer   string    `json:"peer"`
	Rounds []float64 `json:"rounds"` // empty: not measured of this peer
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
	Ratio  float64   `json:"ratio,omitempty"` // to the stock service, by medians
	Bar    string    `json:"bar,omitempty"`   // what is demanded, if anything
	Kept   string    `json:"kept,omitempty"`  // and whether that is so: ok or MISS
}

// NewCell sums up the rounds of a peer.
func NewCell(peer string, v []float64) Cell {
	if len(v) == 0 {
		return Cell{Peer: peer, Rounds: []float64{}}
	}
	return Cell{Peer: peer, Rounds: v, Median: Median(v), Least: slices.Min(v), Most: slices.Max(v)}
}

// Judge notes what was demanded and whether it is so.
func (c *Cell) Judge(bar string, ok bool) { c.Bar, c.Kept = bar, Kept(ok) }

// String is the median with the spread over the rounds.
func (c Cell) String() string {
	if len(c.Rounds) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s-%s)", Figure(c.Median), Figure(c.Least), Figure(c.Most))
}

// RatioText is the ratio, or a dash.
func (c Cell) RatioText() string {
	if c.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", c.Ratio)
}
