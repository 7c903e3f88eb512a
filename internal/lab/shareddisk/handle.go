package shareddisk

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/aside"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

// A Handle is the [Store] of one candidate at a [Disk] disk. Besides, a test can do to it what happens
// to servers: Kill it, or Cut it off and Heal it.
type Handle struct {
	disk *Disk         // set in Open, then constant
	dead chan struct{} // closed by Kill and Close

	// Guarded by disk.mu.
	closed bool
	cut    bool
	healed chan struct{} // while cut: closed by Heal
	reign  *reign        // the last one, or nil
}

// Kill ends all operations of the handle, now and later, with [ErrClosed]. A leadership stays, until its
// lease ends.
func (s *Handle) Kill() {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.close()
	s.expireLater()
	if s.reign != nil {
		s.reign.close() // nothing waits for it any more
	}
}

// Cut keeps the handle from the disk: what it asks for waits, until Heal or until its context ends.
func (s *Handle) Cut() {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.cut || s.closed {
		return
	}
	s.cut, s.healed = true, make(chan struct{})
	s.expireLater()
}

// Heal ends a Cut.
func (s *Handle) Heal() {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if !s.cut {
		return
	}
	s.cut = false
	close(s.healed)
	if r := s.reign; r != nil && r.lease != nil {
		r.lease.Stop()
		r.lease = nil
	}
	if s.reign != nil && s.reign.deposed {
		s.reign.close()
	}
	for _, w := range s.disk.mu.watches {
		if w.handle == s {
			w.send(s.disk.leads())
		}
	}
	s.disk.elect()
}

// expireLater starts the end of the lease of a handle that no longer renews it. mu is held.
func (s *Handle) expireLater() {
	r := s.reign
	if r == nil || r.deposed || r.lease != nil || s.disk.cfg.LeaseTTL == 0 {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(s.disk.cfg.LeaseTTL, func() {
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		if r.lease != timer {
			return // healed in time
		}
		r.lease = nil
		s.disk.end(r)
		r.close()
	})
	r.lease = timer
}

// close makes the handle useless. mu is held.
func (s *Handle) close() {
	if s.closed {
		return
	}
	s.closed = true
	close(s.dead)
	s.disk.mu.bids = slices.DeleteFunc(s.disk.mu.bids, func(b *bid) bool { return b.handle == s })
	s.disk.unwatch(func(w *watch) bool { return w.handle == s })
}

// Close resigns and gives up the handle.
func (s *Handle) Close() error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.close()
	if s.reign != nil {
		s.disk.end(s.reign)
		s.reign.close()
	}
	return nil
}

// Campaign waits until this handle leads.
func (s *Handle) Campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	op := Op{Action: OpCampaign, Leader: store.Leader{Address: who.Address}}
	var b *bid
	if err := s.do(ctx, op, func() (err error) {
		b, err = s.disk.bid(s, who)
		return err
	}); err != nil {
		if b != nil {
			s.disk.withdraw(b)
		}
		return nil, err
	}
	select {
	case r := <-b.won:
		return r, nil
	case <-ctx.Done():
		s.disk.withdraw(b)
		return nil, context.Cause(ctx)
	case <-s.dead:
		return nil, store.ErrClosed
	}
}

// Leader returns the present leader.
func (s *Handle) Leader(ctx context.Context) (l store.Leader, err error) {
	err = s.do(ctx, Op{Action: OpLeader}, func() error {
		if l = s.disk.leads(); l == (store.Leader{}) {
			return store.ErrNoLeader
		}
		return nil
	})
	return l, err
}

// Candidates says how many wait for the leadership.
func (s *Handle) Candidates(ctx context.Context) (n int, err error) {
	err = s.do(ctx, Op{Action: OpLeader}, func() error {
		n = len(s.disk.mu.bids)
		return nil
	})
	return n, err
}

// Watch sends the leader, while the handle is connected.
func (s *Handle) Watch(ctx context.Context) <-chan store.Leader { return s.disk.watch(ctx, s) }

// Depose ends the leadership of l, if it still leads.
func (s *Handle) Depose(ctx context.Context, l store.Leader) error {
	return s.do(ctx, Op{Action: OpDepose, Leader: l}, func() error {
		if r := s.disk.mu.leader; r != nil && r.leader.Term == l.Term {
			s.disk.end(r)
		}
		return nil
	})
}

// do performs an operation: effect runs with mu held, once the handle is connected, between the two calls
// of Fault.
func (s *Handle) do(ctx context.Context, op Op, effect func() error) error {
	fault := s.disk.cfg.Fault
	if fault == nil {
		fault = func(Op) error { return nil }
	}
	if err := s.connected(ctx); err != nil {
		return err
	}
	if err := fault(op); err != nil {
		return err
	}
	for {
		if err := s.connected(ctx); err != nil {
			return err
		}
		if ok, err := s.try(effect); err != nil {
			return err
		} else if ok {
			break
		}
	}
	op.Done = true
	if err := fault(op); err != nil {
		return err
	}
	return s.connected(ctx) // the answer has to come back, too
}

// try performs the effect, unless the handle has just been cut off or closed.
func (s *Handle) try(effect func() error) (ok bool, err error) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	if s.cut || s.closed {
		return false, nil
	}
	return true, effect()
}

