package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/rpc"
)

// A bench is a comparison under way.
type bench struct {
	options
	peers    []peer
	dir      string
	sheet    *record
	progress io.Writer
}

// run measures all peers in turn, so that whatever changes on the machine meanwhile changes for all of
// them. Every round another one goes first.
func (b *bench) run(ctx context.Context) error {
	for round := range b.rounds {
		first := round % len(b.peers)
		for _, p := range slices.Concat(b.peers[first:], b.peers[:first]) {
			fmt.Fprintf(b.progress, "bench: round %d of %d: %s\n", round+1, b.rounds, p.name)
			if err := b.one(ctx, p, b.plain); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if p.store == "" {
				continue
			}
			if err := b.one(ctx, p, b.streams); err != nil {
				return fmt.Errorf("%s, by streams: %w", p.name, err)
			}
		}
	}
	return nil
}

// one measures something of one peer, from its start to its end.
func (b *bench) one(ctx context.Context, p peer, measure func(context.Context, peer, *service) error) error {
	dir, err := os.MkdirTemp(b.dir, "peer")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	svc, err := p.start(ctx, dir)
	if err != nil {
		return err
	}
	defer svc.stop()
	return measure(ctx, p, svc)
}

// plain measures barriers and writes of tasks that have a connection each.
func (b *bench) plain(ctx context.Context, p peer, svc *service) error {
	write := svc.write
	if write == nil {
		c := load.New(b.tasks, b.tasks)
		defer c.Close()
		defer svc.stop() // before the connections go, which a server takes for a disaster
		if err := b.meet(ctx, p, svc, c); err != nil {
			return err
		}
		write = byTasks(c, func(writer int) int { return writer })
	}
	return b.puts(ctx, p, svc, write, putRate, putCPU)
}

// hostTasks is how many tasks share a host, and so a stream.
const hostTasks = 8

// streams measures writes of tasks that are behind relays, those of as few hosts as they fit on. The
// calls are put into the streams of the relays by this process.
func (b *bench) streams(ctx context.Context, p peer, svc *service) error {
	c := load.New(b.tasks, (b.tasks+hostTasks-1)/hostTasks)
	c.Streams = true
	defer c.Close()
	defer svc.stop()
	if _, err := c.Connect(ctx, svc.addr, nil); err != nil {
		return err
	}
	c.Hold(load.PollForError, c.Polls())
	hosts := (b.writers + hostTasks - 1) / hostTasks
	write := byTasks(c, func(writer int) int { return writer%hosts + writer/hosts*len(c.Conns) })
	return b.puts(ctx, p, svc, write, streamRate, streamCPU)
}

// puts measures writes.
func (b *bench) puts(ctx context.Context, p peer, svc *service, write writer, rate, cpu metric) error {
	err := write(ctx, b.writers, func(puts *atomic.Int64) error {
		perSecond, cost, err := b.rate(ctx, svc, puts)
		b.sheet.add(p.name, rate, perSecond)
		b.sheet.add(p.name, cpu, cost)
		return err
	})
	if err != nil {
		return fmt.Errorf("puts: %w", err)
	}
	return nil
}

// meet connects all tasks and lets them meet; the round's time is the median. The first barrier is not
// counted: buffers and caches are cold.
func (b *bench) meet(ctx context.Context, p peer, svc *service, c *load.Cluster) error {
	if _, err := c.Connect(ctx, svc.addr, nil); err != nil {
		return err
	}
	c.Hold(load.PollForError, c.Polls())
	if _, _, err := c.All(ctx, load.Heartbeat, c.Heartbeats()); err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	var times []float64
	for wave := range b.waves + 1 {
		took, _, err := c.All(ctx, load.Barrier, c.Arrivals(fmt.Sprintf("wave-%d", wave)))
		if err != nil {
			return fmt.Errorf("barrier: %w", err)
		}
		if wave > 0 {
			times = append(times, took.Seconds()*1e3)
		}
	}
	b.sheet.add(p.name, barrierTime, sheet.Median(times))
	return nil
}

// A writer lets a number of callers write keys, each the next when the last is acknowledged, until
// measure has returned, which is told how many keys have been written so far.
type writer func(ctx context.Context, writers int, measure func(puts *atomic.Int64) error) error

// putKeys is how many keys each caller writes, over and over.
const putKeys = 64

func putKey(writer, i int) string {
	return fmt.Sprintf("durable/%d/key-%d", writer, i%putKeys)
}

// byTasks writes as tasks do, each on its connection; task says which one a writer is.
func byTasks(c *load.Cluster, task func(writer int) int) writer {
	return func(ctx context.Context, writers int, measure func(*atomic.Int64) error) error {
		var puts atomic.Int64
		all := make([]*caller, writers)
		for w := range all {
			all[w] = newCaller(c, task(w), &puts)
		}
		for _, k := range all {
			k.next()
			k.conn.Flush()
		}
		err := measure(&puts)
		for _, k := range all {
			k.stop.Store(true)
		}
		for _, k := range all {
			<-k.ended
			err = errors.Join(err, k.err)
		}
		return err
	}
}

// A caller writes keys of its own, one call at a time.
type caller struct {
	conn load.Line
	task int
	sets [putKeys][]byte
	puts *atomic.Int64
	turn int // owned by the goroutine that makes the next call

	stop  atomic.Bool
	ended chan struct{}
	err   error // valid once ended is closed
}

func newCaller(c *load.Cluster, task int, puts *atomic.Int64) *caller {
	k := &caller{conn: c.Conn(task), task: task, puts: puts, ended: make(chan struct{})}
	for i := range k.sets {
		k.sets[i] = c.Set(task, putKey(task, i))
	}
	return k
}

func (k *caller) next() {
	set := k.sets[k.turn%putKeys]
	k.turn++ // first: the answer may be faster than the return of Start
	k.conn.Start(k.task, load.InsertKey, set, k.answered)
}

func (k *caller) answered(_ []byte, st rpc.Status, err error) {
	if err = load.Failure(st, err); err != nil || k.stop.Load() {
		k.err = err
		close(k.ended)
		return
	}
	k.puts.Add(1)
	k.next()
}

// putPatience is how long a peer may take to answer its first call.
const putPatience = time.Minute

// rate lets callers that are at work go on for a time, and returns how many calls they make a second and
// what one of them costs, in microseconds.
func (b *bench) rate(ctx context.Context, svc *service, calls *atomic.Int64) (perSecond, cost float64, err error) {
	if err := pause.For(ctx, b.putFor/10); err != nil { // warm
		return 0, 0, err
	}
	spent, err := cpuTimes(svc.pids)
	if err != nil {
		return 0, 0, err
	}
	before, start := calls.Load(), time.Now()
	for calls.Load() == before { // more than once only on a machine that has much else to do
		if time.Since(start) > putPatience {
			return 0, 0, errors.New("no call was answered")
		}
		if err := pause.For(ctx, b.putFor); err != nil {
			return 0, 0, err
		}
	}
	made, took := float64(calls.Load()-before), time.Since(start)
	after, err := cpuTimes(svc.pids)
	if err != nil {
		return 0, 0, err
	}
	return made / took.Seconds(), (after - spent).Seconds() * 1e6 / made, nil
}

// cpuTimes is what processes have used of the processors, and this one with them.
func cpuTimes(pids []int) (sum time.Duration, err error) {
	for _, pid := range append(pids, os.Getpid()) {
		d, err := proc.CPUTime(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}
