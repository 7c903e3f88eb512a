package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
)

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
	_, err := fmt.Fprintf(q.out, "%s  %s\n", stamp, q.paint(c, q.cut(diagnose.NoteText(s, n), len(stamp)+2)))
	return err
}
