package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// viewPause is how often views on a terminal are drawn: twice a second (D-CLI-3).
const viewPause = 500 * time.Millisecond

func newTop() *cobra.Command {
	q := &query{}
	var every time.Duration
	cmd := q.command(&cobra.Command{
		Use:   "top",
		Short: "Watch the ranks of the job, those in trouble first",
		Long: `Watch the ranks of the job, those in trouble first: what is wrong, what is waited
for, how much of the time was of use, and of each rank its state, its host, its
step, how many steps it is behind, when it was last heard and what it does.

States: F failed, ! keeps the others waiting, - not there yet, r registering,
m missing at a barrier, s slower than the others, . at work, x has left.

Keys: up and down choose a rank, Enter shows it with its stack, / filters by
rank, host or what it does, s sorts by trouble, rank, step or silence, w says why,
l tells what happened lately, Esc goes back, q ends.

Without a terminal it prints a line whenever something has changed, and with
-o json an object each time, with all ranks.`,
		Example: `  serry top
  serry top --address coord.example.org
  serry top | tee what-happened.txt
  serry top -o json --every 10s`,
		Args: noArguments,
	}, func(ctx context.Context, r *remote, _ []string) error {
		v := &topView{printer: &q.printer, remote: r}
		if !q.terminal || q.format == asJSON || q.format == asYAML {
			return q.stream(ctx, r, max(every, leastPause), wire.StatusQuery{Tasks: true, Sight: true, Calls: true})
		}
		l := openLive(q.out, os.Stdin)
		defer l.close()
		return l.show(ctx, v, max(every, leastPause))
	})
	cmd.Flags().DurationVar(&every, "every", viewPause, "how often to ask")
	return cmd
}

// A topView is what serry top shows.
type topView struct {
	*printer
	remote *remote

	status wire.Status
	hang   *diagnose.HangReport
	report diagnose.Report
	failed error // of the last question, or nil

	filter  string
	typing  bool // the filter is being typed
	sort    int  // of sorts
	chosen  int  // row
	escaped int  // bytes of a key that has several
	panel   []string
}

// sorts are the orders of the rows.
var sorts = []string{"trouble", "rank", "step", "silence"}

// ask brings the picture up to date. An outage is shown, and waited out.
func (v *topView) ask(ctx context.Context) error {
	e, err := v.remote.evidence(ctx)
	if v.failed = err; err != nil {
		if v.remote.broken.Err() != nil || ctx.Err() != nil {
			return err
		}
		return nil
	}
	v.status, v.hang, v.report = e.Status, e.Hang, diagnose.Judge(e)
	return nil
}

func (v *topView) over() bool { return v.failed == nil && v.status.Stopped }

// lines draws the picture.
func (v *topView) lines(columns, height int) []string {
	v.width = columns
	all := v.head()
	if v.panel != nil {
		return append(v.fitted(append(all, v.panel...), height-1), v.cut("Esc back  q quit", 0))
	}
	rows := v.rows()
	room := max(1, height-len(all)-2) // the titles, and the keys
	v.chosen = min(max(v.chosen, 0), max(0, len(rows)-1))
	first := max(0, min(v.chosen-room/2, len(rows)-room))
	shown := rows[first:min(len(rows), first+room)]
	if len(shown) < len(rows) {
		all[len(all)-1] = v.cut(fmt.Sprintf("%d to %d of %d", first+1, first+len(shown), len(rows)), 0) // else an empty line
	}
	all = append(all, v.table(shown, v.chosen-first)...)
	return append(v.fitted(all, height-1), v.foot())
}

// fitted cuts lines to a number of them.
func (v *topView) fitted(lines []string, most int) []string {
	return lines[:min(len(lines), max(most, 1))]
}

// headWaits is how many waits and stragglers the head names.
const headWaits = 4

// head says how the job is.
func (v *topView) head() []string {
	s := v.status
	if s.Version == 0 {
		return []string{v.cut(fmt.Sprintf("%s: %v", v.remote.address, v.failed), 0)}
	}
	title := fmt.Sprintf("%s  attempt %d  up %s  %s", v.remote.address, s.Epoch, diagnose.Ago(s.UpSeconds), v.counts(s))
	lines := []string{v.paint(bold, "serry top ") + " " + title}
	if v.failed != nil {
		lines = append(lines, v.paint(red, v.cut(fmt.Sprintf("%v; showing what was known before", v.failed), 0)))
	}
	c := red
	if v.report.Healthy {
		c = green
	}
	lines = append(lines, v.paint(c, v.cut(v.report.Verdict, 0)))
	lines = append(lines, v.cut("goodput "+diagnose.GoodputText(s.Goodput), 0))
	for _, text := range diagnose.StragglerLines(s, headWaits) {
		lines = append(lines, v.paint(yellow, v.cut(text, 0)))
	}
	for i, b := range s.Barriers {
		if i == headWaits {
			lines = append(lines, v.cut(fmt.Sprintf("and %d more waits", len(s.Barriers)-i), 0))
			break
		}
		lines = append(lines, v.cut(waitLine(s, b)+", "+diagnose.Ago(b.ForSeconds), 0))
	}
	return append(lines, "")
}

