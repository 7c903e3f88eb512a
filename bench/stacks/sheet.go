package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// show prints the table, and says whether the bars were met.
func show(w io.Writer, rounds int, rows []*row) error {
	fmt.Fprintf(w, "stacks of one process, milliseconds: median (least-most) of %d readings in turn, and how many were right\n", rounds)
	t := sheet.Table(w)
	fmt.Fprintln(t, "program\tserry\tpy-spy dump\ttimes faster\tbar\tserry right\tpy-spy right")
	var missed []error
	for _, r := range rows {
		ours, peer := sheet.NewCell("serry", r.took[0]), sheet.NewCell("py-spy", r.took[1])
		times := peer.Median / ours.Median
		demanded, kept := "all right", r.rightCounts[0] == rounds
		if r.bar > 0 {
			demanded, kept = fmt.Sprintf(">= %dx, all right", r.bar), kept && times >= float64(r.bar)
		}
		if r.most > 0 {
			demanded, kept = fmt.Sprintf("<= %.0f ms, all right", r.most), kept && ours.Median <= r.most
		}
		demanded += ": " + sheet.Kept(kept)
		if !kept {
			missed = append(missed, fmt.Errorf("%s: %.1f ms, %.1f times faster, %d of %d right", r.name, ours.Median, times, r.rightCounts[0], rounds))
		}
		fmt.Fprintf(t, "%s\t%v\t%v\t%.1fx\t%s\t%d/%d\t%d/%d\n", r.name, ours, peer, times, demanded, r.rightCounts[0], rounds, r.rightCounts[1], rounds)
	}
	return errors.Join(append(missed, t.Flush())...)
}
