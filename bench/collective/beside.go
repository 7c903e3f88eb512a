package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/collective/gauge"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// What two things cost at the same time. These rows have no peer.
const (
	pings    = "pings"    // small frames of control, there and back, beside all-reduces: the 99th percentile (CLT-OP-44)
	apart    = "apart"    // two all-reduces on two communicators, one after the other (CLT-OP-46)
	together = "together" // the same at the same time
)

// pingBar is what a ping may take.
const pingBar = 5 * time.Millisecond

// besides measures what is done at the same time.
func besides(p plan, ours *peer, over string, ranks int) (rows []row, err error) {
	for _, w := range besideWorks(over) {
		r := row{Over: over, Op: w.Op, Ranks: ranks, Bytes: w.Bytes, times: make(map[string][]float64)}
		for range p.rounds {
			took, err := ours.measure(w)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.Op, err)
			}
			r.times[ourName] = append(r.times[ourName], took.Seconds()*1e6)
		}
		if r = r.judged(); w.Op == pings {
			r.Bar, r.Kept = fmt.Sprintf("p99 < %v", pingBar), sheet.Kept(r.Micro[ourName] < pingBar.Seconds()*1e6)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// besideWorks lists what is measured at the same time. Ranks of one host that share memory send no data over links.
func besideWorks(over string) (list []gauge.Work) {
	if over == overLinks {
		list = append(list, gauge.Work{Op: pings, Bytes: 64 << 20, Count: 10})
	}
	for _, size := range []int64{4096, 1 << 20} {
		list = append(list, gauge.Work{Op: apart, Bytes: size, Count: 20}, gauge.Work{Op: together, Bytes: size, Count: 20})
	}
	return list
}

// A rank is a rank of serry.
type rank struct {
	*collective.Comm
	group  *collective.Group
	second *collective.Comm // of the same ranks
	net    *link.Net
	arena  *memory.Arena // that vectors lie in, or nil
	echoes *echoes

	sides  recordSides // formed when they are first needed
	vector []float32   // reused
}

// measure does some work, and returns how long one operation took on the slowest rank.
func (r *rank) measure(ctx context.Context, w gauge.Work) (time.Duration, error) {
	switch w.Op {
	case pings:
		return r.ping(ctx, w)
	case apart, together:
		return r.pair(ctx, w)
	case recorded, unrecorded:
		return r.sum(ctx, w)
	}
	if r.arena == nil {
		return gauge.Measure(ctx, r.Comm, w)
	}
	var taken []memory.Region
	defer func() {
		for _, v := range taken {
			r.arena.Free(v)
		}
	}()
	return gauge.MeasureIn(ctx, r.Comm, w, func(bytes int64) (memory.Region, error) {
		v, err := r.arena.Alloc(max(bytes, 1))
		if err == nil {
			taken = append(taken, v)
		}
		return v, err
	})
}

// pair runs two all-reduces at a time, or one after the other.
func (r *rank) pair(ctx context.Context, w gauge.Work) (time.Duration, error) {
	ops := make([]collective.Op, 2)
	for i := range ops {
		v := memory.OfSlice(make([]float32, w.Bytes/4))
		ops[i] = collective.AllReduce{Out: v, In: v, Count: w.Bytes / 4, Type: memory.F32, Reduction: collective.Sum}
	}
	if err := r.Do(ctx, collective.Barrier{}); err != nil {
		return 0, err
	}
	begun := time.Now()
	for range w.Count {
		first := r.Start(ctx, ops[0])
		if w.Op == apart {
			<-first.Done()
		}
		second := r.second.Start(ctx, ops[1])
		if err := first.Wait(); err != nil {
			return 0, err
		}
		if err := second.Wait(); err != nil {
			return 0, err
		}
	}
	return r.slowest(ctx, time.Since(begun)/time.Duration(w.Count))
}

// slowest is the longest of the times of all ranks.
func (r *rank) slowest(ctx context.Context, d time.Duration) (time.Duration, error) {
	mine, most := []int64{int64(d)}, make([]int64, 1)
	err := r.Do(ctx, collective.AllReduce{Out: memory.OfSlice(most), In: memory.OfSlice(mine), Count: 1, Type: memory.S64, Reduction: collective.Max})
	return time.Duration(most[0]), err
}

// ping runs all-reduces, while every rank sends small frames of control to the next one and waits for each to come back.
func (r *rank) ping(ctx context.Context, w gauge.Work) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := r.net.Link(ctx, r.Key().Ranks[(r.Rank()+1)%r.Size()].Life)
	if err != nil {
		return 0, err
	}
	var trips []time.Duration
	var failed error
	var pinging sync.WaitGroup
	over := make(chan struct{})
	pinging.Go(func() { trips, failed = r.echoes.trips(l, over) })
	err = r.sums(ctx, w)
	close(over)
	pinging.Wait()
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, failed
	}
	slices.Sort(trips)
	return r.slowest(ctx, trips[len(trips)*99/100])
}

