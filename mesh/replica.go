package mesh

import (
	"cmp"
	"crypto/sha256"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// A Digest stands for the data of one block on one device. Tasks exchange
// digests instead of data.
type Digest struct {
	Shard
	Sum [sha256.Size]byte
}

// Digests gives one digest for each shard of the task.
func (a *Array) Digests() []Digest {
	out := make([]Digest, len(a.shards))
	for i, s := range a.shards {
		out[i] = Digest{s, sha256.Sum256(a.data[i])}
	}
	return out
}

// CheckReplicas compares the digests of all tasks and finds the first block, in
// the order of their starts, of which two devices hold different data. JAX does
// not notice such arrays; what is computed from them is wrong without a word
// (W-TOP-22).
func CheckReplicas(all []Digest) error {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b Digest) int {
		return cmp.Or(a.Index.Compare(b.Index), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Device, b.Device))
	})
	for i := 1; i < len(sorted); i++ {
		a, b := sorted[i-1], sorted[i]
		if slices.Equal(a.Index, b.Index) && a.Sum != b.Sum {
			return errorf(ErrDiffer, "block %v differs: device %d of task %d and device %d of task %d hold other data: "+
				"every task must load the same values for it", a.Index, a.Device, a.Task, b.Device, b.Task)
		}
	}
	return nil
}

// CanPut says why JAX would refuse to put an array with one sharding onto
// another across tasks, or nil (C-ARR-8). A [Reshard] has no such limits; this
// is for plans that an unmodified JAX program has to carry out.
func CanPut(from, to *Sharding, shape []int, task serry.TaskIndex) error {
	a, err := from.ShardShape(shape)
	if err != nil {
		return err
	}
	b, err := to.ShardShape(shape)
	if err != nil {
		return err
	}
	if err := cmp.Or(from.needDevices(), to.needDevices()); err != nil {
		return err
	}
	if to.addressable(task) && from.addressable(task) {
		return nil
	}
	if sameSet(from.mesh, to.mesh) {
		return nil
	}
	switch {
	case from.addressable(task):
		return errorf(ErrUnsupported, "the array is only on task %d, the target is on tasks %s: "+
			"put the host value, or reshard", task, taskList(to.mesh.Tasks()))
	case from.mesh.size != to.mesh.size || !slices.Equal(a, b):
		return errorf(ErrUnsupported, "source and target should have the same set of devices, "+
			"or equally many and equal shards: %d devices with %s, %d with %s", from.mesh.size, notation.Tuple(a), to.mesh.size, notation.Tuple(b))
	case from.mesh.hardware.Platform == "cpu" || to.mesh.hardware.Platform == "cpu":
		return errorf(ErrUnsupported, "platform cpu does not support transfers of devices across hosts")
	}
	return nil
}

func sameSet(a, b *Mesh) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.ids)), slices.Sorted(slices.Values(b.ids)))
}
