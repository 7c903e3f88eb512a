package remap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
)

// A Live is a task that is there to restore: what it runs on, where peers reach
// it, and what it holds of the step.
type Live struct {
	Record  topo.TaskRecord
	Address string
	Index   *Index // or nil if it holds nothing
}

// An Array is one array to restore, with the parts that each device needs.
type Array struct {
	Name  string
	Shape []int64
	Type  string
	Parts []Part
}

// A Part is what one device needs of an array.
type Part struct {
	Device serry.DeviceID
	Box    Box
}

// A Holding names one copy of one shard, in a task or, with Task [FromStore], in
// the store.
type Holding struct {
	Task  serry.TaskIndex
	Array string
	Box   Box
}

// FromStore stands for the persistent store in the place of a task.
const FromStore serry.TaskIndex = -1

// Input is all that a plan is made of. The same input makes the same plan, so
// one task makes it for all, or all make it and agree.
type Input struct {
	Step   int64
	Saved  *Manifest // of the step, or nil if no copy of it is left
	Live   []Live
	Arrays []Array
	Store  *Index // what the persistent store has of the step, or nil
	// Corrupt lists copies that turned out not to be what their digest says; the
	// plan does without them.
	Corrupt []Holding
	// Strict refuses a job of another size than the one that saved.
	Strict bool
	// Target is the mesh that the arrays are to be laid out on. With it, a
	// restore into the mesh they were saved in, and a permutation after that, is
	// planned where it makes every read a local one (C-RMP-10).
	Target *Mesh
}

// A Read is one part of an array on its way to a device: from the task itself,
// a peer, or the store.
type Read struct {
	Device serry.DeviceID  // that it is for
	Task   serry.TaskIndex // that owns the device and does the reading
	From   serry.TaskIndex // that holds it, or FromStore
	Array  string
	Box    Box   // what is read
	Shard  Shard // the shard it is read out of
	Bytes  int64 // that travel
}

// Local says whether the read stays within one task.
func (r Read) Local() bool { return r.From == r.Task }

// A Missing is a part of an array that nobody holds.
type Missing struct {
	Array  string
	Box    Box
	Device serry.DeviceID
}

func (m Missing) String() string {
	return fmt.Sprintf("nobody holds %s%v, which device %d needs", m.Array, m.Box, m.Device)
}

// A Plan says for every part of every array where it comes from.
type Plan struct {
	Step     int64
	Restore  *Mesh     // read into this mesh, then permute to the target; nil: read in place
	Matching *Matching // what became of the devices, or nil without a manifest
	Reads    []Read    // by array, device and box
	Missing  []Missing // not empty: the step cannot be restored
	then     []topo.TaskRecord
	now      []Live
}

// A ConflictError says that two statements about what is held cannot both be
// true.
type ConflictError struct {
	Task   serry.TaskIndex // whose index it is
	Array  string          // or empty
	Box    Box             // or nil
	Reason string
}

func (e *ConflictError) Error() string {
	text := fmt.Sprintf("index of task %d", e.Task)
	if e.Task == FromStore {
		text = "index of the store"
	}
	if e.Array != "" {
		text += ": " + e.Array
	}
	if e.Box != nil {
		text += e.Box.String()
	}
	return text + ": " + e.Reason
}

// PlanRestore makes the plan for one step (P-RMP-4). It goes by content: a
// shuffled rank, a replaced host or another number of hosts only change where
// things come from. What a task holds itself is read there; what others hold
// comes from the one that has least to give so far, then from the same
// partition, then from the lowest number; what nobody holds comes from the
// store. A plan with Missing parts is no error: see [PlanLatest].
func PlanRestore(in Input) (*Plan, error) {
	p, err := newPlanner(in)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Step: in.Step, Matching: p.matching, now: in.Live}
	if in.Saved != nil {
		plan.then = in.Saved.Tasks
	}
	if mesh, reads, ok := p.permuted(); ok {
		plan.Restore, plan.Reads = mesh, reads
		return plan, nil
	}
	for _, a := range p.arrays {
		for _, part := range a.Parts {
			reads, missing := p.fetch(a, part, p.owner[part.Device])
			plan.Reads = append(plan.Reads, reads...)
			plan.Missing = append(plan.Missing, missing...)
		}
	}
	return plan, nil
}

// PlanLatest plans the newest step that can be restored (P-RMP-5). Rejected are
// the plans of newer ones, each with what is missing. Without any that can, the
// plan is nil.
func PlanLatest(inputs []Input) (plan *Plan, rejected []*Plan, err error) {
	sorted := slices.Clone(inputs)
	slices.SortStableFunc(sorted, func(a, b Input) int { return cmp.Compare(b.Step, a.Step) })
	for _, in := range sorted {
		p, err := PlanRestore(in)
		if err != nil {
			return nil, rejected, fmt.Errorf("step %d: %w", in.Step, err)
		}
		if len(p.Missing) == 0 {
			return p, rejected, nil
		}
		rejected = append(rejected, p)
	}
	return nil, rejected, nil
}

// Reassigned is the same input after the live tasks were given the ranks that
// [Assign] finds for them, each with the device ids of the rank it takes. The
// difference between the two plans is what it is worth to start over with
// those ranks.
func (in Input) Reassigned() (Input, []Placement, error) {
	if in.Saved == nil {
		return in, nil, fmt.Errorf("no manifest of step %d to take former ranks from", in.Step)
	}
	present := make([]topo.TaskRecord, len(in.Live))
	byTask := map[serry.TaskIndex]topo.TaskRecord{}
	for i, l := range in.Live {
		present[i] = l.Record
		byTask[l.Record.Task] = l.Record
	}
	placed, err := Assign(in.Saved.Tasks, present, Seating{Tasks: len(present), Final: true})
	if err != nil {
		return in, nil, err
	}
	in.Live = slices.Clone(in.Live)
	for i, p := range placed {
		seat, ok := byTask[p.Task]
		if !ok || len(seat.Devices) != len(in.Live[i].Record.Devices) {
			return in, nil, fmt.Errorf("task %d cannot take rank %d: not as many devices", in.Live[i].Record.Task, p.Task)
		}
		r := in.Live[i].Record
		r.Task, r.Devices = p.Task, byOrdinal(r.Devices)
		for j, d := range byOrdinal(seat.Devices) {
			r.Devices[j].ID = d.ID
		}
		in.Live[i].Record = r
	}
	return in, placed, nil
}

func byOrdinal(devices []topo.DeviceRecord) []topo.DeviceRecord {
	sorted := slices.Clone(devices)
	slices.SortStableFunc(sorted, func(a, b topo.DeviceRecord) int { return cmp.Compare(a.Ordinal, b.Ordinal) })
	return sorted
}