// connected waits until the handle reaches the disk.
func (s *Handle) connected(ctx context.Context) error {
	for {
		s.disk.mu.Lock()
		closed, cut, healed := s.closed, s.cut, s.healed
		s.disk.mu.Unlock()
		switch {
		case closed:
			return store.ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !cut:
			return nil
		}
		select {
		case <-healed:
		case <-ctx.Done():
		case <-s.dead:
		}
	}
}

// A reign is a leadership at a Disk disk.
type reign struct {
	handle *Handle       // constant
	leader store.Leader  // constant
	over   chan struct{} // closed when the handle knows that it is deposed
	once   sync.Once     // closes over
	book   aside.Book

	// Guarded by disk.mu.
	deposed bool
	failed  error       // of an Append, or nil
	lease   *time.Timer // once the handle is cut off or killed: when it ends; or nil
}

func (r *reign) close() { r.once.Do(func() { close(r.over) }) }

func (r *reign) Store() serry.StoreID { return r.handle.disk.id }

func (r *reign) Term() uint64 { return r.leader.Term }

func (r *reign) Deposed() <-chan struct{} { return r.over }

func (r *reign) MaxValue() int64 { return store.MaxValue }

// do performs an operation of the reign, if the fence lets it pass.
func (r *reign) do(ctx context.Context, action Action, bytes int, effect func(c *contents)) error {
	return r.handle.do(ctx, Op{Action: action, Leader: r.leader, Bytes: bytes, Over: r.over}, func() error {
		if r.deposed && !r.handle.disk.cfg.Planted.Has(plant.NoFence) {
			return store.ErrDeposed
		}
		effect(&r.handle.disk.mu.contents)
		return nil
	})
}

func (r *reign) Append(ctx context.Context, batch []byte) error {
	if err := r.failure(nil); err != nil {
		return err
	}
	return r.failure(r.do(ctx, OpAppend, len(batch), func(c *contents) { c.append(batch) }))
}

// failure keeps the first error of an Append, and returns it from then on.
func (r *reign) failure(err error) error {
	r.handle.disk.mu.Lock()
	defer r.handle.disk.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
	return r.failed
}

func (r *reign) Confirm(ctx context.Context) error {
	return r.do(ctx, OpConfirm, 0, func(*contents) {})
}

func (r *reign) Put(ctx context.Context, ref coord.Ref, value []byte) error {
	if err := checkValue(ref, value); err != nil {
		return err
	}
	r.book.Enter(ref)
	defer r.book.Leave(ref)
	return r.do(ctx, OpPut, len(value), func(c *contents) { c.put(ref, value) })
}

func (r *reign) Mark() store.Mark {
	r.handle.disk.mu.Lock()
	defer r.handle.disk.mu.Unlock()
	return r.handle.disk.mu.contents.end()
}

func (r *reign) Save(ctx context.Context, at store.Mark, snapshot []byte, keep []coord.Ref) error {
	if err := r.failure(nil); err != nil {
		return err
	}
	garbage := r.book.Begin(keep)
	return r.do(ctx, OpSave, len(snapshot), func(c *contents) { c.save(at, snapshot, garbage) })
}

func (r *reign) Load(ctx context.Context) (snapshot []byte, batches iter.Seq2[[]byte, error], err error) {
	err = r.do(ctx, OpLoad, 0, func(c *contents) { snapshot, batches = c.load() })
	return snapshot, batches, err
}

func (r *reign) Get(ctx context.Context, ref coord.Ref) (value []byte, err error) {
	err = r.do(ctx, OpGet, 0, func(c *contents) { value = bytes.Clone(c.values[ref]) })
	if err == nil && value == nil {
		err = store.ErrNoValue
	}
	return value, err
}

func (r *reign) Values(ctx context.Context) iter.Seq2[coord.Ref, error] {
	var refs []coord.Ref
	if err := r.do(ctx, OpLoad, 0, func(c *contents) { refs = c.refs() }); err != nil {
		return func(yield func(coord.Ref, error) bool) { yield(coord.Ref{}, err) }
	}
	return each(refs)
}

func (r *reign) Resign(ctx context.Context) error {
	err := r.handle.do(ctx, Op{Action: OpResign, Leader: r.leader}, func() error {
		r.handle.disk.end(r)
		return nil
	})
	r.close()
	if err != nil { // the disk was not told, but the lease is not renewed either
		r.handle.disk.mu.Lock()
		defer r.handle.disk.mu.Unlock()
		r.handle.expireLater()
	}
	return err
}

// A rawJournal reads a Disk past all handles.
type rawJournal struct{ disk *Disk }

func (j rawJournal) Load(context.Context) ([]byte, iter.Seq2[[]byte, error], error) {
	j.disk.mu.Lock()
	defer j.disk.mu.Unlock()
	snapshot, batches := j.disk.mu.contents.load()
	return snapshot, batches, nil
}

func (j rawJournal) Get(_ context.Context, ref coord.Ref) ([]byte, error) {
	j.disk.mu.Lock()
	defer j.disk.mu.Unlock()
	v, ok := j.disk.mu.contents.values[ref]
	if !ok {
		return nil, store.ErrNoValue
	}
	return bytes.Clone(v), nil
}

func (j rawJournal) Values(context.Context) iter.Seq2[coord.Ref, error] {
	j.disk.mu.Lock()
	defer j.disk.mu.Unlock()
	return each(j.disk.mu.contents.refs())
}
