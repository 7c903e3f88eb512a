package restore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/topo"
)

// maxReads bounds how many reads the parts of one device of one array may be
// put together from.
const maxReads = 1 << 16

// A chooser holds what all reads of one plan are chosen by.
type chooser struct {
	in       Input // Live sorted by task, Arrays by name, their Parts by device
	matching *topo.Matching
	owner    map[serry.DeviceID]serry.TaskIndex
	part     map[serry.TaskIndex]int   // partition of a task; absent if not known
	supply   map[string]*supply        // by array
	served   map[serry.TaskIndex]int64 // bytes that a task gives to others so far
}

func newChooser(in Input) (*chooser, error) {
	c := &chooser{in: in, owner: map[serry.DeviceID]serry.TaskIndex{}, part: map[serry.TaskIndex]int{},
		supply: map[string]*supply{}, served: map[serry.TaskIndex]int64{}}
	c.in.Live = slices.SortedFunc(slices.Values(in.Live), func(a, b Live) int { return cmp.Compare(a.Record.Task, b.Record.Task) })
	for _, step := range []func() error{c.addTasks, c.match, c.addHeld, c.mergeCopies, c.sortWanted} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// addTasks notes which live task owns which device.
func (c *chooser) addTasks() error {
	seen := map[serry.TaskIndex]bool{}
	for _, l := range c.in.Live {
		if seen[l.Record.Task] {
			return &serry.InvalidError{What: fmt.Sprintf("two live tasks with number %d", l.Record.Task)}
		}
		seen[l.Record.Task] = true
		if l.Record.Partition != nil {
			c.part[l.Record.Task] = *l.Record.Partition
		}
		for _, d := range l.Record.Devices {
			if other, ok := c.owner[d.ID]; ok {
				return &serry.InvalidError{What: fmt.Sprintf("device %d belongs to task %d and to task %d", d.ID, other, l.Record.Task)}
			}
			c.owner[d.ID] = l.Record.Task
		}
	}
	return nil
}

// match finds the saved devices among the live ones. It refuses an inventory
// that another task wrote than the one that the machine was.
func (c *chooser) match() error {
	if c.in.Saved == nil {
		return nil
	}
	now := make([]topo.TaskRecord, len(c.in.Live))
	for i, l := range c.in.Live {
		now[i] = l.Record
	}
	var err error
	if c.matching, err = topo.Match(c.in.Saved.Tasks, now, topo.ByOrdinal); err != nil {
		return err
	}
	former := map[serry.TaskIndex][]serry.TaskIndex{}
	for _, pair := range c.matching.Pairs {
		former[pair.Now.Task] = append(former[pair.Now.Task], pair.Was.Task)
	}
	for _, l := range c.in.Live {
		if was := former[l.Record.Task]; l.Held != nil && len(was) > 0 && !slices.Contains(was, l.Held.Task) {
			return &ConflictError{Task: l.Record.Task, Reason: fmt.Sprintf(
				"it was written as task %d, but the machine was another task in the manifest", l.Held.Task)}
		}
	}
	return nil
}

// addHeld takes what the live tasks and the store hold into the supply.
func (c *chooser) addHeld() error {
	for _, l := range c.in.Live {
		if err := c.add(l.Record.Task, l.Held); err != nil {
			return err
		}
	}
	return c.add(FromStore, c.in.Store)
}

// add takes what one inventory lists into the supply.
func (c *chooser) add(task serry.TaskIndex, held *Inventory) error {
	if held == nil {
		return nil
	}
	if held.Step != c.in.Step {
		return &ConflictError{Task: task, Reason: fmt.Sprintf("it is of step %d, not of %d", held.Step, c.in.Step)}
	}
	for _, a := range held.Arrays {
		s := c.supply[a.Name]
		if s == nil {
			s = &supply{shape: a.Shape, dtype: a.Type, first: task}
			c.supply[a.Name] = s
		}
		if !slices.Equal(s.shape, a.Shape) || s.dtype != a.Type {
			return &ConflictError{Task: task, Array: a.Name, Reason: fmt.Sprintf("%s%v, but %s%v at task %d", a.Type, a.Shape, s.dtype, s.shape, s.first)}
		}
		for _, shard := range a.Shards {
			if !shard.Index.Within(a.Shape) {
				return &ConflictError{Task: task, Array: a.Name, Index: shard.Index, Reason: fmt.Sprintf("not within %v", a.Shape)}
			}
			if !c.corrupt(task, a.Name, shard.Index) {
				s.blocks = append(s.blocks, &heldBlock{index: shard.Index, holders: []holder{{task, shard}}})
			}
		}
	}
	return nil
}

func (c *chooser) corrupt(task serry.TaskIndex, array string, index mesh.Index) bool {
	return slices.ContainsFunc(c.in.Corrupt, func(h Holding) bool {
		return h.Task == task && h.Array == array && slices.Equal(h.Index, index)
	})
}

// mergeCopies puts the copies of each block together. It refuses copies that are
// not the same, because nothing says which one is right.
func (c *chooser) mergeCopies() error {
	for _, name := range slices.Sorted(maps.Keys(c.supply)) {
		c.supply[name].merge()
		for _, b := range c.supply[name].blocks {
			one := b.holders[0]
			for _, h := range b.holders[1:] {
				if h.shard.Digest != one.shard.Digest {
					return &ConflictError{Task: h.task, Array: name, Index: b.index,
						Reason: fmt.Sprintf("digest %s, but %s at %s", h.shard.Digest, one.shard.Digest, holderName(one.task))}
				}
			}
		}
	}
	return nil
}

func holderName(task serry.TaskIndex) string {
	if task == FromStore {
		return "the store"
	}
	return fmt.Sprintf("task %d", task)
}

// sortWanted checks what is asked for and puts it in order.
func (c *chooser) sortWanted() error {
	c.in.Arrays = slices.SortedFunc(slices.Values(c.in.Arrays), func(a, b Array) int { return cmp.Compare(a.Name, b.Name) })
	for i, a := range c.in.Arrays {
		if i > 0 && c.in.Arrays[i-1].Name == a.Name {
			return &serry.InvalidError{What: fmt.Sprintf("array %q is asked for twice", a.Name)}
		}
		s := c.supply[a.Name]
		if s != nil && (!slices.Equal(s.shape, a.Shape) || s.dtype != a.Type) {
			return &ConflictError{Task: s.first, Array: a.Name, Reason: fmt.Sprintf("%s%v is held, %s%v is asked for", s.dtype, s.shape, a.Type, a.Shape)}
		}
		parts := slices.Clone(a.Parts)
		slices.SortStableFunc(parts, func(x, y Part) int {
			return cmp.Or(cmp.Compare(x.Device, y.Device), x.Index.Compare(y.Index))
		})
		c.in.Arrays[i].Parts = parts
		for _, part := range parts {
			if _, ok := c.owner[part.Device]; !ok {
				return &serry.InvalidError{What: fmt.Sprintf("%s is asked for on device %d, which no live task owns", a.Name, part.Device)}
			}
			if !part.Index.Within(a.Shape) {
				return &serry.InvalidError{What: fmt.Sprintf("%s%v is asked for, which is not within %v", a.Name, part.Index, a.Shape)}
			}
		}
	}
	return nil
}

// fetch finds the reads that bring one part to the task that owns its device, or
// what is missing. It takes the best copy of any block that overlaps the part,
// and goes on with what that copy does not have.
func (c *chooser) fetch(array string, part Part) (reads []Read, missing []Missing) {
	task := c.owner[part.Device]
	for rest := []mesh.Index{part.Index}; len(rest) > 0; {
		index := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if index.Elements() == 0 {
			continue
		}
		o, ok := c.best(array, index, task)
		if !ok || len(reads) == maxReads {
			missing = append(missing, Missing{array, index, part.Device})
			continue
		}
		r := Read{Device: part.Device, Task: task, From: o.task, Array: array, Index: o.common, Shard: o.shard,
			Bytes: share(o.shard.Bytes, o.common.Elements(), o.shard.Index.Elements())}
		if !r.Local() {
			c.served[r.From] += r.Bytes
		}
		reads = append(reads, r)
		rest = append(rest, index.Minus(o.common)...)
	}
	slices.SortFunc(reads, func(x, y Read) int { return x.Index.Compare(y.Index) })
	slices.SortFunc(missing, func(x, y Missing) int { return x.Index.Compare(y.Index) })
	return reads, missing
}

// best chooses which copy gives the next piece of a block to a task.
func (c *chooser) best(array string, index mesh.Index, task serry.TaskIndex) (best offer, ok bool) {
	s := c.supply[array]
	if s == nil {
		return offer{}, false
	}
	for _, b := range s.near(index) {
		common, overlaps := b.index.Overlap(index)
		if !overlaps {
			continue
		}
		for _, h := range b.holders {
			if o := c.offer(h, common, task); !ok || o.compare(best) < 0 {
				best, ok = o, true
			}
		}
	}
	return best, ok
}

// An offer is what one copy has of a block that a task needs. Of two offers the
// one with the smaller numbers is better, the first number that differs decides.
type offer struct {
	holder
	common   mesh.Index
	distance int   // 0 the task itself, 1 a peer, 2 the store
	lacking  int   // minus the elements of the block that the copy has
	surplus  int   // elements of the copy that are not asked for
	served   int64 // bytes that its holder gives already
	abroad   int   // 1 for a peer that is not known to be in the same partition
}

func (c *chooser) offer(h holder, common mesh.Index, task serry.TaskIndex) offer {
	n := common.Elements()
	o := offer{holder: h, common: common, distance: 1, lacking: -n, surplus: h.shard.Index.Elements() - n, served: c.served[h.task], abroad: 1}
	switch h.task {
	case task:
		o.distance = 0
	case FromStore:
		o.distance = 2
	}
	x, okX := c.part[task]
	y, okY := c.part[h.task]
	if okX && okY && x == y {
		o.abroad = 0
	}
	return o
}

func (o offer) compare(q offer) int {
	return cmp.Or(cmp.Compare(o.distance, q.distance), cmp.Compare(o.lacking, q.lacking), cmp.Compare(o.surplus, q.surplus),
		cmp.Compare(o.served, q.served), cmp.Compare(o.abroad, q.abroad), cmp.Compare(o.task, q.task), o.common.Compare(q.common))
}

// A supply is all that is held of one array: its distinct blocks, by where they
// begin, each with its holders.
type supply struct {
	shape   []int
	dtype   string
	first   serry.TaskIndex // the task whose inventory had it first
	blocks  []*heldBlock
	longest int // the longest first dimension of any block
}

type heldBlock struct {
	index   mesh.Index
	holders []holder // by task, the store first
}

type holder struct {
	task  serry.TaskIndex
	shard StoredShard
}

// merge sorts the blocks and puts copies of one block together.
func (s *supply) merge() {
	slices.SortStableFunc(s.blocks, func(a, b *heldBlock) int {
		return cmp.Or(a.index.Compare(b.index), cmp.Compare(a.holders[0].task, b.holders[0].task))
	})
	var merged []*heldBlock
	for _, b := range s.blocks {
		if n := len(merged); n > 0 && slices.Equal(merged[n-1].index, b.index) {
			merged[n-1].holders = append(merged[n-1].holders, b.holders...)
			continue
		}
		merged = append(merged, b)
		if len(b.index) > 0 {
			s.longest = max(s.longest, b.index[0].Len())
		}
	}
	s.blocks = merged
}

// near returns the blocks that can overlap another one. It looks only at the
// first dimension.
func (s *supply) near(x mesh.Index) []*heldBlock {
	if len(x) == 0 {
		return s.blocks
	}
	from := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].index[0].Start > x[0].Start-s.longest })
	to := sort.Search(len(s.blocks), func(i int) bool { return s.blocks[i].index[0].Start >= x[0].Stop })
	return s.blocks[min(from, to):to]
}
