// Cost shows that an event costs what it touches, and not what else the service holds. It steps the
// coordination machine alone, without a network, in jobs of 100, 1,000 and 10,000 tasks, keys, watchers,
// waiting gets, open and ended barriers, alive sets and requesters.
//
// usage: go run ./bench/cost [flags]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

func main() {
	sheet.Main("bench", run)
}

func run(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("cost", flag.ContinueOnError)
	flags.SetOutput(stderr)
	least := flags.Duration("for", 100*time.Millisecond, "how long each figure is taken, or 5 rounds if that is longer")
	only := flags.String("only", "", "rows whose names contain this `text`")
	if err := sheet.Parse(flags, args); err != nil {
		return err
	}
	var lines []line
	for _, r := range rows() {
		if strings.Contains(r.name, *only) {
			lines = append(lines, take(r, sizes(), *least))
		}
	}
	return show(stdout, lines)
}

// take takes the figures of a row.
func take(r row, sizes []int, least time.Duration) line {
	l := line{row: r}
	for _, n := range sizes {
		l.costs = append(l.costs, measure(newWorld(n), r, least))
	}
	return l
}

// sizes are how many there are of everything.
func sizes() []int { return []int{100, 1_000, 10_000} }

// A line is what a row of the table has cost, by size.
type line struct {
	row   row
	costs []cost
}

// A cost is that of one thing which an event touches.
type cost struct {
	touched int
	time    time.Duration // of the quickest round, in all
	allocs  float64       // of a round, in all
}

const (
	// maxAllocs is how much the allocations for one thing may grow from the first size to the last.
	// They are the same in every run. Trees grow with their depth.
	maxAllocs = 1.5

	// maxTime is the same for time. The largest job does not fit into the caches of a processor, so a
	// thing costs a few times as much in it. A search of a table would cost 100 times as much.
	maxTime = 10
)

// growth is how much more one thing costs at the last size than at the first.
func (l line) growth() (allocs, time float64) {
	first, last := l.costs[0], l.costs[len(l.costs)-1]
	fewer := float64(first.touched) / float64(last.touched)
	return last.allocs / max(first.allocs, 1) * fewer, float64(last.time) / float64(first.time) * fewer
}

func show(w io.Writer, lines []line) error {
	t := sheet.Table(w)
	fmt.Fprint(t, "event\ttouches")
	for _, n := range sizes() {
		fmt.Fprintf(t, "\tof %d\tallocs", n)
	}
	fmt.Fprintln(t, "\tgrowth of allocs\tgrowth of time")
	var bad []string
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s", l.row.name, l.row.touches)
		for _, c := range l.costs {
			fmt.Fprintf(t, "\t%v\t%.0f", c.time.Round(10*time.Nanosecond), c.allocs)
		}
		allocs, time := l.growth()
		fmt.Fprintf(t, "\t%.2f\t%.1f\n", allocs, time)
		if allocs > maxAllocs || time > maxTime {
			bad = append(bad, l.row.name)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\ntime and allocs are those of the whole event; growth is that of what one touched thing costs,\n"+
		"from %d to %d: at most %.1f for allocs and %d for time\n", sizes()[0], sizes()[len(sizes())-1], maxAllocs, maxTime)
	if len(bad) > 0 {
		return fmt.Errorf("cost more than what they touch: %s", strings.Join(bad, ", "))
	}
	return nil
}
