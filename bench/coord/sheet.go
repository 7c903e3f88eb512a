package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
)

// A sheet collects figures: one per peer, metric, number of tasks and round.
type sheet struct {
	figures map[rowKey]map[string][]float64 // by peer
}

type rowKey struct {
	metric metric
	tasks  int
}

func newSheet() *sheet { return &sheet{make(map[rowKey]map[string][]float64)} }

func (s *sheet) add(peer string, m metric, tasks int, v float64) {
	if m == metrics {
		return // a figure that has no row
	}
	k := rowKey{m, tasks}
	if s.figures[k] == nil {
		s.figures[k] = make(map[string][]float64)
	}
	s.figures[k][peer] = append(s.figures[k][peer], v)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid]
	}
	return (v[mid-1] + v[mid]) / 2
}

// A row of the table, as JSON has it too.
type row struct {
	Group string `json:"group"`
	Name  string `json:"name"`
	Tasks int    `json:"tasks"`
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
func (s *sheet) rows(peers []peer) []row {
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
			c := summary(peer.name, s.figures[k][peer.name])
			if stock := summary(stockName, s.figures[k][stockName]).Median; peer.name != stockName && stock > 0 {
				c.Ratio = c.Median / stock
			}
			if peer.ours && slices.Contains(d.at, k.tasks) {
				c.judge(d.bar)
			}
			r.Cells = append(r.Cells, c)
		}
		all = append(all, r)
	}
	return all
}

// any says whether a figure of the row is not zero.
func (s *sheet) any(k rowKey) bool {
	for _, values := range s.figures[k] {
		if slices.Max(values) > 0 {
			return true
		}
	}
	return false
}

func summary(peer string, v []float64) cell {
	if len(v) == 0 {
		return cell{Peer: peer, Rounds: []float64{}}
	}
	return cell{Peer: peer, Rounds: v, Median: median(v), Least: slices.Min(v), Most: slices.Max(v)}
}

// judge holds a cell to a limit. Without the stock service a ratio cannot be judged.
func (c *cell) judge(l limit) {
	kept := false
	switch {
	case len(c.Rounds) == 0:
		return
	case l.ratio > 0 && c.Ratio > 0:
		c.Bar, kept = fmt.Sprintf("<= %.2fx", l.ratio), c.Ratio <= l.ratio
	case l.value > 0:
		c.Bar, kept = "<= "+figure(l.value), c.Median <= l.value
	case l.least > 0:
		c.Bar, kept = ">= "+figure(l.least), c.Median >= l.least
	default:
		return
	}
	if c.Kept = "MISS"; kept {
		c.Kept = "ok"
	}
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

// printTable writes one line per row: what, how many tasks, and for each peer the median, the
// spread over the rounds, the ratio to the stock service and the verdict.
func printTable(w io.Writer, rows []row, peers []peer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
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
				fmt.Fprintf(tw, "\t%s\t%s %s", c.ratio(), c.Bar, c.Kept)
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

// printJSON writes the same as one object.
func printJSON(w io.Writer, rows []row, p plan) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Version int   `json:"version"`
		Rounds  int   `json:"rounds"`
		Rows    []row `json:"rows"`
	}{1, p.rounds, rows})
}
