package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/wire"
)

const (
	// handoverPatience is how long serry handover waits for a successor.
	handoverPatience = 30 * time.Second

	handoverPause = 20 * time.Millisecond
)

func newHandover() *cobra.Command {
	q := &query{}
	return q.command(&cobra.Command{
		Use:   "handover",
		Short: "Let another server lead, so that this one can be replaced",
		Long: `Let another server lead, so that the one that leads now can be replaced, by a
newer version for example. The job does not notice: tasks behind a relay (serry
run, serry relay) wait a moment longer for what they asked for.

A server with --store file:DIR has no other: it ends, and whoever is started
with that folder next goes on with the job. A server in memory refuses.`,
		Args: cobra.NoArgs,
	}, q.handover)
}

// handed is the answer of serry handover.
type handed struct {
	Version   int     `json:"version"`
	From      uint64  `json:"from_term"`
	To        uint64  `json:"to_term"` // 0: nobody was there
	TookMilli float64 `json:"took_ms"`
}

func (q *query) handover(ctx context.Context, r *remote, _ []string) error {
	from, err := r.lead(ctx, wire.LeadRequest{Handover: true})
	if err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, handoverPatience)
	defer cancel()
	to, err := q.successor(ctx, r, from)
	if err != nil {
		return hinted{fmt.Errorf("term %d was given up, and nobody leads: %w", from, err),
			"a server with a file store has to be started again, with the same folder"}
	}
	h := handed{outputVersion, from, to, float64(time.Since(began).Microseconds()) / 1000}
	if done, err := q.object(h); done {
		return err
	}
	_, err = fmt.Fprintf(q.out, "term %d has ended, term %d leads after %v\n", from, to, time.Since(began).Round(time.Millisecond))
	return err
}

// successor waits until a later term leads.
func (q *query) successor(ctx context.Context, r *remote, after uint64) (uint64, error) {
	for {
		term, err := r.lead(ctx, wire.LeadRequest{})
		if err == nil && term > after {
			return term, nil
		}
		if r.broken.Err() != nil {
			return 0, err
		}
		if perr := pause(ctx, handoverPause); perr != nil {
			return 0, errors.Join(err, perr)
		}
	}
}

// lead asks for the leadership, and may end it.
func (r *remote) lead(ctx context.Context, q wire.LeadRequest) (term uint64, err error) {
	ctx, cancel := r.brief(ctx)
	defer cancel()
	body, err := r.do(ctx, wire.LeadMethod, q.Bytes())
	if err != nil {
		return 0, err
	}
	reply, err := wire.ReadLeadReply(body)
	return reply.Term, err
}
