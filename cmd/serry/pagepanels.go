package main

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/web"
	"github.com/serry-dev/serry/wire"
)

// What the page shows beside status and verdict. A page source asks the service for it, as commands do. It implements [web.Keys] and
// [web.Processes].

// Sizes implements [web.Keys].
func (p *pageSource) Sizes(ctx context.Context, dir string) ([]coord.KeySize, error) {
	r, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	return r.sizes(ctx, dir)
}

// Value implements [web.Keys].
func (p *pageSource) Value(ctx context.Context, key string) ([]byte, error) {
	r, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	v, err := result[coord.Value](r.call(ctx, coord.TryGetKeyValue{Key: key}))
	return v.Value, err
}

// linesPatience is how long the launcher of a rank may take to answer.
const linesPatience = 2 * time.Second

// Logs implements [web.Processes]. A rank that has moved to another host has lines on two: those of the later one are its last.
func (p *pageSource) Logs(ctx context.Context, task serry.TaskID, q wire.LogQuery) (*wire.LogTail, error) {
	r, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	argument, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	g, err := r.gather(ctx, wire.Inquiry{Kind: wire.LogsEvidence, Argument: string(argument), Tasks: []serry.TaskID{task}, Wait: linesPatience})
	if err != nil {
		return nil, err
	}
	var last *wire.LogTail
	newest := func(t *wire.LogTail) time.Time {
		if t == nil || len(t.Lines) == 0 {
			return time.Time{}
		}
		return t.Lines[len(t.Lines)-1].Time
	}
	for _, part := range g.Parts {
		var tail wire.LogTail
		if json.Unmarshal(part.Body, &tail) != nil || tail.Version != wire.LogTailVersion {
			continue // of a launcher of another version
		}
		if last == nil || newest(&tail).After(newest(last)) {
			last = &tail
		}
	}
	return last, nil
}

// Barriers implements [web.Processes]. A service of an older version keeps none.
func (p *pageSource) Barriers(ctx context.Context, number uint64) (wire.BarrierLog, error) {
	none := wire.BarrierLog{Version: wire.BarrierLogVersion, Jobs: []wire.JobStatus{}, Barriers: []wire.BarrierRecord{}}
	r, err := p.open(ctx)
	if err != nil {
		return none, err
	}
	argument := ""
	if number > 0 {
		argument = strconv.FormatUint(number, 10)
	}
	g, err := r.gather(ctx, wire.Inquiry{Kind: wire.BarriersEvidence, Argument: argument, Wait: time.Millisecond})
	if err != nil || len(g.Parts) != 1 {
		return none, err
	}
	var log wire.BarrierLog
	if err := json.Unmarshal(g.Parts[0].Body, &log); err != nil || log.Version != wire.BarrierLogVersion {
		return none, err
	}
	return log, nil
}

// Collectives implements [web.Processes].
func (p *pageSource) Collectives(ctx context.Context) (any, error) {
	r, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	page, _, err := r.collectives(ctx)
	return page, err
}

// Transfers implements [web.Processes].
func (p *pageSource) Transfers(ctx context.Context) (any, error) {
	r, err := p.open(ctx)
	if err != nil {
		return nil, err
	}
	page, _, err := r.transfers(ctx)
	return page, err
}

// panels are what a page of a service shows.
func (p *pageSource) panels() web.Panels { return web.Panels{Keys: p, Processes: p} }
