package remap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
)

// maxReads bounds how many reads the parts of one device of one array may be
// put together from.
const maxReads = 1 << 16

// A planner holds what all reads of one plan are chosen by.
type planner struct {
	in       Input
	arrays   []Array
	matching *Matching
	owner    map[serry.DeviceID]serry.TaskIndex
	part     map[serry.TaskIndex]int // partition of a task; absent if not known
	stock    map[string]*stock       // by array
	served   map[serry.TaskIndex]int64
}

func newPlanner(in Input) (*planner, error) {
	p := &planner{in: in, owner: map[serry.DeviceID]serry.TaskIndex{}, part: map[serry.TaskIndex]int{},
		stock: map[string]*stock{}, served: map[serry.TaskIndex]int64{}}
	live := slices.Clone(in.Live)
	slices.SortFunc(live, func(a, b Live) int { return cmp.Compare(a.Record.Task, b.Record.Task) })
	p.in.Live = live
	if err := p.meet(); err != nil {
		return nil, err
	}
	if err := p.match(); err != nil {
		return nil, err
	}
	for _, l := range live {
		if l.Index != nil {
			if err := p.add(l.Record.Task, l.Index); err != nil {
				return nil, err
			}
		}
	}
	if in.Store != nil {
		if err := p.add(FromStore, in.Store); err != nil {
			return nil, err
		}
	}
	for _, s := range p.stock {
		s.order()
	}
	if err := p.checkReplicas(); err != nil {
		return nil, err
	}
	return p, p.want()
}

// meet learns who is there.
func (p *planner) meet() error {
	seen := map[serry.TaskIndex]bool{}
	for _, l := range p.in.Live {
		if seen[l.Record.Task] {
			return &serry.InvalidError{What: fmt.Sprintf("two live tasks with number %d", l.Record.Task)}
		}
		seen[l.Record.Task] = true
		if l.Record.Partition != nil {
			p.part[l.Record.Task] = *l.Record.Partition
		}
		for _, d := range l.Record.Devices {
			if other, ok := p.owner[d.ID]; ok {
				return &serry.InvalidError{What: fmt.Sprintf("device %d belongs to task %d and to task %d", d.ID, other, l.Record.Task)}
			}
			p.owner[d.ID] = l.Record.Task
		}
	}
	return nil
}

// match finds the saved devices among the live, and an index whose writer was
// somebody else than its machine was then.
func (p *planner) match() error {
	if p.in.Saved == nil {
		if p.in.Strict {
			return &serry.InvalidError{What: "no manifest to compare the size of the job with"}
		}
		return nil
	}
	now := make([]topo.TaskRecord, len(p.in.Live))
	for i, l := range p.in.Live {
		now[i] = l.Record
	}
	var err error
	if p.matching, err = Match(p.in.Saved.Tasks, now, ByOrdinal); err != nil {
		return err
	}
	if err := p.checkStrict(); err != nil {
		return err
	}
	former := map[serry.TaskIndex]map[serry.TaskIndex]bool{}
	for _, pair := range p.matching.Pairs {
		if former[pair.Now.Task] == nil {
			former[pair.Now.Task] = map[serry.TaskIndex]bool{}
		}
		former[pair.Now.Task][pair.Was.Task] = true
	}
	for _, l := range p.in.Live {
		if was := former[l.Record.Task]; l.Index != nil && len(was) > 0 && !was[l.Index.Task] {
			return &ConflictError{Task: l.Record.Task, Reason: fmt.Sprintf(
				"it was written as task %d, but the machine was another task in the manifest", l.Index.Task)}
		}
	}
	return nil
}

func (p *planner) checkStrict() error {
	if !p.in.Strict {
		return nil
	}
	was := p.in.Saved.Metadata()
	present := map[serry.TaskIndex]int{}
	for _, l := range p.in.Live {
		present[l.Record.Task] = len(l.Record.Devices)
	}
	if len(was.Table) != len(p.in.Live) {
		return &ElasticError{What: "tasks", Was: len(was.Table), Now: len(p.in.Live)}
	}
	for i, row := range was.Table {
		if n := present[serry.TaskIndex(i)]; n != len(row) {
			return &ElasticError{What: fmt.Sprintf("devices of task %d", i), Was: len(row), Now: n}
		}
	}
	return nil
}

// add puts what one index lists into stock.
func (p *planner) add(task serry.TaskIndex, x *Index) error {
	if x.Step != p.in.Step {
		return &ConflictError{Task: task, Reason: fmt.Sprintf("it is of step %d, not of %d", x.Step, p.in.Step)}
	}
	for _, a := range x.Arrays {
		s := p.stock[a.Name]
		if s == nil {
			s = &stock{shape: a.Shape, dtype: a.Type, first: task}
			p.stock[a.Name] = s
		}
		if !slices.Equal(s.shape, a.Shape) || s.dtype != a.Type {
			return &ConflictError{Task: task, Array: a.Name, Reason: fmt.Sprintf("%s%v, but %s%v at task %d", a.Type, a.Shape, s.dtype, s.shape, s.first)}
		}
		for _, shard := range a.Shards {
			if !shard.Box.within(a.Shape) {
				return &ConflictError{Task: task, Array: a.Name, Box: shard.Box, Reason: fmt.Sprintf("not within %v", a.Shape)}
			}
			if !p.corrupt(task, a.Name, shard.Box) {
				s.lots = append(s.lots, &lot{box: shard.Box, size: shard.Box.Elements(), holders: []holder{{task, shard}}})
			}
		}
	}
	return nil
}

func (p *planner) corrupt(task serry.TaskIndex, array string, box Box) bool {
	return slices.ContainsFunc(p.in.Corrupt, func(h Holding) bool {
		return h.Task == task && h.Array == array && slices.Equal(h.Box, box)
	})
}

