package restore

import (
	"fmt"
	"math/bits"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/topo"
)

// A Live is a task that is there to restore: what it runs on, and what it holds
// of the step.
type Live struct {
	Record topo.TaskRecord
	Held   *Inventory // or nil if it holds nothing
}

// An Array is one array to restore, with the parts that each device needs.
type Array struct {
	Name  string
	Shape []int
	Type  string
	Parts []Part
}

// A Part is what one device needs of an array.
type Part struct {
	Device serry.DeviceID
	Index  mesh.Index
}

// A Holding names one copy of one shard, in a task or, with Task [FromStore], in
// the store.
type Holding struct {
	Task  serry.TaskIndex
	Array string
	Index mesh.Index
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
	Store  *Inventory // what the persistent store has of the step, or nil
	// Corrupt lists copies that turned out not to be what their digest says; the
	// plan does without them.
	Corrupt []Holding
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
	Index  mesh.Index  // what is read
	Shard  StoredShard // the shard it is read out of
	Bytes  int64       // that travel
}

// Local says whether the read stays within one task.
func (r Read) Local() bool { return r.From == r.Task }

// A Missing is a part of an array of which there is no copy.
type Missing struct {
	Array  string
	Index  mesh.Index
	Device serry.DeviceID
}

func (m Missing) String() string {
	return fmt.Sprintf("nobody holds %s%v, which device %d needs", m.Array, m.Index, m.Device)
}

// A Plan says for every part of every array where it comes from.
type Plan struct {
	Step     int64
	Restore  *Mesh          // read into this mesh, then permute to the target; nil: read in place
	Matching *topo.Matching // what became of the devices, or nil without a manifest
	Reads    []Read         // by array, device and index
	Missing  []Missing      // not empty: the step cannot be restored
	then     []topo.TaskRecord
	now      []Live
}

// A ConflictError says that two statements about what is held cannot both be
// true.
type ConflictError struct {
	Task   serry.TaskIndex // of the inventory
	Array  string          // or empty
	Index  mesh.Index      // or nil
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
	if e.Index != nil {
		text += e.Index.String()
	}
	return text + ": " + e.Reason
}

// NewPlan makes the plan for one step (P-RMP-4). It goes by content: a shuffled
// rank, a replaced host or another number of hosts only change where things come
// from. What a task holds itself is read there; what others hold comes from the
// one that has least to give so far, then from the same partition, then from the
// lowest number; what no task holds comes from the store. A plan with Missing
// parts is no error.
func NewPlan(in Input) (*Plan, error) {
	c, err := newChooser(in)
	if err != nil {
		return nil, err
	}
	plan := &Plan{Step: in.Step, Matching: c.matching, now: in.Live}
	if in.Saved != nil {
		plan.then = in.Saved.Tasks
	}
	if mesh, reads, ok := c.permuted(); ok {
		plan.Restore, plan.Reads = mesh, reads
		return plan, nil
	}
	for _, a := range c.in.Arrays {
		for _, part := range a.Parts {
			reads, missing := c.fetch(a.Name, part)
			plan.Reads = append(plan.Reads, reads...)
			plan.Missing = append(plan.Missing, missing...)
		}
	}
	return plan, nil
}

// share is how many of the bytes of a whole fall to a part of it.
func share(bytes int64, part, whole int) int64 {
	if whole <= 0 || part >= whole {
		return bytes
	}
	hi, lo := bits.Mul64(uint64(bytes), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole)) // part < whole, so hi < whole
	return int64(q)
}
