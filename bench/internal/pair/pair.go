// Package pair makes the transfer engines of two processes that belong to no job, for benchmarks.
//
// Each process calls [Open], and tells the other one its address by a way of its own. [Pair.Replace] says that the other
// process has a new life.
package pair

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer"
)

// run is what both processes call the run of their job.
const run = 1

var errNoService = errors.New("there is no service")

// Life is a life of one of the two processes, 0 or 1.
func Life(process int, incarnation uint64) serry.Life {
	return serry.Life{Task: serry.TaskID{Job: "bench", Index: process}, Incarnation: serry.Incarnation(incarnation)}
}

// A Pair is what one of the two processes has.
type Pair struct {
	*transfer.Engine
	Net     *link.Net
	Address string // for the other process
	members *members
}

// Open opens the links of a process and makes its engine. The address of the other one may be empty until Replace is called, or
// for good if the other one dials.
func Open(ctx context.Context, self, peer serry.Life, address string, lo link.Options, to transfer.Options) (*Pair, error) {
	m := &members{self: self, peer: peer, address: address, changed: make(chan struct{}), told: make(chan struct{}), seen: make(map[int]int64)}
	n, err := link.Open(ctx, m, keys{m}, lo)
	if err != nil {
		return nil, err
	}
	e, err := transfer.New(ctx, m, n, to)
	if err != nil {
		return nil, errors.Join(err, n.Close(ctx))
	}
	return &Pair{e, n, m.published, m}, nil
}

// Replace says which life the other process has now, and where it is. It returns when links and engine know.
func (p *Pair) Replace(ctx context.Context, peer serry.Life, address string) error {
	m := p.members
	m.change(func(m *members) { m.peer, m.address, m.failed = peer, address, false })
	for {
		m.mu.Lock()
		known, told := true, m.told
		for _, version := range m.seen {
			known = known && version >= m.version
		}
		m.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the engine and the links.
func (p *Pair) Close(ctx context.Context) error {
	p.Engine.Close(ctx)
	return p.Net.Close(context.WithoutCancel(ctx))
}

// members are the two processes as one of them knows them.
type members struct {
	self serry.Life

	mu        sync.Mutex
	peer      serry.Life // guarded by mu, as all of these
	address   string
	published string
	failed    bool // the peer is known to be dead
	version   int64
	changed   chan struct{} // closed at the next change
	seen      map[int]int64 // by watcher: the last version that it was told
	told      chan struct{} // closed when a watcher was told another one
}

func (m *members) change(f func(*members)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
	m.version++
	close(m.changed)
	m.changed = make(chan struct{})
}

// Task implements link.Member, as the next ones do.
func (m *members) Task() serry.TaskID             { return m.self.Task }
func (m *members) Incarnation() serry.Incarnation { return m.self.Incarnation }
func (m *members) Service() serry.Incarnation     { return run }

// Watch tells how the two processes are.
func (m *members) Watch(ctx context.Context) iter.Seq2[serry.Snapshot, error] {
	return func(yield func(serry.Snapshot, error) bool) {
		m.mu.Lock()
		watcher := len(m.seen)
		m.seen[watcher] = -1
		m.mu.Unlock()
		for {
			m.mu.Lock()
			other := serry.TaskInfo{Task: m.peer.Task, Incarnation: m.peer.Incarnation, State: serry.Connected}
			if m.failed {
				other.State = serry.Failed
				other.Err = &serry.TaskError{Task: m.peer.Task, Incarnation: m.peer.Incarnation, Evidence: "its process is gone", Err: serry.ErrTaskDead}
			}
			s := serry.Snapshot{Version: m.version, Tasks: []serry.TaskInfo{other,
				{Task: m.self.Task, Incarnation: m.self.Incarnation, State: serry.Connected}}}
			changed := m.changed
			m.mu.Unlock()
			slices.SortFunc(s.Tasks, func(a, b serry.TaskInfo) int { return a.Task.Compare(b.Task) })
			if !yield(s, nil) {
				m.tell(watcher, math.MaxInt64)
				return
			}
			m.tell(watcher, s.Version)
			select {
			case <-changed:
			case <-ctx.Done():
				m.tell(watcher, math.MaxInt64)
				yield(serry.Snapshot{}, context.Cause(ctx))
				return
			}
		}
	}
}

// tell notes that a watcher was told a version.
func (m *members) tell(watcher int, version int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[watcher] = version
	close(m.told)
	m.told = make(chan struct{})
}

// Suspect believes hard evidence at once, as a service does.
func (m *members) Suspect(_ context.Context, task serry.TaskID, life serry.Incarnation, e serry.Evidence) error {
	m.change(func(m *members) {
		if e.Hard && m.peer == (serry.Life{Task: task, Incarnation: life}) {
			m.failed = true
		}
	})
	return nil
}

// keys are the store of the two processes: each publishes to itself, and knows the address of the other one.
type keys struct{ *members }

func (k keys) Create(_ context.Context, _ string, value []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.published = string(value)
	return nil
}

func (k keys) Put(ctx context.Context, key string, value []byte) error {
	return k.Create(ctx, key, value)
}

func (keys) Delete(context.Context, string) error { return nil }

func (k keys) Wait(ctx context.Context, _ string) ([]byte, error) {
	for {
		k.mu.Lock()
		address, changed := k.address, k.changed
		k.mu.Unlock()
		if address != "" {
			return []byte(address), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (keys) Watch(context.Context, string) iter.Seq2[serry.KeyEvent, error] {
	return func(yield func(serry.KeyEvent, error) bool) { yield(serry.KeyEvent{}, errNoService) }
}
