package main

import (
	"fmt"
	"io"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A record collects figures: one per call, number of callers, peer and round.
type record struct {
	figures map[rowKey]map[string][]figures
}

type rowKey struct {
	call  string
	crowd int
}

func newRecord() *record { return &record{make(map[rowKey]map[string][]figures)} }

func (s *record) add(k rowKey, peer string, f figures) {
	if s.figures[k] == nil {
		s.figures[k] = make(map[string][]figures)
	}
	s.figures[k][peer] = append(s.figures[k][peer], f)
}

// bar is how many times as many calls as the stock client ours must make with the same processor time.
const bar = 3

// print writes two lines for each kind of call: what a client makes per second, and what a call costs it.
// Ratios are to the stock client, so that more is better.
func (s *record) print(w io.Writer, peers []*peer) error {
	tw := sheet.Table(w)
	fmt.Fprint(tw, "call\tcallers\tmeasure")
	for _, p := range peers {
		fmt.Fprintf(tw, "\t%s", p.name)
		if p.name != stockName {
			fmt.Fprint(tw, "\tratio")
		}
	}
	fmt.Fprintln(tw, "\tbar")
	missed := 0
	for _, call := range calls {
		for _, crowd := range crowds {
			by := s.figures[rowKey{call, crowd}]
			line(tw, call, crowd, "calls/s", by, peers, func(f figures) float64 { return f.perSecond }, false)
			if line(tw, call, crowd, "client us/call", by, peers, func(f figures) float64 { return f.cpu }, true) < bar {
				missed++
			}
		}
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if missed > 0 {
		return fmt.Errorf("%d rows below the bar", missed)
	}
	return nil
}

// line writes one measure of all peers and returns the ratio of the last.
func line(w io.Writer, call string, crowd int, measure string, by map[string][]figures, peers []*peer, of func(figures) float64, less bool) float64 {
	fmt.Fprintf(w, "%s\t%d\t%s", call, crowd, measure)
	var stock, ratio float64
	for _, p := range peers {
		v := make([]float64, 0, len(by[p.name]))
		for _, f := range by[p.name] {
			v = append(v, of(f))
		}
		c := sheet.NewCell(p.name, v)
		fmt.Fprintf(w, "\t%s", c)
		if p.name == stockName {
			stock = c.Median
			continue
		}
		if ratio = c.Median / stock; less {
			ratio = stock / c.Median
		}
		fmt.Fprintf(w, "\t%.2fx", ratio)
	}
	if less {
		fmt.Fprintf(w, "\t>= %dx %s\n", bar, sheet.Kept(ratio >= bar))
	} else {
		fmt.Fprintln(w, "\t")
	}
	return ratio
}
