package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A row is an operation on vectors of one size.
type row struct {
	Over    string             `json:"over"`
	Op      string             `json:"op"`
	Ranks   int                `json:"ranks"`
	Bytes   int64              `json:"bytes"`
	Micro   map[string]float64 `json:"microseconds"` // median of each peer
	Times   map[string]float64 `json:"timesAsFast"`  // serry, by peer: the median of the rounds
	Bar     string             `json:"bar,omitempty"`
	Kept    string             `json:"kept,omitempty"`
	Bound   float64            `json:"boundMicroseconds,omitempty"` // what the machine needs at least, or 0
	BoundBy string             `json:"boundBy,omitempty"`           // for what: latency, links, sums, memory

	times map[string][]float64 // microseconds of each round, by peer
}

// judged sums up the rounds. Speeds are compared round by round, since that of a machine drifts.
func (r row) judged() row {
	r.Micro, r.Times = make(map[string]float64), make(map[string]float64)
	for name, all := range r.times {
		r.Micro[name] = sheet.Median(all)
		if name == ourName {
			continue
		}
		var ratios []float64
		for i := range min(len(all), len(r.times[ourName])) {
			ratios = append(ratios, all[i]/r.times[ourName][i])
		}
		r.Times[name] = sheet.Median(ratios)
	}
	var bars []string
	kept := true
	for _, b := range r.bars() {
		if len(r.times[b.peer]) > 0 {
			bars = append(bars, fmt.Sprintf(">= %gx %s", b.times, b.peer))
			kept = kept && r.Times[b.peer] >= b.times
		}
	}
	if len(bars) > 0 {
		r.Bar, r.Kept = strings.Join(bars, ", "), sheet.Kept(kept)
	}
	return r
}

// A bar is how many times as fast as a peer serry must be.
type bar struct {
	peer  string
	times float64
}

// bars are those of an all-reduce of two ranks (CL-FIG-2).
func (r row) bars() []bar {
	if r.Op != "allreduce" || r.Ranks != 2 {
		return nil
	}
	small, like := r.Bytes == 8, func(times float64) []bar { return []bar{{glooName, times}, {jaxName, times}} }
	switch r.Over {
	case overMemory:
		if small {
			return append(like(4), bar{mpiName, 0.67})
		}
		if r.Bytes <= 1<<20 {
			return like(4)
		}
		return like(2.5)
	case overArena:
		if small {
			return append(like(4), bar{mpiName, 0.67})
		}
		return append(like(4), bar{mpiName, 1})
	}
	switch {
	case small:
		return []bar{{glooName, 2}}
	case r.Bytes >= 64<<10 && r.Bytes <= 1<<20:
		return []bar{{glooName, 0.9}}
	case r.Bytes >= 16<<20:
		return []bar{{glooName, 1.15}}
	}
	return nil
}

func show(w io.Writer, p plan, rows []row) error {
	t := sheet.Table(w)
	fmt.Fprint(t, "over\toperation\tranks\tbytes\tserry us\tof bound")
	for _, name := range p.peers {
		fmt.Fprintf(t, "\t%s us\ttimes as fast", name)
	}
	fmt.Fprintln(t, "\tbar\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%.1f\t%s", r.Over, r.Op, r.Ranks, r.Bytes, r.Micro[ourName], r.distance())
		for _, name := range p.peers {
			if len(r.times[name]) == 0 {
				fmt.Fprint(t, "\t-\t-")
				continue
			}
			fmt.Fprintf(t, "\t%.1f\t%.2fx", r.Micro[name], r.Times[name])
		}
		fmt.Fprintf(t, "\t%s\t%s\n", r.Bar, r.Kept)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "each turn begins %v after the one before has ended; the order of the peers is drawn for each round\n", p.settle)
	return err
}

// distance is which part of its time an operation would take at least, and for what.
func (r row) distance() string {
	if r.Bound == 0 || r.Micro[ourName] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%% %s", 100*r.Bound/r.Micro[ourName], r.BoundBy)
}

// missed says whether a bar was.
func missed(rows []row) error {
	n := 0
	for _, r := range rows {
		if r.Bar != "" && r.Kept != sheet.Kept(true) {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d bars: %w", n, errMissed)
	}
	return nil
}

var errMissed = errors.New("missed")