// sums runs all-reduces one after the other.
func (r *rank) sums(ctx context.Context, w gauge.Work) error {
	v := memory.OfSlice(make([]float32, w.Bytes/4))
	for range w.Count {
		if err := r.Do(ctx, collective.AllReduce{Out: v, In: v, Count: w.Bytes / 4, Type: memory.F32, Reduction: collective.Sum}); err != nil {
			return err
		}
	}
	return nil
}

// echoes send frames of control back to their sender. They stand where the transfers of a program would.
type echoes struct{ came chan uint64 }

func newEchoes(n *link.Net) (*echoes, error) {
	e := &echoes{came: make(chan uint64, 1)}
	return e, n.Handle(link.Transfer, e)
}

// The two kinds of frames.
const (
	there = link.Query
	back  = link.Done
)

func controlFrame(t link.Type, seq uint64) link.Header {
	return link.Header{Family: link.Transfer, Type: t, Class: link.Control, Seq: seq}
}

// trips measures how long a frame takes there and back, again and again, with a pause between them.
func (e *echoes) trips(l *link.Link, over <-chan struct{}) (all []time.Duration, err error) {
	for seq := uint64(1); ; seq++ {
		begun := time.Now()
		if _, err := l.Post(controlFrame(there, seq)); err != nil {
			return nil, err
		}
		select {
		case <-e.came:
			all = append(all, time.Since(begun))
		case <-l.Done():
			return nil, l.Err()
		}
		select {
		case <-over:
			return all, nil
		case <-time.After(time.Millisecond):
		}
	}
}

// Frame implements link.Handler.
func (e *echoes) Frame(l *link.Link, h link.Header, _ []byte) {
	if h.Type == there {
		l.Post(controlFrame(back, h.Seq)) // a link that is down ends the wait of the other side
		return
	}
	e.came <- h.Seq
}

// Unexpected implements link.Handler.
func (e *echoes) Unexpected(*link.Link, link.Header) bool { return false }

// Event implements link.Handler.
func (e *echoes) Event(link.Event) {}

// newRank forms the cliques of a rank.
func newRank(ctx context.Context, g *collective.Group, n *link.Net, tasks int) (r *rank, err error) {
	r = &rank{group: g, net: n}
	if r.echoes, err = newEchoes(n); err != nil {
		return nil, err
	}
	if r.Comm, err = g.Clique(ctx, devices(tasks), collective.CliqueOptions{}); err != nil {
		return nil, err
	}
	r.second, err = g.Clique(ctx, devices(tasks), collective.CliqueOptions{Traffic: 1})
	return r, err
}

// devices lists those of all tasks, of which each has one.
func devices(tasks int) []serry.DeviceID {
	list := make([]serry.DeviceID, tasks)
	for i := range list {
		list[i] = serry.DeviceID(i)
	}
	return list
}
