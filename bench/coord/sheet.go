package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A record collects figures: one per peer, metric, number of tasks and round.
type record struct {
	figures map[rowKey]map[string][]float64 // by peer
}

type rowKey struct {
	metric metric
	tasks  int
}

func newRecord() *record { return &record{make(map[rowKey]map[string][]float64)} }

func (s *record) add(peer string, m metric, tasks int, v float64) {
	if m == metrics {
		return // a figure that has no row
	}
	k := rowKey{m, tasks}
	if s.figures[k] == nil {
		s.figures[k] = make(map[string][]float64)
	}
	s.figures[k][peer] = append(s.figures[k][peer], v)
}

// A row of the table, as JSON has it too.
type row struct {
	Group string       `json:"group"`
	Name  string       `json:"name"`
	Tasks int          `json:"tasks"`
	Unit  string       `json:"unit"`
	Cells []sheet.Cell `json:"cells"` // in the order of the peers
}

// rows judges the figures.
func (s *record) rows(peers []peer) []row {
	keys := slices.SortedFunc(maps.Keys(s.figures), func(a, b rowKey) int {
		return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.tasks, b.tasks))
	})
	var all []row
	for _, k := range keys {
		if k.metric == callsRefused && !s.any(k) {
			continue // nothing to tell
		}
		d := k.metric.define()
		r := row{Group: d.group, Name: d.label, Tasks: k.tasks, Unit: d.unit}
		for _, peer := range peers {
			c := sheet.NewCell(peer.name, s.figures[k][peer.name])
			if stock := sheet.Median(s.figures[k][stockName]); peer.name != stockName && stock > 0 {
				c.Ratio = c.Median / stock
			}
			if peer.ours && slices.Contains(d.at, k.tasks) {
				judge(&c, d.bar)
			}
			r.Cells = append(r.Cells, c)
		}
		all = append(all, r)
	}
	return all
}

// any says whether a figure of the row is not zero.
func (s *record) any(k rowKey) bool {
	for _, values := range s.figures[k] {
		if slices.Max(values) > 0 {
			return true
		}
	}
	return false
}

// judge holds a cell to a limit. Without the stock service a ratio cannot be judged.
func judge(c *sheet.Cell, l limit) {
	switch {
	case len(c.Rounds) == 0:
	case l.ratio > 0 && c.Ratio > 0:
		c.Judge(fmt.Sprintf("<= %.2fx", l.ratio), c.Ratio <= l.ratio)
	case l.value > 0:
		c.Judge("<= "+sheet.Figure(l.value), c.Median <= l.value)
	case l.least > 0:
		c.Judge(">= "+sheet.Figure(l.least), c.Median >= l.least)
	}
}

// printTable writes one line per row: what, how many tasks, and for each peer the median, the
// spread over the rounds, the ratio to the stock service and the verdict.
func printTable(w io.Writer, rows []row, peers []peer) error {
	tw := sheet.Table(w)
	fmt.Fprint(tw, "measure\ttasks\tunit")
	for _, p := range peers {
		fmt.Fprintf(tw, "\t%s", p.name)
		if p.ours {
			fmt.Fprint(tw, "\tratio\tbar")
		}
	}
	fmt.Fprintln(tw)
	for _, r := range rows {
		fmt.Fprintf(tw, "%s\t%d\t%s", r.Name, r.Tasks, r.Unit)
		for i, c := range r.Cells {
			fmt.Fprintf(tw, "\t%s", c)
			if peers[i].ours {
				fmt.Fprintf(tw, "\t%s\t%s %s", c.RatioText(), c.Bar, c.Kept)
			}
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// printJSON writes the same as one object.
func printJSON(w io.Writer, rows []row, p plan) error {
	return sheet.JSON(w, struct {
		Version int   `json:"version"`
		Rounds  int   `json:"rounds"`
		Rows    []row `json:"rows"`
	}{1, p.rounds, rows})
}
