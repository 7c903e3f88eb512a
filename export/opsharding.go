package export

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

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
	err := eachField(data, func(f protoField) (err error) {
		switch f.number {
		case 1:
			var v uint64
			v, err = f.varint()
			op.kind = mesh.TileType(min(v, 1<<16))
		case 3:
			op.dims, err = f.ints(op.dims)
		case 4:
			op.devices, err = f.ints(op.devices)
		case 5:
			op.tuple = true
		case 6:
			var v uint64
			v, err = f.varint()
			op.replicateLast = v != 0
		case 8:
			var types []int
			types, err = f.ints(nil)
			for _, t := range types {
				op.last = append(op.last, mesh.TileType(t))
			}
		case 9:
			op.reshape, err = f.ints(op.reshape)
		case 10:
			op.perm, err = f.ints(op.perm)
		}
		return err
	})
	if err != nil {
		return mesh.Tile{}, fmt.Errorf("sharding of the compiler: %w", err)
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

// A protoField is one field of a protobuf message as it stands in the bytes.
type protoField struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // of a BytesType its content, else what encodes it
}

// eachField walks over the fields of a message.
func eachField(data []byte, visit func(protoField) error) error {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return formErrorf("message: %v", protowire.ParseError(n))
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(number, kind, data)
		if n < 0 {
			return formErrorf("message, field %d: %v", number, protowire.ParseError(n))
		}
		f := protoField{number, kind, data[:n:n]}
		if kind == protowire.BytesType {
			f.value, _ = protowire.ConsumeBytes(f.value)
		}
		if err := visit(f); err != nil {
			return fmt.Errorf("field %d: %w", number, err)
		}
		data = data[n:]
	}
	return nil
}

// eachMessage walks over the messages that a message holds under one number.
func eachMessage(data []byte, number protowire.Number, visit func(body []byte) error) error {
	return eachField(data, func(f protoField) error {
		if f.number != number {
			return nil
		}
		body, err := f.bytes()
		if err != nil {
			return err
		}
		return visit(body)
	})
}

func (f protoField) varint() (uint64, error) {
	if f.kind != protowire.VarintType {
		return 0, formErrorf("want a number, got wire type %d", f.kind)
	}
	v, _ := protowire.ConsumeVarint(f.value)
	return v, nil
}

func (f protoField) bytes() ([]byte, error) {
	if f.kind != protowire.BytesType {
		return nil, formErrorf("want bytes, got wire type %d", f.kind)
	}
	return f.value, nil
}

// ints appends a number, or a packed list of them, to dst.
func (f protoField) ints(dst []int) ([]int, error) {
	if f.kind == protowire.VarintType {
		v, err := f.varint()
		return append(dst, int(int64(v))), err
	}
	rest, err := f.bytes()
	for len(rest) > 0 && err == nil {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			return nil, formErrorf("list of numbers: %v", protowire.ParseError(n))
		}
		dst, rest = append(dst, int(int64(v))), rest[n:]
	}
	return dst, err
}
