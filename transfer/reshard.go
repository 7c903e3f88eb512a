package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/transfer/offer"
)

const (
	reshardNamespace = putNamespace + 2 // has the keys by which processes tell each other that they are done
	reservedOffers   = 1 << 63          // numbers of offers from here on are of the engine
)

// A Reshard asks for an array that lies on devices by one sharding to lie on devices by another. Every process that has a
// device of either sharding makes the same call; a process that has none need not.
type Reshard struct {
	Key      uint64 // names the call in all processes; it is used once, and is less than 1<<63
	Type     memory.DType
	Shape    []int
	From, To *mesh.Sharding

	// Shards has the data of each device of From that this process drives: dense, the last dimension fastest.
	Shards map[serry.DeviceID]*Buffer

	Class Class
}

// A Resharded is what became of a Reshard.
type Resharded struct {
	// Shards has the data of each device of To that this process drives. A shard is defined when all of its bytes are there, or
	// no device is left to give them.
	Shards map[serry.DeviceID]*Buffer

	done    *Event
	fetched atomic.Int64
}

// Done ends when the shards of this process have, and when no other process needs what this one holds. It has the error of the
// first shard that failed.
func (r *Resharded) Done() *Event { return r.done }

// Fetched is how many bytes have come from other processes.
func (r *Resharded) Fetched() int64 { return r.fetched.Load() }

// A resharding is a Reshard under way. Each process offers the shards that it holds, and pulls what its own devices need. So
// the process that lacks bytes decides where they come from, and no two processes have to agree when a holder is lost: the
// bytes are pulled from the next device that holds them.
type resharding struct {
	// Set before anything begins, then constant.
	engine *Engine
	ctx    context.Context
	Reshard
	plan   *mesh.Plan
	token  Token
	index  map[serry.DeviceID]int // of each device of From in the offer of its process
	result *Resharded

	finished *Promise // ends when this process needs nothing any more
	open     atomic.Int64
	shards   map[serry.DeviceID]*arriving
}

// An arriving is a shard of this process whose bytes come.
type arriving struct {
	memory  memory.Region
	promise *Promise // of its definition

	mu   sync.Mutex
	left int   // moves that have not ended; guarded by mu
	err  error // of the first that failed, or nil; guarded by mu
}

// Reshard turns one sharding of an array into another. It does not wait for other processes. Between processes, every byte
// moves at most once to each process that needs it; bytes that a process has do not move.
func (e *Engine) Reshard(ctx context.Context, q Reshard) (*Resharded, error) {
	r := &resharding{engine: e, ctx: ctx, Reshard: q, result: &Resharded{Shards: make(map[serry.DeviceID]*Buffer)}, shards: make(map[serry.DeviceID]*arriving)}
	if err := r.prepare(); err != nil {
		return nil, fmt.Errorf("reshard %d: %w", q.Key, err)
	}
	offered, err := r.offer()
	if err != nil {
		return nil, fmt.Errorf("reshard %d: %w", q.Key, err)
	}
	var over *Event
	r.finished, over = e.pool.Event()
	released, err := r.tellOthers(over, offered)
	if err == nil {
		err = r.allocate()
	}
	if err != nil {
		r.abort(offered, err)
		return nil, fmt.Errorf("reshard %d: %w", q.Key, err)
	}
	r.result.done = e.pool.Join(append(r.definitions(), released)...)
	r.fetchAll()
	return r.result, nil
}

// prepare checks the call, and plans it.
func (r *resharding) prepare() error {
	width, err := r.Type.Bytes(1)
	switch {
	case r.From == nil || r.To == nil:
		return invalid("a reshard without shardings")
	case err != nil || r.Type.Bits()%8 != 0:
		return invalid("elements of type %v", r.Type)
	case r.Key >= reservedOffers:
		return invalid("key %d", r.Key)
	}
	if err := r.number(); err != nil {
		return err
	}
	task, mine := r.task()
	if !mine {
		return invalid("no device of this process has a part of the array")
	}
	r.plan, err = mesh.Reshard{Shape: r.Shape, ElementBytes: int(width), From: r.From, To: r.To, Lost: r.lost()}.PlanFor(task)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(fmt.Appendf(nil, "%d %v %v %v %v %v %v", r.Key, r.Type, r.Shape, r.From.Mesh().Devices(), r.From.Spec(), r.To.Mesh().Devices(), r.To.Spec()))
	r.token = Token(digest[:16])
	return r.checkShards()
}

