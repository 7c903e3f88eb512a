package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
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
	leastOfHand = 5.0  // writes, of one etcd put for each
)

// A sheet collects figures: one per peer, metric and round.
type sheet struct {
	figures [metrics]map[string][]float64 // by peer
}

func newSheet() *sheet {
	s := new(sheet)
	for m := range s.figures {
		s.figures[m] = make(map[string][]float64)
	}
	return s
}

func (s *sheet) add(peer string, m metric, v float64) {
	s.figures[m][peer] = append(s.figures[m][peer], v)
}

// A row of the table, as JSON has it too.
type row struct {
	Name  string `json:"name"`
	Unit  string `json:"unit"`
	Cells []cell `json:"cells"` // in the order of the peers
}

type cell struct {
	Peer   string    `json:"peer"`
	Rounds []float64 `json:"rounds"` // empty: not measured of this peer
	Median float64   `json:"median"`
	Least  float64   `json:"least"`
	Most   float64   `json:"most"`
	Ratio  float64   `json:"ratio,omitempty"` // to the stock service, by medians
	Bar    string    `json:"bar,omitempty"`   // what is demanded, if anything
	Kept   string    `json:"kept,omitempty"`  // and whether that is so: ok or MISS
}

// rows judges the figures.
func (s *sheet) rows(o options, peers []peer) []row {
	all := []row{
		{Name: fmt.Sprintf("barrier of %d tasks, first arrival to last reply", o.tasks), Unit: "ms"},
		{Name: fmt.Sprintf("keys set by %d tasks", o.writers), Unit: "puts/s"},
		{Name: "processor time of all servers and the load for a key", Unit: "us"},
		{Name: fmt.Sprintf("keys set by %d tasks behind relays", o.writers), Unit: "puts/s"},
		{Name: "processor time of all servers and the streams for a key", Unit: "us"},
	}
	for m := range all {
		stock, hand := middle(s.figures[m][stockName]), middle(s.figures[putRate][handName])
		for _, p := range peers {
			c := cell{Peer: p.name, Rounds: []float64{}}
			if v := s.figures[m][p.name]; len(v) > 0 {
				c.Rounds, c.Median, c.Least, c.Most = v, median(v), slices.Min(v), slices.Max(v)
				if p.ours && stock > 0 {
					c.Ratio = c.Median / stock
				}
				c.judge(metric(m), o, hand)
			}
			all[m].Cells = append(all[m].Cells, c)
		}
	}
	return all
}

func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return median(v)
}

// judge holds a cell to its bar, if it has one and was measured at the size that is about. hand is the
// figure of etcd by hand, or 0.
func (c *cell) judge(m metric, o options, hand float64) {
	outlives := c.Peer == fileName || c.Peer == etcdName
	kept := false
	switch {
	case m == barrierTime && outlives && c.Ratio > 0 && o.tasks == barTasks:
		c.Bar, kept = fmt.Sprintf("<= %.2fx stock", mostOfStock), c.Ratio <= mostOfStock
	case (m == putRate || m == streamRate) && outlives && hand > 0 && o.writers == barWriters:
		c.Bar, kept = fmt.Sprintf("%.1fx by hand, >= %.0fx", c.Median/hand, leastOfHand), c.Median >= leastOfHand*hand
	default:
		return
	}
	if c.Kept = "MISS"; kept {
		c.Kept = "ok"
	}
}

// printTable writes a block for each row, one line for each peer.
func printTable(w io.Writer, rows []row, peers []peer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "measure\tunit")
	for _, p := range peers {
		fmt.Fprintf(tw, "\t%s", p.name)
		if p.ours {
			fmt.Fprint(tw, "\tratio\tbar")
		}
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%s", r.Name, r.Unit)
		for i, c := range r.Cells {
			fmt.Fprintf(tw, "\t%s", c)
			if peers[i].ours {
				fmt.Fprintf(tw, "\t%s\t%s", c.ratio(), c.bar())
			}
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

func (c cell) String() string {
	if len(c.Rounds) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s-%s)", figure(c.Median), figure(c.Least), figure(c.Most))
}

func (c cell) ratio() string {
	if c.Ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", c.Ratio)
}

func (c cell) bar() string {
	if c.Bar == "" {
		return "-"
	}
	return c.Bar + " " + c.Kept
}

// figure prints three digits or more.
func figure(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// printJSON writes the same as one object.
func printJSON(w io.Writer, rows []row, o options) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Version int   `json:"version"`
		Tasks   int   `json:"tasks"`
		Writers int   `json:"writers"`
		Rounds  int   `json:"rounds"`
		Rows    []row `json:"rows"`
	}{1, o.tasks, o.writers, o.rounds, rows})
}
