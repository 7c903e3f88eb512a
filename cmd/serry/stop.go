package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/wire"
)

func newStop() *cobra.Command {
	q := &query{}
	return q.command(&cobra.Command{
		Use:   "stop",
		Short: "End the job of a service, for all its ranks",
		Long: `End the job of a service. Every call that waits is told that the service ends,
and every rank that misses it ends in its own way. Nothing brings this job back:
the next one begins without its keys.

A single server ends with the job. Where several servers stand for one service
they stay, and wait for the next job; SIGTERM ends each of them.

SIGTERM alone does not end a job that is kept in a store (serry serve --store, or
--peers): it goes on when a server is started again.`,
		Example: `  # end the job; any of the servers may be asked
  serry stop --address host1:8476

  # for a script
  serry stop --address host1:8476 -o json`,
		Args: noArguments,
	}, q.stop)
}

// stopped is the answer of serry stop.
type stopped struct {
	Version   int     `json:"version"`
	Term      uint64  `json:"term"`      // of the leadership that ended the job; 0 in memory
	Next      uint64  `json:"next_term"` // that waits for the next job; 0: the server has ended
	TookMilli float64 `json:"took_ms"`
}

// stopPatience is how long serry stop waits until the job has ended.
const stopPatience = 30 * time.Second

func (q *query) stop(ctx context.Context, r *remote, _ []string) error {
	began := time.Now()
	asked, err := r.lead(ctx, wire.LeadRequest{Stop: true})
	if err != nil {
		return err
	}
	if !asked.Stopping {
		return hinted{errors.New("the server is too old to be told to stop"), "end it with SIGTERM, or replace it and try again"}
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	next, err := q.successor(ctx, asked.Term)
	if err != nil {
		return fmt.Errorf("the service was told to end, and no word of its end came: %w", err)
	}
	e := stopped{outputVersion, asked.Term, next, float64(time.Since(began).Microseconds()) / 1000}
	if done, err := q.object(e); done {
		return err
	}
	text := "the job has ended, and its server"
	if next != 0 {
		text = fmt.Sprintf("the job has ended, term %d waits for the next one", next)
	}
	_, err = fmt.Fprintln(q.out, text)
	return err
}
