package main

import (
	"fmt"
	"io"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A metric is what a row is about.
type metric int

const (
	barrierTime metric = iota
	putRate
	putCPU
	streamRate
	streamCPU
	metrics // how many there are
)

// The bars, and the sizes they are about.
const (
	barTasks   = 512
	barWriters = 64

	mostOfStock = 1.25 // barriers of stores that outlive a crash

	// Writes, of one etcd put for each: of tasks with a connection each, and of tasks behind relays.
	leastDirect = 3.5
	leastRelays = 5.0
)

// A record collects figures: one per peer, metric and round.
type record struct {
	figures [metrics]map[string][]float64 // by peer
}

func newRecord() *record {
	s := new(record)
	for m := range s.figures {
		s.figures[m] = make(map[string][]float64)
	}
	return s
}

func (s *record) add(peer string, m metric, v float64) {
	s.figures[m][peer] = append(s.figures[m][peer], v)
}

// A row of the table, as JSON has it too.
type row struct {
	Name  string       `json:"name"`
	Unit  string       `json:"unit"`
	Cells []sheet.Cell `json:"cells"` // in the order of the peers
}

// rows judges the figures.
func (s *record) rows(o options, peers []peer) []row {
	all := []row{
		{Name: fmt.Sprintf("barrier of %d tasks, first arrival to last reply", o.tasks), Unit: "ms"},
		{Name: fmt.Sprintf("keys set by %d tasks", o.writers), Unit: "puts/s"},
		{Name: "processor time of all servers and the load for a key", Unit: "us"},
		{Name: fmt.Sprintf("keys set by %d tasks behind relays", o.writers), Unit: "puts/s"},
		{Name: "processor time of all servers and the streams for a key", Unit: "us"},
	}
	for m := range all {
		stock, hand := sheet.Median(s.figures[m][stockName]), sheet.Median(s.figures[putRate][handName])
		for _, p := range peers {
			c := sheet.NewCell(p.name, s.figures[m][p.name])
			if len(c.Rounds) > 0 {
				if p.store != "" && stock > 0 {
					c.Ratio = c.Median / stock
				}
				judge(&c, p, metric(m), o, hand)
			}
			all[m].Cells = append(all[m].Cells, c)
		}
	}
	return all
}

// judge holds a cell to its bar, if it has one and was measured at the size that is about. hand is the
// figure of etcd by hand, or 0.
func judge(c *sheet.Cell, p peer, m metric, o options, hand float64) {
	outlives := p.store == inFile || p.store == inEtcd
	least := leastDirect
	if m == streamRate {
		least = leastRelays
	}
	kept := false
	switch {
	case m == barrierTime && outlives && c.Ratio > 0 && o.tasks == barTasks:
		c.Bar, kept = fmt.Sprintf("<= %.2fx stock", mostOfStock), c.Ratio <= mostOfStock
	case (m == putRate || m == streamRate) && outlives && hand > 0 && o.writers == barWriters:
		c.Bar, kept = fmt.Sprintf("%.1fx by hand, >= %.1fx", c.Median/hand, least), c.Median >= least*hand
	default:
		return
	}
	c.Kept = sheet.Kept(kept)
}

// printTable writes a block for each row, one line for each peer.
func printTable(w io.Writer, rows []row, peers []peer) error {
	tw := sheet.Table(w)
	fmt.Fprint(tw, "measure\tunit")
	for _, p := range peers {
		fmt.Fprintf(tw, "\t%s", p.name)
		if p.store != "" {
			fmt.Fprint(tw, "\tratio\tbar")
		}
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%s", r.Name, r.Unit)
		for i, c := range r.Cells {
			fmt.Fprintf(tw, "\t%s", c)
			if peers[i].store != "" {
				fmt.Fprintf(tw, "\t%s\t%s", c.RatioText(), barText(c))
			}
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func barText(c sheet.Cell) string {
	if c.Bar == "" {
		return "-"
	}
	return c.Bar + " " + c.Kept
}

// printJSON writes the same as one object.
func printJSON(w io.Writer, rows []row, o options) error {
	return sheet.JSON(w, struct {
		Version int   `json:"version"`
		Tasks   int   `json:"tasks"`
		Writers int   `json:"writers"`
		Rounds  int   `json:"rounds"`
		Rows    []row `json:"rows"`
	}{1, o.tasks, o.writers, o.rounds, rows})
}