// number finds the place of each source device in the offer of its process.
func (r *resharding) number() error {
	r.index = make(map[serry.DeviceID]int)
	count := make(map[serry.TaskID]int)
	for _, d := range r.From.Mesh().Devices() {
		task, ok := r.engine.owner(d)
		if !ok {
			return invalid("device %d is unknown", d)
		}
		r.index[d] = count[task]
		count[task]++
	}
	for _, d := range r.To.Mesh().Devices() {
		if _, ok := r.engine.owner(d); !ok {
			return invalid("device %d is unknown", d)
		}
	}
	return nil
}

// task is this process as the meshes number tasks, or false if it has no device of them.
func (r *resharding) task() (serry.TaskIndex, bool) {
	for _, m := range []*mesh.Mesh{r.From.Mesh(), r.To.Mesh()} {
		for i, d := range m.Devices() {
			if r.mine(d) {
				return m.Owners()[i], true
			}
		}
	}
	return 0, false
}

// mine says whether this process drives a device.
func (r *resharding) mine(d serry.DeviceID) bool {
	task, ok := r.engine.owner(d)
	return ok && task == r.engine.life.Task
}

// lost lists the source devices whose processes are not there.
func (r *resharding) lost() (list []serry.DeviceID) {
	for _, d := range r.From.Mesh().Devices() {
		if task, _ := r.engine.owner(d); !r.mine(d) {
			if _, err := r.engine.peerOf(task); err != nil {
				list = append(list, d)
			}
		}
	}
	return list
}

// checkShards wants a buffer of the right size for each source device of this process.
func (r *resharding) checkShards() error {
	shape, err := r.From.ShardShape(r.Shape)
	if err != nil {
		return err
	}
	want := r.spec(shape)
	size, err := want.Bytes()
	if err != nil {
		return err
	}
	for _, d := range r.local(r.From) {
		b := r.Shards[d]
		if b == nil {
			return invalid("device %d has no shard", d)
		}
		if b.memory.Region.Len() != size || b.memory.Region.Space() == memory.Device {
			return invalid("the shard of device %d has %d bytes of %v memory; want %d of the host", d, b.memory.Region.Len(), b.memory.Region.Space(), size)
		}
	}
	return nil
}

func (r *resharding) spec(shape []int) Spec {
	s := Spec{Type: r.Type, Dims: make([]int64, len(shape))}
	for i, n := range shape {
		s.Dims[i] = int64(n)
	}
	return s
}

// local lists the devices of a sharding that this process drives.
func (r *resharding) local(s *mesh.Sharding) (list []serry.DeviceID) {
	for _, d := range s.Mesh().Devices() {
		if r.mine(d) {
			list = append(list, d)
		}
	}
	return list
}

// offer lets other processes pull the shards of this one. It is nil if this one has none.
func (r *resharding) offer() (*Offered, error) {
	var buffers []*Buffer
	for _, d := range r.local(r.From) {
		buffers = append(buffers, r.Shards[d])
	}
	if len(buffers) == 0 {
		return nil, nil
	}
	return r.engine.publish(r.ctx, reservedOffers+offer.ID(r.Key), buffers, OfferOptions{Times: offer.Unlimited, Token: r.token})
}

// tellOthers has this process tell all that hold shards when it needs nothing any more, and hear the same of all that need
// shards. The event that it returns ends when no process needs the shards of this one: then they are not offered any more. A
// process that is lost needs none.
func (r *resharding) tellOthers(over *Event, offered *Offered) (*Event, error) {
	e := r.engine
	key := Key{Namespace: reshardNamespace, Seq: r.Key}
	var ops []Op
	if mine := r.local(r.From); len(mine) > 0 {
		for _, d := range r.others(r.To) {
			ops = append(ops, Op{Key: key, Src: d, Dst: mine[0]})
		}
	}
	if mine := r.local(r.To); len(mine) > 0 {
		token, err := e.pool.Buffer(Spec{}, Memory{Device: mine[0]})
		if err != nil {
			return nil, err
		}
		token.Define(over)
		for _, d := range r.others(r.From) {
			ops = append(ops, Op{Key: key, Src: mine[0], Dst: d, Buffer: token})
		}
	}
	promise, released := e.pool.Event()
	var items []Item
	if len(ops) > 0 {
		g, err := e.Transfer(r.ctx, ops)
		if err != nil {
			promise.Set(err)
			return nil, err
		}
		items = g.Items()
	}
	events := []*Event{over}
	for _, item := range items {
		events = append(events, item.Event)
	}
	e.pool.Join(events...).After(func(error) {
		if offered != nil {
			offered.Withdraw()
		}
		promise.Set(unheard(items, ops))
	})
	return released, nil
}

