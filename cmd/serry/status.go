package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
)

func newStatus() *cobra.Command {
	q := &query{}
	var watch bool
	var every time.Duration
	cmd := q.command(&cobra.Command{
		Use:   "status",
		Short: "Show how the job is: who is there, who waits for whom",
		Long: `Show how the job is: who is there, who waits for whom, which ranks hold the
others up, and how much of the time was of use (see serry help steps).

With --watch it is shown in place on a terminal, until q or Ctrl-C. Where the
output is no terminal it is a line for each change, and with -o json an object
each time, on a line of its own.`,
		Example: `  serry status
  serry status --watch
  serry status --watch | tee what-happened.txt
  serry status -o json --address coord.example.org`,
		Args: noArguments,
	}, func(ctx context.Context, r *remote, _ []string) error {
		if watch {
			return q.watchStatus(ctx, r, every)
		}
		s, err := r.status(ctx, wire.StatusQuery{})
		if err != nil {
			return err
		}
		if done, err := q.object(s); done {
			return err
		}
		return q.showStatus(r.address, s)
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again: in place on a terminal, else a line for each change")
	cmd.Flags().DurationVar(&every, "every", viewPause, "how often to ask, with --watch")
	return cmd
}

// leastPause bounds how often a service is asked.
const leastPause = 100 * time.Millisecond

// watchStatus shows the status until the service stops, or the user has seen enough.
func (q *query) watchStatus(ctx context.Context, r *remote, every time.Duration) error {
	every = max(every, leastPause)
	if !q.terminal || q.format == asJSON || q.format == asYAML {
		return q.stream(ctx, r, every, wire.StatusQuery{})
	}
	l := openLive(q.out, os.Stdin)
	defer l.close()
	return l.show(ctx, statusView{&topView{printer: &q.printer, remote: r}}, every)
}

// stream prints a status again and again where the output is no terminal: an object each time, and for people a line whenever
// something has changed. An outage is told and waited out.
func (q *query) stream(ctx context.Context, r *remote, every time.Duration, want wire.StatusQuery) error {
	last, away := "", false
	for {
		s, err := r.status(ctx, want)
		switch {
		case err != nil && r.broken.Err() != nil:
			return err
		case err != nil && !away:
			fmt.Fprintf(q.errors, "serry: %v; waiting for it\n", err)
		case err == nil:
			if last, err = q.news(s, last); err != nil {
				return err
			}
		}
		away = err != nil
		if s.Stopped {
			return nil
		}
		if err := pause.For(ctx, every); err != nil {
			return err
		}
	}
}

// news prints a status, or for people what of it has changed since the last one.
func (q *query) news(s wire.Status, last string) (text string, err error) {
	if done, err := q.line(s); done || err != nil {
		return "", err
	}
	if text = q.changeText(s); text == last {
		return text, nil
	}
	_, err = fmt.Fprintf(q.out, "%s  %s\n", s.Clock.Local().Format(time.TimeOnly), text)
	return text, err
}

// changeText is how the job is, in a line, without anything that changes while nothing happens.
func (p *printer) changeText(s wire.Status) string {
	parts := []string{fmt.Sprintf("attempt %d: %s; %s", s.Epoch, p.mood(s), p.counts(s))}
	if s.First != nil {
		parts = append(parts, "first failure: "+diagnose.NoteText(s, *s.First))
	}
	for _, b := range s.Barriers {
		parts = append(parts, waitLine(s, b))
	}
	for _, one := range s.Stragglers {
		who := "host " + one.Host
		if one.Task != "" {
			who = diagnose.RankText(s, one.Task)
		}
		parts = append(parts, who+" is slow")
	}
	if s.Goodput != nil && s.Goodput.Phase != "" {
		parts = append(parts, "in "+s.Goodput.Phase)
	}
	return oneLine(strings.Join(parts, "; "))
}

// waitLine is a wait in a line: where, how many have come, and which have not.
func waitLine(s wire.Status, b wire.BarrierStatus) string {
	return fmt.Sprintf("%s %d/%d, missing %s", diagnose.Place(b.ID), b.Arrived, b.Members, diagnose.MissingText(s, b))
}

// slowShown is how many stragglers a status names.
const slowShown = 3

// showPace prints how the job used its time, and the ranks that hold the others up. It prints nothing for a job that reports no
// steps and has no such rank.
func (p *printer) showPace(s wire.Status) {
	if s.Goodput != nil || p.format == asWide {
		p.wrap(cell{"goodput  ", bold}, cell{text: diagnose.GoodputText(s.Goodput)})
	}
	for _, text := range diagnose.StragglerLines(s, slowShown) {
		p.wrap(cell{"slow     ", bold}, cell{text, yellow})
	}
}

// showStatus prints a status for people.
func (p *printer) showStatus(address string, s wire.Status) error {
	fmt.Fprintf(p.out, "%s  %s, attempt %d, up %s, %s\n", p.paint(bold, "service"), address, s.Epoch, diagnose.Ago(s.UpSeconds), p.mood(s))
	if s.Leader != "" {
		fmt.Fprintf(p.out, "%s   %s, term %d\n", p.paint(bold, "leader"), oneLine(s.Leader), s.Term)
	}
	fmt.Fprintf(p.out, "%s    %s\n", p.paint(bold, "ranks"), p.counts(s))
	fmt.Fprintf(p.out, "%s     %d, %s; %d calls wait\n", p.paint(bold, "keys"), s.Keys, bytesText(s.StoreBytes), s.Waiting)
	p.showPace(s)
	if s.First != nil {
		line := fmt.Sprintf("%s ago: %s", diagnose.Ago(s.UpSeconds-s.First.AtSeconds), diagnose.NoteText(s, *s.First))
		fmt.Fprintf(p.out, "%s   %s\n", p.paint(bold, "failed"), p.paint(red, p.cut(line, len("failed   "))))
		fmt.Fprintln(p.out, "         serry why says more")
	}
	if len(s.Barriers) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	return p.table(barrierTable(s, p.format == asWide))
}

// cut shortens a line that begins with some characters of its own to the screen.
func (p *printer) cut(line string, begins int) string {
	line = oneLine(line)
	if p.format == asWide {
		return line
	}
	return fit(line, p.width-begins)
}

// mood is the state of the job in a word.
func (p *printer) mood(s wire.Status) string {
	switch {
	case s.Stopped:
		return p.paint(red, "stopped")
	case s.Failure != "":
		return p.paint(red, "failed")
	case s.Counts[wire.StateConnected] == s.Size:
		return p.paint(green, "all ranks are there")
	case s.Counts[wire.StateFailed] > 0:
		return p.paint(yellow, "some ranks have failed")
	case s.Counts[wire.StateRegistering] > 0:
		return p.paint(yellow, "waiting for ranks")
	case s.Counts[wire.StateAbsent] == s.Size:
		return "no rank has come yet"
	case s.Counts[wire.StateLeft] == s.Size:
		return "all ranks have left"
	}
	return "running"
}

// states are in the order in which people want to hear of them.
var states = []string{wire.StateConnected, wire.StateRegistering, wire.StateFailed, wire.StateLeft, wire.StateAbsent}

func stateColour(state string) colour {
	switch state {
	case wire.StateConnected:
		return green
	case wire.StateFailed:
		return red
	case wire.StateRegistering, wire.StateAbsent:
		return yellow
	}
	return plain
}

// counts says how many tasks are in which state.
func (p *printer) counts(s wire.Status) string {
	var parts []string
	for _, state := range states {
		if n := s.Counts[state]; n > 0 {
			parts = append(parts, p.paint(stateColour(state), fmt.Sprintf("%d %s", n, state)))
		}
	}
	return fmt.Sprintf("%d: %s", s.Size, strings.Join(parts, ", "))
}

func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), 0
	for f >= unit && i < 5 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, " KMGTP"[i])
}
