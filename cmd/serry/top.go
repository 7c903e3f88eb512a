package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
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
m missing at a barrier, s slower than the others, w waits for others, . at work,
x has left.

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

	status wire.Status // with the ranks that pick names, or with all
	hang   *diagnose.HangReport
	report diagnose.Report
	judged time.Time // when the report was made of all ranks, where the status has not all
	failed error     // of the last question, or nil
	height int       // of the terminal, in lines

	filter  string
	typing  bool // the filter is being typed
	sort    int  // of sorts
	chosen  int  // row
	escaped int  // bytes of a key that has several
	panel   []string
}

// sorts are the orders of the rows.
var sorts = []wire.Order{wire.ByTrouble, wire.ByRank, wire.ByStep, wire.BySilence}

const (
	leastPicked  = 64              // rows that are asked for: about a screen before and after those that are shown
	verdictPause = 2 * time.Second // between questions for all ranks, which a verdict on a job in trouble rests on
)

// pick is what of the ranks is asked for: those that fit, and half as many before and after them.
func (v *topView) pick() wire.Pick {
	limit := min(max(leastPicked, 2*v.height), wire.MaxPicked)
	return wire.Pick{Limit: limit, From: max(0, v.chosen-limit/2), Order: sorts[v.sort], Filter: v.filter, Blamed: v.hang.Blamed(v.status)}
}

// ask brings the picture up to date. An outage is shown, and waited out.
func (v *topView) ask(ctx context.Context) error {
	v.failed = v.look(ctx)
	if v.failed != nil && (v.remote.broken.Err() != nil || ctx.Err() != nil) {
		return v.failed
	}
	return nil
}

// look asks for the ranks that fit, or for all where all of them do (D-CLI-3).
func (v *topView) look(ctx context.Context) error {
	pick := v.pick()
	want := wire.StatusQuery{Tasks: true, Sight: true, Calls: true, Pick: &pick}
	if v.status.Version != 0 && v.status.Size <= pick.Limit {
		want.Pick = nil
	}
	s, err := v.remote.status(ctx, want)
	if err == nil && s.Picked != nil && s.Size <= pick.Limit {
		want.Pick = nil
		s, err = v.remote.status(ctx, want)
	}
	if err != nil {
		return err
	}
	e, _ := v.remote.beside(ctx, s) // serry why says what is wrong with records
	v.status, v.hang = s, e.Hang
	switch {
	case s.Picked == nil:
		v.report = diagnose.Judge(e)
	case !e.InTrouble():
		v.report, v.judged = diagnose.Judge(e.Whole()), time.Time{}
	case time.Since(v.judged) >= verdictPause:
		return v.judgeAll(ctx)
	}
	return nil
}

// judgeAll makes the report of all ranks.
func (v *topView) judgeAll(ctx context.Context) error {
	e, err := v.remote.evidence(ctx)
	if err != nil {
		return err
	}
	v.report, v.judged = diagnose.Judge(e), time.Now()
	return nil
}

func (v *topView) over() bool { return v.failed == nil && v.status.Stopped }

// lines draws the picture.
func (v *topView) lines(columns, height int) []string {
	v.width, v.height = columns, height
	all := v.head()
	if v.panel != nil {
		return append(v.fitted(append(all, v.panel...), height-1), v.cut("Esc back  q quit", 0))
	}
	rows, before, total := v.rows()
	room := max(1, height-len(all)-2) // the titles, and the keys
	v.chosen = min(max(v.chosen, 0), max(0, total-1))
	first := max(0, min(v.chosen-room/2, total-room))
	from := min(max(0, first-before), len(rows))
	shown := rows[from:min(len(rows), max(from, first+room-before))]
	if len(shown) < total {
		all[len(all)-1] = v.cut(fmt.Sprintf("%d to %d of %d", before+from+1, before+from+len(shown), total), 0) // else an empty line
	}
	all = append(all, v.table(shown, v.chosen-before-from)...)
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

// rows are ranks that the filter lets through, in order: those near the chosen one. before is how many there are before them, and total
// how many there are.
func (v *topView) rows() (rows []topRow, before, total int) {
	s := v.status
	s.Picks(v.pick()) // an older server has told of all
	marks := diagnose.MarkRanks(s, v.hang)
	for i := range s.Tasks {
		t := &s.Tasks[i]
		r := topRow{rank: diagnose.RankOf(t.Task, len(s.Jobs) == 1), task: t, Marked: marks[i], step: -1}
		if i < len(s.Steps) {
			r.step = s.Steps[i]
		}
		if r.step >= 0 {
			r.lag = s.Picked.MostStep - r.step
		}
		rows = append(rows, r)
	}
	return rows, s.Picked.From, s.Picked.Matching
}

// markColour is the colour of a mark: red for a rank that is to be looked at first.
func markColour(m diagnose.Mark) colour {
	switch m {
	case diagnose.MarkFailed, diagnose.MarkBlamed:
		return red
	case diagnose.MarkWaiting, diagnose.MarkAtWork, diagnose.MarkLeft:
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
