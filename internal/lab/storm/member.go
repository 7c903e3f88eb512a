package storm

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/history"
)

// runMember is the life of a Go program, which talks to the service by a stream of its own.
func (p *proc) runMember() {
	p.place.start()
	defer p.place.kill()
	t, err := client.Dial(strings.Join(p.world.servers(), ","), client.DialOptions{
		Connect: func(ctx context.Context, address string) (net.Conn, error) {
			return p.world.dial(ctx, p.place, address)
		},
	})
	if err != nil {
		panic(err) // the addresses are ours
	}
	defer t.Close()
	ctx, cancel := p.context()
	defer cancel()
	p.does("join")
	m, err := client.Join(ctx, client.Config{
		Task: serry.TaskID{Job: job, Index: p.task}, Incarnation: serry.Incarnation(p.life), Transport: t,
		HeartbeatTimeout: heartbeatTimeout, Recoverable: p.world.plan.recoverable, Log: p.world.log(p.place.name),
	})
	if err != nil {
		p.memberDied("join", err)
		return
	}
	defer m.Close()
	p.member, p.service, p.ctx = m, m.Service(), ctx
	p.world.registered(p)
	p.world.work.Go(func() { p.memberWatches(ctx) })
	p.program()
	if p.over() {
		return
	}
	p.leaves()
	if err := m.Leave(ctx); err != nil {
		p.memberDied("leave", err)
		return
	}
	p.exit(wellDone)
}

// context ends with the process.
func (p *proc) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	p.world.work.Go(func() {
		select {
		case <-p.quit:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// memberDied judges an error of a Go program.
func (p *proc) memberDied(what string, err error) {
	if p.over() {
		return
	}
	if !p.isSuspected() {
		p.world.amiss("task %d, a Go program, died of %s: %v", p.task, what, err)
	}
	p.world.revive(p)
	p.exit("died of " + what)
}

// memberWatches follows the states of all tasks.
func (p *proc) memberWatches(ctx context.Context) {
	began := p.world.clock.Now()
	for s, err := range p.member.Watch(ctx) {
		if err != nil {
			return
		}
		now := p.world.clock.Now()
		p.world.mu.Lock()
		p.world.mu.report.Sights = append(p.world.mu.report.Sights, history.Sight{
			Span: history.Span{Call: began, Return: now}, Client: int(p.life), Version: s.Version,
		})
		p.world.mu.Unlock()
		began = p.world.clock.Now()
	}
}

// memberKey makes a call on a key.
func (p *proc) memberKey(c history.KeyCall) {
	kv, ctx := p.member.KV(), p.ctx
	c.Call = p.world.clock.Now()
	var found []byte
	var err error
	switch c.Action {
	case history.Insert:
		err = kv.Create(ctx, c.Key, p.bytesOf(c.Value))
	case history.Overwrite:
		err = kv.Put(ctx, c.Key, p.bytesOf(c.Value))
	case history.Swap:
		var old []byte
		if c.Old != "" {
			old = p.bytesOf(c.Old)
		}
		err = kv.Swap(ctx, c.Key, old, p.bytesOf(c.Value))
	case history.Delete:
		err = kv.Delete(ctx, c.Key)
	case history.Increment:
		var n int64
		n, err = kv.Add(ctx, c.Key, 1)
		found = strconv.AppendInt(nil, n, 10)
	case history.Get:
		found, err = kv.Get(ctx, c.Key)
	case history.Wait:
		found, err = kv.Wait(ctx, c.Key)
	}
	c.Exists = errors.Is(err, serry.ErrExists) && c.Action == history.Insert
	c.Absent = errors.Is(err, serry.ErrNotFound) && c.Action == history.Get
	c.Other = errors.Is(err, serry.ErrChanged) && c.Action == history.Swap
	switch {
	case p.noRoom(errors.Is(err, serry.ErrLimit)):
		p.memberKey(c)
		return
	case err == nil || c.Exists || c.Absent || c.Other:
		c.Return, c.Found = p.world.clock.Now(), brief(found)
	default:
		p.memberDied(string(c.Action)+" "+c.Key, err)
	}
	p.noteKey(c)
}

// memberMeets arrives at a barrier, whose instances the client counts.
func (p *proc) memberMeets(c *history.BarrierCall, ev coord.Barrier) {
	err := p.member.Barrier(p.ctx, ev.ID, serry.BarrierOptions{Among: ev.Tasks, Timeout: ev.Timeout})
	if err != nil {
		p.memberDied("barrier "+c.ID, err)
		return
	}
	c.Return, c.Passed, c.Counter = p.world.clock.Now(), true, c.Instance
	p.counters[c.ID] = c.Instance + 1
}

// memberAgrees asks who is there.
func (p *proc) memberAgrees(c *history.RoundCall, tasks []serry.TaskID) bool {
	a, err := p.member.Agree(p.ctx, nil, tasks...)
	if err != nil {
		p.memberDied("agree", err)
		return false
	}
	c.Return = p.world.clock.Now()
	for t, life := range a.Alive {
		c.Alive = append(c.Alive, history.LiveMember{Member: t.Index, Life: uint64(life)})
	}
	return true
}
