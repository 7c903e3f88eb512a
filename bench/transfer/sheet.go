package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// Names of the peers that others are compared with.
const (
	rawStream = "bare sockets"
	rawTrip   = "1 KiB there and back, bare socket, a processor each"
	plainCopy = "copy of memory"
	ours      = "transfer"
	ourSmall  = "transfer of 1 KiB, a processor each"
	ourGroup  = "group of buffers of 1 KiB"
	jaxPull   = "jax, default: chunks of 256 MiB, 4 addresses"
	jaxBest   = "jax, best: 8 addresses, chunks of 16 MiB"
	jaxSmall  = "jax, pull of 1 KiB"
	jaxGroup  = "jax, pull of buffers of 1 KiB"
	goFromJAX = "go pulls from jax, 8 addresses"
	goToJAX   = "jax pulls from go, 8 addresses"

	besideUrgent = "64 KiB beside bulk transfers, urgent"
	besideBulk   = "64 KiB beside bulk transfers, bulk as they are"

	mooncakeRead = "mooncake, tcp"
	nixlRead     = "nixl, tcp"
)

// Bars: what transfers must do, by what they are compared with in the same rounds.
const (
	leastOfSockets = 0.90
	leastOfCopies  = 0.85
	mostTrips      = 1.5 // round trips, and
	mostExtra      = 15  // microseconds more
	leastOfJax     = 3.0
	leastOfGroup   = 5.0
)

// A line of the table.
type line struct {
	Section string     `json:"section"`
	Unit    string     `json:"unit"`
	Cell    sheet.Cell `json:"cell"`
	Tail    float64    `json:"p99,omitempty"`   // of latencies: the median of the 99th percentiles of the rounds
	Cores   float64    `json:"cores,omitempty"` // that both processes had busy; not of peers that have processes of their own
}

// judge sums up the rounds of a section. A ratio is the median of those of the rounds, since the speed of a machine drifts.
func judge(s section, peers []*peer) (lines []line) {
	limit := best(peers, rawStream)
	if s.way == overMemory {
		limit = best(peers, plainCopy)
	}
	find := func(name string) []float64 { return best(peers, name) }
	for _, q := range peers {
		l := line{Section: s.name, Unit: q.unit, Cell: sheet.NewCell(q.name, q.rounds), Tail: sheet.Median(q.tails)}
		if q.name == ours || strings.HasPrefix(q.name, rawStream) || strings.HasPrefix(q.name, plainCopy) {
			l.Cores = sheet.Median(q.cores)
		}
		c := &l.Cell
		switch {
		case q.unit == "GB/s":
			c.Ratio = ratio(q.rounds, limit)
		case q.name == ourSmall:
			c.Ratio = ratio(q.rounds, find(rawTrip))
		case q.name == besideUrgent && find(besideBulk) != nil:
			c.Ratio = ratio(q.rounds, find(besideBulk))
		case q.name == ourGroup && find(jaxGroup) != nil:
			c.Ratio = ratio(find(jaxGroup), q.rounds)
		}
		switch {
		case q.name == ours && s.way == overMemory:
			c.Judge(fmt.Sprintf(">= %.2fx", leastOfCopies), c.Ratio >= leastOfCopies)
		case q.name == ours:
			c.Judge(fmt.Sprintf(">= %.2fx", leastOfSockets), c.Ratio >= leastOfSockets)
		case q.name == ourSmall:
			most := mostTrips*sheet.Median(find(rawTrip)) + mostExtra
			c.Judge(fmt.Sprintf("<= %.0f us", most), sheet.Median(q.rounds) <= most)
		case q.name == ourGroup && find(jaxGroup) != nil:
			c.Judge(fmt.Sprintf(">= %.0fx of jax", leastOfGroup), c.Ratio >= leastOfGroup)
		case q.name == jaxPull:
			least := ratio(find(ours), q.rounds)
			c.Judge(fmt.Sprintf("ours %.1fx, >= %.0fx", least, leastOfJax), least >= leastOfJax)
		case q.name == jaxBest || q.name == mooncakeRead || q.name == nixlRead:
			least := ratio(find(ours), q.rounds)
			c.Judge(fmt.Sprintf("ours %.1fx, > 1x", least), least > 1)
		case (q.name == goFromJAX || q.name == goToJAX) && find(jaxBest) != nil:
			least := ratio(q.rounds, find(jaxBest))
			c.Judge(fmt.Sprintf("%.2fx, >= 1x of jax", least), least >= 1)
		}
		lines = append(lines, l)
	}
	return lines
}

// best are the rounds of the peer with the best median, of those with a name, or with variants of it; nil if there is none.
func best(peers []*peer, name string) (rounds []float64) {
	for _, q := range peers {
		if (q.name == name || strings.HasPrefix(q.name, name+",")) && (rounds == nil || sheet.Median(q.rounds) > sheet.Median(rounds)) {
			rounds = q.rounds
		}
	}
	return rounds
}

// ratio is the median of the ratios of the rounds.
func ratio(v, to []float64) float64 {
	var all []float64
	for i := range v {
		all = append(all, v[i]/to[i])
	}
	return sheet.Median(all)
}

func show(w io.Writer, lines []line) error {
	t := sheet.Table(w)
	fmt.Fprintln(t, "section\tpeer\tmedian (least-most)\t\tp99\tcores\tratio\tbar\t")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Section, l.Cell.Peer, l.Cell, l.Unit, some("%.0f", l.Tail), some("%.1f", l.Cores), l.Cell.RatioText(), l.Cell.Bar, l.Cell.Kept)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nratio: to the best bare sockets, or to copies of memory by as many goroutines; of an urgent transfer, to one that is not; the median over rounds\ncores: that the two processes of a row had busy, of serry, bare sockets and copies")
	return err
}

// some is the text of a figure, or nothing for one that there is not.
func some(format string, v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// missed is an error if a bar was.
func missed(lines []line) error {
	var names []string
	for _, l := range lines {
		if l.Cell.Kept == sheet.Kept(false) {
			names = append(names, l.Section+": "+l.Cell.Peer)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("bars missed: %s", strings.Join(names, ", "))
	}
	return nil
}
