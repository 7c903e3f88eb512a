package main

import (
	"context"
	"fmt"
	"io"
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
		Example: `  serry status
  serry status --watch
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
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often, with --watch")
	return cmd
}

// leastPause bounds how often a service is asked.
const leastPause = 100 * time.Millisecond

// watchStatus shows the status until the service stops: in place on a terminal, one after the other
// elsewhere. An outage is told and waited out.
func (q *query) watchStatus(ctx context.Context, r *remote, every time.Duration) error {
	for {
		s, err := r.status(ctx, wire.StatusQuery{})
		if q.terminal && q.format != asJSON && q.format != asYAML {
			io.WriteString(q.out, "\x1b[H\x1b[J") // home, and clear what is below
		}
		if err != nil {
			if r.broken.Err() != nil {
				return err
			}
			fmt.Fprintf(q.errors, "serry: %v\n", err)
		} else if done, err := q.line(s); err != nil {
			return err
		} else if !done {
			if err := q.showStatus(r.address, s); err != nil {
				return err
			}
		}
		if s.Stopped {
			return nil
		}
		if err := pause.For(ctx, max(every, leastPause)); err != nil {
			return err
		}
		if !q.terminal && q.format == asTable {
			fmt.Fprintln(q.out)
		}
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
	if s.First != nil {
		line := fmt.Sprintf("%s ago: %s", diagnose.Ago(s.UpSeconds-s.First.AtSeconds), noteText(s, *s.First))
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