// foot says which keys there are.
func (v *topView) foot() string {
	if v.typing {
		return v.cut("filter: "+v.filter+"_", 0)
	}
	text := fmt.Sprintf("sorted by %s   / filter  s sort  Enter details  w why  l log  q quit", sorts[v.sort])
	if v.filter != "" {
		text = fmt.Sprintf("filter %q   ", v.filter) + text
	}
	return v.cut(text, 0)
}

// A topRow is a rank.
type topRow struct {
	rank string
	task *wire.TaskStatus
	diagnose.Marked
	step int64 // -1: none was reported
	lag  int64
}

// rows are the ranks that the filter lets through, in order.
func (v *topView) rows() []topRow {
	s := v.status
	most := int64(-1)
	for _, n := range s.Steps {
		most = max(most, n)
	}
	marks := diagnose.MarkRanks(s, v.hang)
	var rows []topRow
	for i := range s.Tasks {
		t := &s.Tasks[i]
		r := topRow{rank: diagnose.RankOf(t.Task, len(s.Jobs) == 1), task: t, Marked: marks[i], step: -1}
		if i < len(s.Steps) {
			r.step = s.Steps[i]
		}
		if r.step >= 0 {
			r.lag = most - r.step
		}
		if v.passes(&r) {
			rows = append(rows, r)
		}
	}
	v.order(rows)
	return rows
}

// passes says whether the filter lets a row through.
func (v *topView) passes(r *topRow) bool {
	return v.filter == "" || strings.Contains(r.rank+" "+hostOf(r.task.From)+" "+r.task.State+" "+r.Doing, v.filter)
}

// order sorts the rows. Those that are equal stay in the order of their numbers.
func (v *topView) order(rows []topRow) {
	heard := func(r topRow) float64 {
		if r.task.HeardSeconds == nil {
			return 0
		}
		return *r.task.HeardSeconds
	}
	slices.SortStableFunc(rows, func(a, b topRow) int {
		switch sorts[v.sort] {
		case "step":
			return cmp.Compare(a.step, b.step)
		case "silence":
			return cmp.Compare(heard(b), heard(a))
		case "rank":
			return 0
		}
		return cmp.Or(cmp.Compare(b.Trouble, a.Trouble), cmp.Compare(b.lag, a.lag))
	})
}

// markColour is the colour of a mark: red for a rank that is to be looked at first.
func markColour(m diagnose.Mark) colour {
	switch m {
	case diagnose.MarkFailed, diagnose.MarkBlamed:
		return red
	case diagnose.MarkAtWork, diagnose.MarkLeft:
		return plain
	}
	return yellow
}

// table draws rows below their titles. The chosen one is marked.
func (v *topView) table(rows []topRow, chosen int) []string {
	t := &table{columns: []column{{title: " "}, {title: "S"}, {title: "RANK", most: 16}, {title: "HOST", most: 20}, {title: "STEP", right: true}, {title: "LAG", right: true}, {title: "HEARD", right: true}, {title: "DOING"}}}
	for i, r := range rows {
		at, step, lag, heard := " ", "-", "-", "-"
		if i == chosen {
			at = ">"
		}
		if r.step >= 0 {
			step, lag = fmt.Sprint(r.step), fmt.Sprint(r.lag)
		}
		if r.task.HeardSeconds != nil {
			heard = diagnose.Ago(*r.task.HeardSeconds)
		}
		t.add(cell{at, bold}, cell{string(rune(r.Mark)), markColour(r.Mark)}, cell{r.rank, markColour(r.Mark)}, cell{text: hostOf(r.task.From)}, cell{text: step}, cell{text: lag}, cell{text: heard}, cell{text: r.Doing})
	}
	return v.drawn(func(p *printer) error { return p.table(t) })
}

// drawn is what a printer prints, in lines.
func (v *topView) drawn(show func(*printer) error) []string {
	var b bytes.Buffer
	p := *v.printer
	p.out = &b
	_ = show(&p) // a buffer takes everything
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