// checkReplicas refuses copies of one box that are not the same: nobody could
// say which is right.
func (p *planner) checkReplicas() error {
	var names []string
	for name := range p.stock {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, l := range p.stock[name].lots {
			one := l.holders[0]
			for _, h := range l.holders[1:] {
				if h.shard.Digest != one.shard.Digest {
					return &ConflictError{Task: h.task, Array: name, Box: l.box,
						Reason: fmt.Sprintf("digest %s, but %s at %s", h.shard.Digest, one.shard.Digest, who(one.task))}
				}
			}
		}
	}
	return nil
}

func who(task serry.TaskIndex) string {
	if task == FromStore {
		return "the store"
	}
	return fmt.Sprintf("task %d", task)
}

// want checks what is asked for and puts it in order.
func (p *planner) want() error {
	p.arrays = slices.Clone(p.in.Arrays)
	slices.SortFunc(p.arrays, func(a, b Array) int { return cmp.Compare(a.Name, b.Name) })
	for i, a := range p.arrays {
		if i > 0 && p.arrays[i-1].Name == a.Name {
			return &serry.InvalidError{What: fmt.Sprintf("array %q is asked for twice", a.Name)}
		}
		s := p.stock[a.Name]
		if s != nil && (!slices.Equal(s.shape, a.Shape) || s.dtype != a.Type) {
			return &ConflictError{Task: s.first, Array: a.Name, Reason: fmt.Sprintf("%s%v is held, %s%v is asked for", s.dtype, s.shape, a.Type, a.Shape)}
		}
		parts := slices.Clone(a.Parts)
		slices.SortStableFunc(parts, func(x, y Part) int {
			return cmp.Or(cmp.Compare(x.Device, y.Device), compareBoxes(x.Box, y.Box))
		})
		p.arrays[i].Parts = parts
		for _, part := range parts {
			if _, ok := p.owner[part.Device]; !ok {
				return &serry.InvalidError{What: fmt.Sprintf("%s is asked for on device %d, which no live task owns", a.Name, part.Device)}
			}
			if !part.Box.within(a.Shape) {
				return &serry.InvalidError{What: fmt.Sprintf("%s%v is asked for, which is not within %v", a.Name, part.Box, a.Shape)}
			}
		}
	}
	return nil
}

// fetch finds the reads that bring one part to a task, or what is missing.
func (p *planner) fetch(a Array, part Part, task serry.TaskIndex) (reads []Read, missing []Missing) {
	rest := []Box{part.Box}
	for len(rest) > 0 {
		box := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if box.Elements() == 0 {
			continue
		}
		from, common, ok := p.best(a.Name, box, task)
		if !ok || len(reads) == maxReads {
			missing = append(missing, Missing{a.Name, box, part.Device})
			continue
		}
		r := Read{Device: part.Device, Task: task, From: from.task, Array: a.Name, Box: common, Shard: from.shard,
			Bytes: share(from.shard.Bytes, common.Elements(), from.shard.Box.Elements())}
		if !r.Local() {
			p.served[r.From] += r.Bytes
		}
		reads = append(reads, r)
		rest = append(rest, box.minus(common)...)
	}
	slices.SortFunc(reads, func(x, y Read) int { return compareBoxes(x.Box, y.Box) })
	slices.SortFunc(missing, func(x, y Missing) int { return compareBoxes(x.Box, y.Box) })
	return reads, missing
}

// permuted looks for the mesh in which every device has what it wrote. It is
// only worth anything if it makes all reads local, which the indexes must
// confirm, and is not the target itself.
func (p *planner) permuted() (*Mesh, []Read, bool) {
	if p.in.Target == nil || p.in.Saved == nil || len(p.in.Saved.Mesh.Devices) != len(p.in.Target.Devices) {
		return nil, nil, false
	}
	stand := map[serry.DeviceID]serry.DeviceID{} // target device -> the one that has its data
	devices := make([]serry.DeviceID, len(p.in.Target.Devices))
	for i, was := range p.in.Saved.Mesh.Devices {
		now, ok := p.matching.Now(was)
		if !ok {
			return nil, nil, false
		}
		devices[i] = now
		stand[p.in.Target.Devices[i]] = now
	}
	if slices.Equal(devices, p.in.Target.Devices) || !sameSet(devices, p.in.Target.Devices) {
		return nil, nil, false
	}
	mesh, err := p.in.Target.With(devices)
	if err != nil {
		return nil, nil, false
	}
	reads, ok := p.allLocal(stand)
	return &mesh, reads, ok
}

// allLocal plans every part at the device that stands in for the one it is for.
func (p *planner) allLocal(stand map[serry.DeviceID]serry.DeviceID) ([]Read, bool) {
	var all []Read
	for _, a := range p.arrays {
		for _, part := range a.Parts {
			at, ok := stand[part.Device]
			if !ok {
				return nil, false
			}
			if reads, ok := p.local(a, Part{at, part.Box}); ok {
				all = append(all, reads...)
			} else {
				return nil, false
			}
		}
	}
	return all, true
}

// local is fetch without anybody's help; it leaves no trace if it fails.
func (p *planner) local(a Array, part Part) ([]Read, bool) {
	served := p.served
	p.served = map[serry.TaskIndex]int64{}
	defer func() { p.served = served }()
	reads, missing := p.fetch(a, part, p.owner[part.Device])
	return reads, len(missing) == 0 && !slices.ContainsFunc(reads, func(r Read) bool { return !r.Local() })
}

func sameSet(a, b []serry.DeviceID) bool {
	x, y := slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(x, y) && len(slices.Compact(x)) == len(y)
}
