package export

import (
	"fmt"

	"github.com/serry-dev/serry/mesh"
)

// An opSharding is a sharding of the compiler as it stands in a message.
type opSharding struct {
	kind          mesh.TileType // the numbers are the same
	dims, devices []int
	replicateLast bool
	last          []mesh.TileType
	reshape, perm []int
	tuple         bool
}

// readOpSharding reads a serialized xla.OpSharding.
func readOpSharding(data []byte) (mesh.Tile, error) {
	var op opSharding
	var r protoReader
	r.each(data, func(f protoField) {
		switch f.number {
		case 1:
			op.kind = mesh.TileType(min(f.varint(), 1<<16))
		case 3:
			op.dims = f.ints(op.dims)
		case 4:
			op.devices = f.ints(op.devices)
		case 5:
			op.tuple = true
		case 6:
			op.replicateLast = f.varint() != 0
		case 8:
			for _, t := range f.ints(nil) {
				op.last = append(op.last, mesh.TileType(t))
			}
		case 9:
			op.reshape = f.ints(op.reshape)
		case 10:
			op.perm = f.ints(op.perm)
		}
	})
	if r.err != nil {
		return mesh.Tile{}, fmt.Errorf("sharding of the compiler: %w", r.err)
	}
	return op.tile()
}

func (op *opSharding) tile() (mesh.Tile, error) {
	switch op.kind {
	case mesh.TileReplicated, mesh.TileManual:
		return mesh.Tile{Type: op.kind}, nil
	case mesh.TileMaximal:
		if len(op.devices) != 1 {
			return mesh.Tile{}, formErrorf("a sharding on one device names %d", len(op.devices))
		}
		return mesh.Tile{Type: op.kind, Devices: op.devices}, nil
	case mesh.Tiled:
	default:
		return mesh.Tile{}, fmt.Errorf("%w: sharding of kind %d", ErrUnsupported, op.kind)
	}
	if op.tuple {
		return mesh.Tile{}, fmt.Errorf("%w: a tuple of shardings for one value", ErrUnsupported)
	}
	last := op.last
	if op.replicateLast {
		last = append(last, mesh.TileReplicated)
	}
	if op.reshape != nil {
		return mesh.NewTile(op.dims, op.reshape, op.perm, last...)
	}
	return mesh.ListedTile(op.dims, op.devices, last...)
}
