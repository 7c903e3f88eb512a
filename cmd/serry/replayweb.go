package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire"
)

// serve shows a journal on a page with a slider over its times, until a signal comes (D-WEB-4).
func (r *replay) serve(cmd *cobra.Command, h *store.History) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	past, err := openPast(ctx, h)
	if err != nil {
		return err
	}
	defer past.close()
	page, err := r.page.open(past, nil, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
	if err != nil {
		return err
	}
	defer page.close()
	if _, err := fmt.Fprintf(r.out, "serry: %d records of %s\nserry: page at %s\n", past.span.Records, diagnose.Ago((past.span.End - past.span.Begin).Seconds()), page.url); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// A pastSource shows what a journal tells. It implements [web.Past], and [web.Keys] as of the time of a request.
type pastSource struct {
	span web.Span

	turn sync.Mutex // held while the journal is played
	past *server.Past
}

// openPast plays a journal once. The context is that of all that is read later, too.
func openPast(ctx context.Context, h *store.History) (*pastSource, error) {
	past, err := server.OpenPast(ctx, h, topo.Republished)
	if err != nil {
		return nil, err
	}
	s := past.Span()
	p := &pastSource{past: past, span: web.Span{Begin: time.Duration(s.Begin), End: time.Duration(s.End), Records: s.Records, Wall: s.Wall}}
	for _, m := range s.Moments {
		p.span.Moments = append(p.span.Moments, time.Duration(m))
	}
	return p, nil
}

func (p *pastSource) close() {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.past.Close()
}

// panels implements source. A journal has no processes to ask, and what is past cannot be changed.
func (p *pastSource) panels() web.Panels { return web.Panels{Keys: p} }

// then is the service as of the time of a request. It needs turn.
func (p *pastSource) then(ctx context.Context) (*server.Ending, error) {
	at, ok := web.At(ctx)
	if !ok {
		at = p.span.End
	}
	return p.past.At(ctx, coord.Time(at))
}

// Sizes implements [web.Keys].
func (p *pastSource) Sizes(ctx context.Context, dir string) ([]coord.KeySize, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	then, err := p.then(ctx)
	if err != nil {
		return nil, err
	}
	return then.Sizes(dir), nil
}

// Value implements [web.Keys].
func (p *pastSource) Value(ctx context.Context, key string) ([]byte, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	then, err := p.then(ctx)
	if err != nil {
		return nil, err
	}
	value, ok := then.Value(key)
	if !ok {
		return nil, &serry.KeyError{Key: key, Err: serry.ErrNotFound}
	}
	return value, nil
}

// Span implements [web.Past].
func (p *pastSource) Span() web.Span { return p.span }

// LookAt implements [web.Past].
func (p *pastSource) LookAt(ctx context.Context, at time.Duration) (diagnose.Evidence, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	then, err := p.past.At(ctx, coord.Time(at))
	if err != nil {
		return diagnose.Evidence{}, err
	}
	return recalled(ctx, then)
}

// Look implements [web.Source].
func (p *pastSource) Look(ctx context.Context) (diagnose.Evidence, error) {
	return p.LookAt(ctx, p.span.End)
}

var errNoStacks = errors.New("a journal does not tell where in their code the ranks were")

// Stacks implements [web.Source].
func (p *pastSource) Stacks(context.Context, []string) (web.Stacks, error) {
	return web.Stacks{}, errNoStacks
}

// recalled is what a journal tells of a job as of a time.
func recalled(ctx context.Context, then *server.Ending) (diagnose.Evidence, error) {
	saves, err := preempt.ReadRecords(ctx, then)
	e := diagnose.Evidence{Status: then.Status(wire.StatusQuery{Tasks: true}), Saves: saves}
	if value, ok := then.Value(diagnose.HangKey); ok {
		e.Hang, _ = diagnose.ReadHang(value) // nil: it is of another version
	}
	if keys, err := then.List(ctx, diagnose.GlooKeys); err == nil {
		e.Peers = diagnose.ReadPeers(keys)
	}
	return e, err
}
