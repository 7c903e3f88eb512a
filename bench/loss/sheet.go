package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// What must hold at 99 of 100 survivors, from the loss on (CL-FIG-3).
const (
	killedError = 100 * time.Millisecond
	killedAgain = 250 * time.Millisecond
	cutError    = 3500 * time.Millisecond
)

// A row is the survivors of all losses of one kind.
type row struct {
	name                 string
	losses               int
	failed, again        []float64     // milliseconds after the loss
	mostError, mostAgain time.Duration // bars; 0: none
	segments             bool          // those of survivors were counted
}

// add takes the result of one loss.
func (r *row) add(t trial, err error) error {
	if err != nil {
		return err
	}
	r.losses++
	for rank, at := range t.failed {
		if rank != t.victim {
			r.failed = append(r.failed, sheet.Millis(at.Sub(t.lost)))
			r.again = append(r.again, sheet.Millis(t.again[rank].Sub(t.lost)))
		}
	}
	return nil
}

var errMissed = errors.New("a bar is not kept")

// show prints the table. The error says that a bar is not kept.
func show(w io.Writer, rows []*row) error {
	t := sheet.Table(w)
	fmt.Fprintln(t, "loss\ttimes\tat every survivor, ms after it\tp50\tp99\tmost\tbar\t")
	missed := false
	line := func(r *row, what string, v []float64, bar time.Duration) {
		text, kept := "", ""
		if bar > 0 && len(v) > 0 {
			ok := sheet.Quantile(v, 0.99) <= sheet.Millis(bar)
			text, kept = fmt.Sprintf("p99 <= %v", bar), sheet.Kept(ok)
			missed = missed || !ok
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.1f\t%.1f\t%.1f\t%s\t%s\n", r.name, r.losses, what,
			sheet.Quantile(v, 0.5), sheet.Quantile(v, 0.99), sheet.Quantile(v, 1), text, kept)
	}
	for _, r := range rows {
		line(r, "its all-reduce fails", r.failed, r.mostError)
		line(r, "1 MiB in the next clique", r.again, r.mostAgain)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if missed {
		return errMissed
	}
	return nil
}
