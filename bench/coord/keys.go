package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
)

// callers is how many set and read keys at a time.
const callers = 16

// A keyRow says how many tasks set and read keys, over which connections.
type keyRow struct {
	callers   int
	conn      func(caller int) load.Line
	rate, cpu metric
}

// keyRows measures keys: one caller, then several with a connection each, then on one connection.
func (s *subject) keyRows(ctx context.Context, d time.Duration) error {
	first := func(int) load.Line { return s.Conns[0] }
	for _, r := range []keyRow{
		{1, s.Conn, keys1Rate, keys1CPU},
		{callers, s.Conn, keys16Rate, keys16CPU},
		{callers, first, keysSharedRate, keysSharedCPU},
	} {
		if err := s.keys(ctx, d, r); err != nil {
			return err
		}
	}
	return nil
}

// keys lets callers set and read keys, each the next when the last is answered, for a time.
func (s *subject) keys(ctx context.Context, d time.Duration, r keyRow) error {
	all := make([]*caller, r.callers)
	for i := range all {
		all[i] = s.newCaller(i, r.conn(i))
	}
	defer func() {
		for _, k := range all {
			k.stop.Store(true)
		}
		for _, k := range all {
			<-k.ended
		}
	}()
	for _, k := range all {
		k.next()
		k.conn.Flush()
	}
	if err := pause.For(ctx, d/10); err != nil { // warm
		return err
	}
	before, start := count(all), time.Now()
	spent, err := s.spent(func() error { return pause.For(ctx, d) })
	if err != nil {
		return err
	}
	calls, took := float64(count(all)-before), time.Since(start)
	for _, k := range all {
		if err := k.err.Load(); err != nil {
			return fmt.Errorf("keys, %d callers: %w", r.callers, *err)
		}
	}
	if calls == 0 {
		return fmt.Errorf("keys, %d callers: no call was answered", r.callers)
	}
	s.add(r.rate, calls/took.Seconds())
	s.add(r.cpu, us(spent)/calls)
	return nil
}

// A caller sets keys of its own and reads them back, one call at a time.
type caller struct {
	conn  load.Line
	task  int
	sets  [keysEach][]byte
	gets  [keysEach][]byte
	turn  int       // owned by the goroutine that makes the next call
	again back.Done // answered, made once

	calls atomic.Int64
	stop  atomic.Bool
	err   atomic.Pointer[error]
	ended chan struct{}
}

const keysEach = 64

func (s *subject) newCaller(task int, conn load.Line) *caller {
	k := &caller{conn: conn, task: task, ended: make(chan struct{})}
	k.again = k.answered
	for i := range keysEach {
		key := fmt.Sprintf("bench/%d/key-%d", task, i)
		k.sets[i], k.gets[i] = s.Set(task, key), s.Get(task, key)
	}
	return k
}

func (k *caller) next() {
	i, read := k.turn/2%keysEach, k.turn%2 == 1
	k.turn++ // first: the answer may be faster than the return of Start
	if read {
		k.conn.Start(k.task, load.TryGetKey, k.gets[i], k.again)
	} else {
		k.conn.Start(k.task, load.InsertKey, k.sets[i], k.again)
	}
}

func (k *caller) answered(reply []byte, st rpc.Status, err error) {
	err = load.Failure(st, err)
	if read := k.turn%2 == 0; err == nil && read && len(reply) < load.ValueBytes {
		err = fmt.Errorf("reply of %d bytes has no value", len(reply))
	}
	if err != nil {
		k.err.Store(&err)
	}
	if err != nil || k.stop.Load() {
		close(k.ended)
		return
	}
	k.calls.Add(1)
	k.next()
}

func count(all []*caller) (n int64) {
	for _, k := range all {
		n += k.calls.Load()
	}
	return n
}
