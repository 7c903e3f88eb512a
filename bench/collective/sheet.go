package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A row is an operation on vectors of one size.
type row struct {
	Over  string             `json:"over"`
	Op    string             `json:"op"`
	Ranks int                `json:"ranks"`
	Bytes int64              `json:"bytes"`
	Micro map[string]float64 `json:"microseconds"` // median of each peer
	Times map[string]float64 `json:"timesAsFast"`  // serry, by peer: the median of the rounds
	Bar   string             `json:"bar,omitempty"`
	Kept  string             `json:"kept,omitempty"`
	Bound float64            `json:"boundMicroseconds,omitempty"` // what the memory of the machine allows, or 0

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
	if peer, bar := r.bar(); bar > 0 && len(r.times[peer]) > 0 {
		r.Bar = fmt.Sprintf(">= %gx %s", bar, peer)
		r.Kept = sheet.Kept(r.Times[peer] >= bar)
	}
	return r
}

// bar is how many times as fast as a peer an all-reduce of two ranks must be, or 0 (CL-FIG-2).
func (r row) bar() (peer string, times float64) {
	switch memory := r.Over == overMemory; {
	case r.Op != "allreduce" || r.Ranks != 2:
	case memory && r.Bytes == 8:
		return mpiName, 0.67
	case memory && r.Bytes <= 1<<20:
		return glooName, 4
	case memory:
		return glooName, 2.5
	case r.Bytes == 8:
		return glooName, 2
	case r.Bytes >= 64<<10 && r.Bytes <= 1<<20:
		return glooName, 0.9
	case r.Bytes >= 16<<20:
		return glooName, 1.15
	}
	return "", 0
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
	return t.Flush()
}

// distance is which part of its time an all-reduce would take at least.
func (r row) distance() string {
	if r.Bound == 0 || r.Micro[ourName] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*r.Bound/r.Micro[ourName])
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
