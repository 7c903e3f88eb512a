package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
)

// peopleSay turns the words of the service into those of people: its tasks are ranks, its epochs attempts.
var peopleSay = strings.NewReplacer("a member", "a rank", "tasks", "ranks", "task", "rank", "epoch", "attempt", "former run", "former attempt")

// noteText says what happened in a line.
func noteText(s wire.Status, n wire.NoteStatus) string {
	var b strings.Builder
	what := peopleSay.Replace(n.What)
	end, ofBarrier := strings.CutPrefix(what, "barrier ")
	did, ofTask := strings.CutPrefix(what, "rank ")
	switch {
	case ofTask && n.Task != "":
		what, n.Task = rankText(s, n.Task)+" "+did, ""
	case ofBarrier && n.Barrier != "":
		what, n.Barrier = diagnose.Place(n.Barrier)+" "+end, ""
	}
	b.WriteString(what)
	if n.Barrier != "" {
		b.WriteString(" at " + diagnose.Place(n.Barrier))
	}
	if n.Task != "" {
		b.WriteString(" of " + rankText(s, n.Task))
	}
	if n.From != "" {
		b.WriteString(" from " + n.From)
	}
	if n.Of != 0 {
		fmt.Fprintf(&b, " (%d of %d)", n.Count, n.Of)
	}
	if text := cmp.Or(strings.TrimSuffix(peopleSay.Replace(n.Cause)+": "+n.Evidence, ": "), n.Error); text != "" {
		b.WriteString(": " + text)
	}
	if len(n.Missing) > 0 {
		b.WriteString(", without " + ranksText(s, n.Missing))
	}
	if n.More > 0 {
		fmt.Fprintf(&b, " (and %d more)", n.More)
	}
	return b.String()
}

// watchPause is how often serry watch asks for news.
const watchPause = 250 * time.Millisecond

func newWatch() *cobra.Command {
	q := &query{}
	var past bool
	cmd := q.command(&cobra.Command{
		Use:   "watch",
		Short: "Tell what happens to the job, as it happens",
		Long: `Tell what happens to the job, as it happens: ranks that come, fail and leave,
barriers that fail, attempts that begin. It begins with what happened lately, and ends
when the service has stopped or has been away for a while.`,
		Args: noArguments,
	}, func(ctx context.Context, r *remote, _ []string) error {
		return q.follow(ctx, r, past)
	})
	cmd.Flags().BoolVar(&past, "past", false, "only what happened until now")
	return cmd
}

// awayPatience is how long serry watch waits for a service that has gone away.
const awayPatience = 10 * time.Second

// follow prints notes, oldest first, each once.
func (q *query) follow(ctx context.Context, r *remote, past bool) error {
	var after uint64
	heard := time.Now()
	for away := false; ; {
		s, err := r.status(ctx, wire.StatusQuery{After: after})
		if err != nil && (past || r.broken.Err() != nil || time.Since(heard) > awayPatience) {
			return err
		}
		if err == nil {
			heard = time.Now()
		} else if !away {
			fmt.Fprintf(q.errors, "serry: %v; waiting for it\n", err)
		}
		away = err != nil
		for _, n := range s.Notes {
			after = n.Number
			if err := q.note(s, n); err != nil {
				return err
			}
		}
		if s.Stopped || past {
			return nil
		}
		if err := pause.For(ctx, watchPause); err != nil {
			return err
		}
	}
}

// note prints one of them, with the time of the service's own clock.
func (q *query) note(s wire.Status, n wire.NoteStatus) error {
	at := s.Clock.Add(-time.Duration((s.UpSeconds - n.AtSeconds) * float64(time.Second))).Round(time.Millisecond)
	if done, err := q.line(struct {
		Version int       `json:"version"`
		Time    time.Time `json:"time"`
		wire.NoteStatus
	}{outputVersion, at, n}); done {
		return err
	}
	c := plain
	if n.Error != "" {
		c = red
	}
	stamp := at.Local().Format(time.TimeOnly)
	_, err := fmt.Fprintf(q.out, "%s  %s\n", stamp, q.paint(c, q.cut(noteText(s, n), len(stamp)+2)))
	return err
}
