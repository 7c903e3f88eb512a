package mesh

import "github.com/serry-dev/serry"

// FromHostLocal makes a global array over m from one that lives on the local
// part of m ([Mesh.Local]) with the same spec; every dimension grows by the
// ratio of shards in the whole mesh to shards in the part. The buffers are
// shared. An array that is over m already is returned as it is. The devices of
// the task must form a block (C-DATA-8); [FromLocal] does not need that.
func FromHostLocal(m *Mesh, spec Spec, local *Array) (*Array, error) {
	if local.layout.Sharding.mesh.Equal(m) {
		return local, nil
	}
	part, global, err := bothSides(m, spec, local.layout.Task)
	if err != nil {
		return nil, err
	}
	if !local.layout.Sharding.Equivalent(part, len(local.layout.Shape)) {
		return nil, errorf(ErrInvalid, "local array is placed by %s, want %s: put it there first", local.layout.Sharding, part)
	}
	l := local.layout
	l.Sharding = global
	l.Shape = scale(l.Shape, global, part)
	return share(l, local)
}

// HostLocal is the inverse of [FromHostLocal]: the part of the array that the
// task holds, as an array over its own devices. The buffers are shared.
func (a *Array) HostLocal(spec Spec) (*Array, error) {
	l := a.layout
	part, global, err := bothSides(l.Sharding.mesh, spec, l.Task)
	if err != nil {
		return nil, err
	}
	if l.Sharding.mesh.Equal(part.mesh) {
		return a, nil
	}
	if !l.Sharding.Equivalent(global, len(l.Shape)) {
		return nil, errorf(ErrInvalid, "array is placed by %s, asked for its local part by %s", l.Sharding.spec, spec)
	}
	l.Sharding = part
	l.Shape = scale(l.Shape, part, global)
	return share(l, a)
}

// bothSides shards the local part of a mesh and the whole by one spec.
func bothSides(m *Mesh, spec Spec, task serry.TaskIndex) (part, whole *Sharding, err error) {
	local, err := m.Local(task)
	if err != nil {
		return nil, nil, err
	}
	if part, err = local.Shard(spec); err != nil {
		return nil, nil, err
	}
	whole, err = m.Shard(spec)
	return part, whole, err
}

// scale multiplies a shape by the shards of one sharding over those of another.
func scale(shape []int, by, over *Sharding) []int {
	num, den := by.blocks(len(shape)).ways, over.blocks(len(shape)).ways
	out := make([]int, len(shape))
	for d, n := range shape {
		out[d] = n / den[d] * num[d]
	}
	return out
}

// share makes an array with another layout on the buffers of a.
func share(l Layout, a *Array) (*Array, error) {
	pieces := make([]Piece, len(a.shards))
	for i, s := range a.shards {
		pieces[i] = Piece{s.Device, a.block(i)}
	}
	return FromPieces(l, pieces...)
}
