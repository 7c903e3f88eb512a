package export

import (
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
)

// Digest is the identity of a bound program (P-EXP-6): equal for two tasks if and only if they run the
// same program on the same devices in the same order, with the same shardings. The manifest must have
// the digest of the program for that; [Agree] insists on it.
func (b *Bound) Digest() string { return digest(b.facts().bytes()) }

// Shards lists the slice of every device. It fails while a symbol of the shape has no value, and gives
// none where the sharding is left to the compiler.
func (v BoundValue) Shards() ([]mesh.Shard, error) {
	if err := v.known(); err != nil || v.Sharding == nil {
		return nil, err
	}
	return v.Sharding.Shards(v.Extent)
}

// LocalShards is Shards for the devices of one task.
func (v BoundValue) LocalShards(task serry.TaskIndex) ([]mesh.Shard, error) {
	if err := v.known(); err != nil || v.Sharding == nil {
		return nil, err
	}
	return v.Sharding.LocalShards(v.Extent, task)
}

// known says which symbol is missing.
func (v BoundValue) known() error {
	d := slices.Index(v.Extent, unknownSize)
	if d < 0 {
		return nil
	}
	return &ValueError{v.Name, d, "", bindErrorf("dimension %d is %q, which has no value", d, v.Shape[d])}
}

// A Read is a strided range of a stored parameter that one device needs. The parameter is stored dense
// and row-major.
type Read struct {
	Parameter string // name of the input
	Source    Source
	Device    serry.DeviceID
	Offset    int           // of the first byte in the stored parameter
	ToOffset  int           // of the first byte in the shard of the device
	Pattern   *mesh.Pattern // how the bytes go on; shared by many reads
}

// Reads plans what the devices of a task read of the parameters that the manifest says the place of
// (P-EXP-5): for each device just the bytes of its shards.
func (b *Bound) Reads(task serry.TaskIndex) ([]Read, error) {
	var out []Read
	for _, v := range b.Inputs {
		source, stored := b.Manifest.Parameters[v.Name]
		if !stored {
			continue
		}
		reads, err := b.readsOf(v, source, task)
		if err != nil {
			return nil, valueError(v.Name, err)
		}
		out = append(out, reads...)
	}
	return out, nil
}

// readsOf plans a parameter as a move from one more device, which stands for the file and holds all.
func (b *Bound) readsOf(v BoundValue, source Source, task serry.TaskIndex) ([]Read, error) {
	if err := v.known(); err != nil {
		return nil, err
	}
	size := elementBytes(v.DType)
	if v.Sharding == nil || size == 0 {
		return nil, bindErrorf("parameter of type %s has no sharding, or elements that are no whole bytes", v.DType)
	}
	file := slices.Max(b.Devices) + 1
	disk, err := mesh.New([]mesh.Device{{ID: file, Task: slices.Max(b.Tasks) + 1, Slice: mesh.NoSlice}})
	if err != nil {
		return nil, err
	}
	from, err := disk.Shard(mesh.Spec{})
	if err != nil {
		return nil, err
	}
	plan, err := mesh.Reshard{Shape: v.Extent, ElementBytes: size, From: from, To: v.Sharding}.PlanFor(task)
	if err != nil {
		return nil, err
	}
	out := make([]Read, 0, len(plan.Moves))
	for _, m := range plan.Moves {
		out = append(out, Read{v.Name, source, m.To, m.FromOffset, m.ToOffset, m.Pattern})
	}
	return out, nil
}
