package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// Bars: what links must do, by the best bare sockets of the same round.
const (
	leastPlain = 0.95
	leastSums  = 0.90
	mostTrip   = 1.30
)

// A line of the table.
type line struct {
	Connections int        `json:"connections"`
	Unit        string     `json:"unit"`
	CPU         float64    `json:"cpuSecondsPerGB,omitempty"`
	Cell        sheet.Cell `json:"cell"`
}

// judge sums up the rounds. A ratio is the median of those of the rounds, since the speed of a machine
// drifts.
func judge(p plan, lanes int, peers []*peer) []line {
	best := bestRaw(peers)
	var bare *peer
	for _, q := range peers {
		if q.name == rawTrip {
			bare = q
		}
	}
	var lines []line
	for _, q := range peers {
		l := line{Connections: lanes, Unit: "GB/s", Cell: sheet.NewCell(q.name, values(q))}
		if q.latent {
			l.Unit = "us"
			l.Cell.Ratio = ratio(q, values(bare))
		} else {
			l.CPU = cpu(q)
			l.Cell.Ratio = ratio(q, best)
		}
		switch r := l.Cell.Ratio; q.name {
		case ourPlain:
			l.Cell.Judge(fmt.Sprintf(">= %.2fx", leastPlain), r >= leastPlain)
		case ourSums:
			l.Cell.Judge(fmt.Sprintf(">= %.2fx", leastSums), r >= leastSums)
		case ourTrip:
			l.Cell.Judge(fmt.Sprintf("<= %.2fx", mostTrip), r <= mostTrip)
		}
		lines = append(lines, l)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.Unit+a.Cell.Peer, b.Unit+b.Cell.Peer) })
	return lines
}

// bestRaw are the rounds of the bare sockets whose median is the best.
func bestRaw(peers []*peer) []float64 {
	var best []float64
	for _, q := range peers {
		if v := values(q); strings.HasPrefix(q.name, rawStream) && sheet.Median(v) > sheet.Median(best) {
			best = v
		}
	}
	return best
}

func values(p *peer) []float64 {
	var v []float64
	for _, f := range p.rounds {
		v = append(v, f.value)
	}
	return v
}

func cpu(p *peer) float64 {
	var v []float64
	for _, f := range p.rounds {
		v = append(v, f.cpu)
	}
	return sheet.Median(v)
}

// ratio is the median of the ratios of the rounds.
func ratio(p *peer, to []float64) float64 {
	var all []float64
	for i, v := range values(p) {
		all = append(all, v/to[i])
	}
	return sheet.Median(all)
}

func show(w io.Writer, lines []line) error {
	t := sheet.Table(w)
	fmt.Fprintln(t, "connections\tpeer\tmedian (least-most)\t\tratio\tbar\t\tCPU s/GB")
	for _, l := range lines {
		used := "-"
		if l.CPU > 0 {
			used = sheet.Figure(l.CPU)
		}
		fmt.Fprintf(t, "%d\t%s\t%v\t%s\t%s\t%s\t%s\t%s\n", l.Connections, l.Cell.Peer, l.Cell, l.Unit, l.Cell.RatioText(), l.Cell.Bar, l.Cell.Kept, used)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nratio: to the best bare sockets, the median over rounds; CPU: of both processes")
	return err
}

// missed is an error if a bar was.
func missed(lines []line) error {
	var names []string
	for _, l := range lines {
		if l.Cell.Kept == sheet.Kept(false) {
			names = append(names, fmt.Sprintf("%s over %d connections", l.Cell.Peer, l.Connections))
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(names, ", "))
	}
	return nil
}
