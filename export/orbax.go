package export

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// ReadOrbax reads the manifest of an older Orbax model: one function for each entry, by name
// (C-EXP-5). Its shardings are tiles over logical device numbers: the names of mesh axes are not in the
// file, so such a manifest binds to a mesh with any names (C-EXP-6). name says where data comes from
// and starts every error.
func ReadOrbax(name string, data []byte) (map[string]*Manifest, error) {
	r := &orbaxReader{functions: map[string]*Manifest{}}
	r.each(data, func(f protoField) {
		switch f.number {
		case 1:
			r.object(f)
		case 3:
			f.messages(1, r.device)
		}
	})
	if len(r.functions) == 0 {
		r.fail(formErrorf("there is no function in it"))
	}
	for _, function := range slices.Sorted(maps.Keys(r.functions)) {
		m := r.functions[function]
		m.Devices = r.places
		m.NumDevices = max(m.NumDevices, len(r.places), 1)
		if r.err == nil {
			r.err = m.Check()
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("%s: Orbax manifest: %w", name, r.err)
	}
	return r.functions, nil
}

// An orbaxReader collects what a manifest has.
type orbaxReader struct {
	protoReader
	functions map[string]*Manifest
	places    []ChipPlace
}

// object reads an entry of the map from names to functions and values; values are not programs.
func (r *orbaxReader) object(f protoField) {
	key, value := mapEntry(f)
	value.messages(1, func(f protoField) {
		o := &orbaxFunction{m: newManifest(), shardings: map[string]string{}}
		o.m.Function, o.m.Producer.Name = key, "orbax"
		o.read(f)
		r.within("function %q", key)
		r.functions[key] = o.m
	})
}

// mapEntry reads the key and the value of an entry of a protobuf map.
func mapEntry(f protoField) (key string, value protoField) {
	value = protoField{r: f.r, kind: protowire.BytesType}
	f.each(func(f protoField) {
		switch f.number {
		case 1:
			key = string(f.bytes())
		case 2:
			value.value = f.bytes()
		}
	})
	return key, value
}

// device reads an entry of the table from logical device numbers to places on the torus.
func (r *orbaxReader) device(f protoField) {
	var p ChipPlace
	f.each(func(f protoField) {
		switch f.number {
		case 1:
			p.ID = int(int32(f.varint()))
		case 2:
			p.Coords = f.ints(p.Coords)
		case 3:
			p.Core = int(int32(f.varint()))
		}
	})
	r.places = append(r.places, p)
}

// An orbaxFunction reads one function.
type orbaxFunction struct {
	m         *Manifest
	shardings map[string]string // ids by tile
	symbols   int               // made so far
}

func (o *orbaxFunction) read(f protoField) {
	f.each(func(f protoField) {
		switch f.number {
		case 1:
			o.signature(f)
		case 2:
			f.messages(1, o.program)
		}
	})
}

// signature reads the types of arguments and results.
func (o *orbaxFunction) signature(f protoField) {
	f.each(func(f protoField) {
		switch f.number {
		case 1:
			o.m.Inputs = o.values(f, argumentNames)
		case 2:
			o.m.Outputs = o.values(f, resultNames)
		}
	})
}

func (o *orbaxFunction) values(f protoField, names func(*Tree) ([]string, error)) (values []Value) {
	tree := o.tree(f, &values, 0)
	if f.r.err == nil {
		f.r.fail(nameValues(tree, values, names))
	}
	return values
}

// The kinds of a type, by their numbers in the message.
const (
	orbaxLeaf    = 1
	orbaxTuple   = 2
	orbaxList    = 3
	orbaxNone    = 4
	orbaxOrdered = 5
	orbaxDict    = 6
	orbaxPairs   = 7
)

// tree reads a type, and appends the values of its leaves. The kinds are alternatives, so a message with
// two of them is damaged: its children would be partly those of a tuple and partly those of a dict.
func (o *orbaxFunction) tree(f protoField, values *[]Value, depth int) *Tree {
	out := &Tree{Kind: "none"}
	if depth > maxDepth {
		f.failf("a type is nested more than %d deep", maxDepth)
		return out
	}
	kinds := 0
	f.each(func(f protoField) {
		f.bytes() // whatever kind it is, it must be a message
		if kinds++; kinds > 1 {
			f.failf("a type of two kinds")
			return
		}
		switch f.number {
		case orbaxLeaf:
			out.Kind = "leaf"
			*values = append(*values, o.leaf(f))
		case orbaxTuple, orbaxList:
			out.Kind = treeKinds[f.number] // the same numbers as in the form of JAX
			f.each(func(f protoField) { out.Children = append(out.Children, o.tree(f, values, depth+1)) })
		case orbaxNone:
		case orbaxOrdered, orbaxDict, orbaxPairs:
			out.Kind = "dict"
			o.dict(out, f, values, depth)
		default:
			f.failf("unknown kind %d of a type", f.number)
		}
	})
	return out
}

// dict reads pairs of names and types. JAX orders the values of a dict by name, whatever order the
// message has.
func (o *orbaxFunction) dict(to *Tree, f protoField, values *[]Value, depth int) {
	types := map[string]protoField{}
	f.each(func(f protoField) {
		key, value := mapEntry(f)
		types[key] = value
	})
	for _, key := range slices.Sorted(maps.Keys(types)) {
		if f.r.err != nil {
			return
		}
		to.Keys, to.Children = append(to.Keys, key), append(to.Children, o.tree(types[key], values, depth+1))
		f.r.within("%q", key)
	}
}

// leaf reads the type of one value: a tensor, or a token.
func (o *orbaxFunction) leaf(f protoField) Value {
	v := Value{DType: Token}
	f.messages(1, func(tensor protoField) {
		tensor.each(func(f protoField) { o.tensor(&v, f) })
	})
	return v
}

func (o *orbaxFunction) tensor(v *Value, f protoField) {
	switch f.number {
	case 1:
		o.shape(v, f)
	case 2:
		n := f.varint()
		if n < 1 || n > uint64(len(elementTypes)) {
			f.failf("unknown dtype %d", n)
			return
		}
		v.DType = elementTypes[n-1].name // one more than in the form of JAX
	case 3:
		v.Sharding = o.sharding(f)
	}
}

// shape reads the sizes of dimensions. One that is not known gets a symbol of its own.
func (o *orbaxFunction) shape(v *Value, f protoField) {
	f.each(func(ranked protoField) {
		ranked.each(func(dim protoField) {
			size := Size("")
			dim.each(func(f protoField) { size = Size(strconv.FormatUint(f.varint(), 10)) })
			if size == "" {
				size = Size("d" + strconv.Itoa(o.symbols))
				o.symbols++
			}
			v.Shape = append(v.Shape, size)
		})
	})
}

// program reads StableHLO bytes, or where they are.
func (o *orbaxFunction) program(f protoField) {
	p := &o.m.Program
	p.MIME = MIMEStableHLO
	f.each(func(f protoField) {
		switch f.number {
		case 1:
			p.unstructured(f)
		case 2:
			p.Convention = int(int32(f.varint()))
		case 3:
			p.Platforms = append(p.Platforms, string(f.bytes()))
		case 4:
			p.KeptArgs = f.ints(p.KeptArgs)
		}
	})
}

// unstructured reads bytes that are in the manifest or beside it.
func (p *Program) unstructured(f protoField) {
	f.each(func(f protoField) {
		switch b := f.bytes(); f.number {
		case 1:
			f.messages(1, func(path protoField) { p.File = string(path.bytes()) })
		case 2, 3:
			p.Bytes, p.SHA256 = b, digest(b)
		case 4:
			p.MIME = string(b)
		}
	})
}

// sharding keeps a tile and returns its id.
func (o *orbaxFunction) sharding(f protoField) string {
	tile, err := readOpSharding(f.bytes())
	f.r.fail(err)
	text := tile.String()
	if id, ok := o.shardings[text]; ok {
		return id
	}
	id := "s" + strconv.Itoa(len(o.m.Shardings))
	o.m.Shardings = append(o.m.Shardings, Sharding{ID: id, Tile: text})
	o.shardings[text] = id
	o.m.NumDevices = max(o.m.NumDevices, tile.Size())
	return id
}
