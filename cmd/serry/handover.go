package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire"
)

const (
	// handoverPatience is how long serry handover waits for a successor.
	handoverPatience = 30 * time.Second

	// handoverLook is how long one look for it takes at most, and refusals is how many in a row say that
	// the server has ended: a node that has handed over is still there.
	handoverLook  = 250 * time.Millisecond
	handoverPause = 20 * time.Millisecond
	refusals      = 3
)

func newHandover() *cobra.Command {
	q := &query{}
	return q.command(&cobra.Command{
		Use:   "handover",
		Short: "Let another server lead, so that this one can be replaced",
		Long: `Let another server lead, so that the one that leads now can be replaced, by a
newer version for example. The job does not notice: ranks behind a relay (serry
run, serry relay) wait a moment longer for what they asked for.

A server with --store file:DIR has no other: it ends, and whoever is started
with that folder next goes on with the job. A server in memory refuses.`,
		Example: `  # move the leadership away from the host that has it
  serry handover --address host1:8476`,
		Args: noArguments,
	}, q.handover)
}

// handed is the answer of serry handover.
type handed struct {
	Version   int     `json:"version"`
	From      uint64  `json:"from_term"`
	To        uint64  `json:"to_term"` // 0: the server has ended
	TookMilli float64 `json:"took_ms"`
}

func (q *query) handover(ctx context.Context, r *remote, _ []string) error {
	asked, err := r.lead(ctx, wire.LeadRequest{Handover: true})
	if err != nil {
		return err
	}
	from := asked.Term
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, handoverPatience)
	defer cancel()
	to, err := q.successor(ctx, from)
	if err != nil {
		return fmt.Errorf("term %d was given up, and nobody leads: %w", from, err)
	}
	h := handed{outputVersion, from, to, float64(time.Since(began).Microseconds()) / 1000}
	if done, err := q.object(h); done {
		return err
	}
	if to == 0 {
		_, err = fmt.Fprintf(q.out, "term %d has ended, and its server; the next one with the same store goes on\n", from)
		return err
	}
	_, err = fmt.Fprintf(q.out, "term %d has ended, term %d leads after %v\n", from, to, time.Since(began).Round(time.Millisecond))
	return err
}

// successor waits until a later term leads. It is 0 if the server itself has ended.
func (q *query) successor(ctx context.Context, after uint64) (uint64, error) {
	refused := 0
	for {
		term, err := q.look(ctx)
		switch {
		case err == nil && term > after:
			return term, nil
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
			if refused++; refused == refusals {
				return 0, nil
			}
		default:
			refused = 0
		}
		if perr := pause.For(ctx, handoverPause); perr != nil {
			return 0, errors.Join(err, perr)
		}
	}
}

// look asks who leads, on a connection of its own: those that a server closes as it ends are no sign of
// anything.
func (q *query) look(ctx context.Context) (term uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, handoverLook)
	defer cancel()
	r, err := q.access.open(ctx)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	reply, err := r.lead(ctx, wire.LeadRequest{})
	return reply.Term, err
}

// lead asks for the leadership, and may end it.
func (r *remote) lead(ctx context.Context, q wire.LeadRequest) (wire.LeadReply, error) {
	ctx, cancel := r.brief(ctx)
	defer cancel()
	body, err := r.do(ctx, wire.LeadMethod, q.Bytes())
	if err != nil {
		return wire.LeadReply{}, err
	}
	return wire.ReadLeadReply(body)
}