// unheard is why it is not known whether a process needs the shards of this one, or nil.
func unheard(items []Item, ops []Op) error {
	for i, item := range items {
		err := item.Event.Err()
		if ops[i].Buffer == nil && err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrStale) {
			return err
		}
	}
	return nil
}

// others lists one device of each other process that is there and has devices of a sharding: the first one.
func (r *resharding) others(s *mesh.Sharding) (list []serry.DeviceID) {
	seen := make(map[serry.TaskID]bool)
	for _, d := range s.Mesh().Devices() {
		task, _ := r.engine.owner(d)
		if r.mine(d) || seen[task] {
			continue
		}
		seen[task] = true
		if _, err := r.engine.peerOf(task); err == nil {
			list = append(list, d)
		}
	}
	return list
}

// allocate makes the shards of this process.
func (r *resharding) allocate() error {
	shape, err := r.To.ShardShape(r.Shape)
	if err != nil {
		return err
	}
	for _, d := range r.local(r.To) {
		size, err := r.spec(shape).Bytes()
		if err != nil {
			return err
		}
		m, err := r.engine.alloc(d, size)
		if err != nil {
			return fmt.Errorf("%w: memory for a shard: %w", ErrLimit, err)
		}
		if m.Region.Space() == memory.Device {
			return fmt.Errorf("shards in memory of device %d: %w", d, ErrUnsupported)
		}
		b, err := r.engine.pool.Buffer(r.spec(shape), m)
		if err != nil {
			return err
		}
		promise, defined := r.engine.pool.Event()
		b.Define(defined)
		r.result.Shards[d] = b
		r.shards[d] = &arriving{memory: m.Region, promise: promise, left: 1}
	}
	return nil
}

// abort ends a call that does not begin.
func (r *resharding) abort(offered *Offered, err error) {
	for _, s := range r.shards {
		s.promise.Set(err)
	}
	r.finished.Set(err)
	if offered != nil {
		offered.Withdraw()
	}
}

func (r *resharding) definitions() (list []*Event) {
	for _, d := range r.local(r.To) {
		list = append(list, r.result.Shards[d].Definition())
	}
	return list
}

// fetchAll begins to fetch what this process needs. Moves of the same bytes to several devices of it are one fetch.
func (r *resharding) fetchAll() {
	type bytes struct {
		block, offset int
		pattern       *mesh.Pattern
	}
	places := make(map[bytes]*fetch)
	var list []*fetch
	for _, m := range r.plan.Moves {
		if !r.mine(m.To) {
			continue
		}
		r.shards[m.To].left++
		at := bytes{m.Block(), m.FromOffset, m.Pattern}
		f := places[at]
		if f == nil {
			f = &fetch{resharding: r, sources: r.sources(m)}
			places[at] = f
			list = append(list, f)
		}
		f.moves = append(f.moves, m)
	}
	r.open.Store(int64(len(list)) + 1)
	for _, f := range list {
		f.next(nil)
	}
	for _, d := range r.local(r.To) {
		r.shards[d].ended(nil)
	}
	r.ended()
}

// sources lists the devices that hold the bytes of a move: those of this process, the one that the plan has chosen, then the
// others.
func (r *resharding) sources(m mesh.Move) []serry.DeviceID {
	list := slices.Clone(r.plan.Holders(m))
	rank := func(d serry.DeviceID) int {
		switch {
		case r.mine(d):
			return 0
		case d == m.From:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(list, func(a, b serry.DeviceID) int { return rank(a) - rank(b) })
	return list
}

// ended notes that a fetch has.
func (r *resharding) ended() {
	if r.open.Add(-1) == 0 {
		r.finished.Set(nil)
	}
}

// ended notes that a move to the shard has ended.
func (s *arriving) ended(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.left--
	last, err := s.left == 0, s.err
	s.mu.Unlock()
	if last {
		s.promise.Set(err)
	}
}
