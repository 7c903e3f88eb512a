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
	err := eachField(data, func(f protoField) error {
		switch f.number {
		case 1:
			return r.object(f)
		case 3:
			return r.devices(f)
		}
		return nil
	})
	if err == nil && len(r.functions) == 0 {
		err = formErrorf("there is no function in it")
	}
	for _, function := range slices.Sorted(maps.Keys(r.functions)) {
		m := r.functions[function]
		m.Devices = r.places
		m.NumDevices = max(m.NumDevices, len(r.places), 1)
		if err == nil {
			err = m.Check()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: Orbax manifest: %w", name, err)
	}
	return r.functions, nil
}

// An orbaxReader collects what a manifest has.
type orbaxReader struct {
	functions map[string]*Manifest
	places    []ChipPlace
}

// object reads an entry of the map from names to functions and values; values are not programs.
func (r *orbaxReader) object(f protoField) error {
	key, value, err := mapEntry(f)
	if err != nil {
		return err
	}
	return eachMessage(value, 1, func(body []byte) error {
		m := &orbaxFunction{m: newManifest()}
		m.m.Function, m.m.Producer.Name = key, "orbax"
		if err := m.read(body); err != nil {
			return fmt.Errorf("function %q: %w", key, err)
		}
		r.functions[key] = m.m
		return nil
	})
}

// mapEntry reads the key and the value of an entry of a protobuf map.
func mapEntry(f protoField) (key string, value []byte, err error) {
	entry, err := f.bytes()
	if err != nil {
		return "", nil, err
	}
	err = eachField(entry, func(f protoField) (err error) {
		switch f.number {
		case 1:
			var b []byte
			b, err = f.bytes()
			key = string(b)
		case 2:
			value, err = f.bytes()
		}
		return err
	})
	return key, value, err
}

// devices reads the table from logical device numbers to places on the torus.
func (r *orbaxReader) devices(f protoField) error {
	body, err := f.bytes()
	if err != nil {
		return err
	}
	return eachMessage(body, 1, func(entry []byte) error {
		var p ChipPlace
		err := eachField(entry, func(f protoField) (err error) {
			var v uint64
			switch f.number {
			case 1:
				v, err = f.varint()
				p.ID = int(int32(v))
			case 2:
				p.Coords, err = f.ints(p.Coords)
			case 3:
				v, err = f.varint()
				p.Core = int(int32(v))
			}
			return err
		})
		r.places = append(r.places, p)
		return err
	})
}

// An orbaxFunction reads one function.
type orbaxFunction struct {
	m         *Manifest
	shardings map[string]string // ids by tile
	symbols   int               // made so far
}

func (o *orbaxFunction) read(data []byte) error {
	o.shardings = map[string]string{}
	return eachField(data, func(f protoField) error {
		if f.number != 1 && f.number != 2 {
			return nil
		}
		body, err := f.bytes()
		if err != nil {
			return err
		}
		if f.number == 1 {
			return o.signature(body)
		}
		return o.body(body)
	})
}

// signature reads the types of arguments and results.
func (o *orbaxFunction) signature(data []byte) error {
	return eachField(data, func(f protoField) error {
		if f.number != 1 && f.number != 2 {
			return nil
		}
		body, err := f.bytes()
		if err != nil {
			return err
		}
		var values []Value
		tree, err := o.tree(body, &values, 0)
		if err != nil {
			return err
		}
		names := argumentNames
		if f.number == 2 {
			names = resultNames
		}
		all, err := names(tree)
		if err != nil {
			return err
		}
		for i, name := range all {
			values[i].Name = name
		}
		if f.number == 1 {
			o.m.Inputs = values
		} else {
			o.m.Outputs = values
		}
		return nil
	})
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
func (o *orbaxFunction) tree(data []byte, values *[]Value, depth int) (*Tree, error) {
	if depth > maxDepth {
		return nil, formErrorf("a type is nested more than %d deep", maxDepth)
	}
	out := &Tree{Kind: "none"}
	kinds := 0
	err := eachField(data, func(f protoField) error {
		body, err := f.bytes()
		if err != nil {
			return err
		}
		if kinds++; kinds > 1 {
			return formErrorf("a type of two kinds")
		}
		switch f.number {
		case orbaxLeaf:
			out.Kind = "leaf"
			v, err := o.leaf(body)
			*values = append(*values, v)
			return err
		case orbaxTuple, orbaxList:
			out.Kind = treeKinds[f.number] // the same numbers as in the form of JAX
			return eachField(body, func(f protoField) error { return o.child(out, "", f, values, depth) })
		case orbaxNone:
		case orbaxOrdered, orbaxDict, orbaxPairs:
			out.Kind = "dict"
			return o.dict(out, body, values, depth)
		default:
			return formErrorf("unknown kind %d of a type", f.number)
		}
		return nil
	})
	return out, err
}

// child adds the type in a field to a node.
func (o *orbaxFunction) child(to *Tree, key string, f protoField, values *[]Value, depth int) error {
	body, err := f.bytes()
	if err != nil {
		return err
	}
	c, err := o.tree(body, values, depth+1)
	if err != nil {
		return err
	}
	to.Children = append(to.Children, c)
	if to.Kind == "dict" {
		to.Keys = append(to.Keys, key)
	}
	return nil
}

// dict reads pairs of names and types. JAX orders the values of a dict by name, whatever order the
// message has.
func (o *orbaxFunction) dict(to *Tree, data []byte, values *[]Value, depth int) error {
	types := map[string][]byte{}
	err := eachField(data, func(f protoField) error {
		key, value, err := mapEntry(f)
		types[key] = value
		return err
	})
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(types)) {
		if err := o.child(to, key, protoField{1, protowire.BytesType, types[key]}, values, depth); err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
	}
	return nil
}

// leaf reads the type of one value: a tensor, or a token.
func (o *orbaxFunction) leaf(data []byte) (Value, error) {
	v := Value{DType: Token}
	err := eachMessage(data, 1, func(tensor []byte) error {
		return eachField(tensor, func(f protoField) error { return o.tensor(&v, f) })
	})
	return v, err
}

func (o *orbaxFunction) tensor(v *Value, f protoField) error {
	switch f.number {
	case 1:
		shape, err := f.bytes()
		if err != nil {
			return err
		}
		return o.shape(v, shape)
	case 2:
		n, err := f.varint()
		if err == nil && (n < 1 || n > uint64(len(elementTypes))) {
			err = formErrorf("unknown dtype %d", n)
		}
		if err != nil {
			return err
		}
		v.DType = elementTypes[n-1].name // one more than in the form of JAX
	case 3:
		proto, err := f.bytes()
		if err != nil {
			return err
		}
		v.Sharding, err = o.sharding(proto)
		return err
	}
	return nil
}

// shape reads the sizes of dimensions. One that is not known gets a symbol of its own.
func (o *orbaxFunction) shape(v *Value, data []byte) error {
	return eachField(data, func(f protoField) error {
		ranked, err := f.bytes()
		if err != nil {
			return err
		}
		return eachField(ranked, func(f protoField) error {
			dim, err := f.bytes()
			if err != nil {
				return err
			}
			size := Size("")
			err = eachField(dim, func(f protoField) error {
				n, err := f.varint()
				size = Size(strconv.FormatUint(n, 10))
				return err
			})
			if size == "" {
				size = Size("d" + strconv.Itoa(o.symbols))
				o.symbols++
			}
			v.Shape = append(v.Shape, size)
			return err
		})
	})
}

// body reads the program: StableHLO bytes, or where they are.
func (o *orbaxFunction) body(data []byte) error {
	return eachMessage(data, 1, func(hlo []byte) error {
		p := &o.m.Program
		p.MIME = MIMEStableHLO
		return eachField(hlo, func(f protoField) (err error) {
			switch f.number {
			case 1:
				return o.unstructured(f)
			case 2:
				var v uint64
				v, err = f.varint()
				p.Convention = int(int32(v))
			case 3:
				var b []byte
				b, err = f.bytes()
				p.Platforms = append(p.Platforms, string(b))
			case 4:
				p.KeptArgs, err = f.ints(p.KeptArgs)
			}
			return err
		})
	})
}

// unstructured reads bytes that are in the manifest or beside it.
func (o *orbaxFunction) unstructured(f protoField) error {
	body, err := f.bytes()
	if err != nil {
		return err
	}
	return eachField(body, func(f protoField) error {
		b, err := f.bytes()
		if err != nil {
			return err
		}
		switch f.number {
		case 1:
			return eachField(b, func(f protoField) error {
				path, err := f.bytes()
				if err == nil && f.number == 1 {
					o.m.Program.File = string(path)
				}
				return nil
			})
		case 2, 3:
			o.m.Program.Bytes, o.m.Program.SHA256 = b, digest(b)
		case 4:
			o.m.Program.MIME = string(b)
		}
		return nil
	})
}

// sharding keeps a tile and returns its id.
func (o *orbaxFunction) sharding(proto []byte) (string, error) {
	tile, err := readOpSharding(proto)
	if err != nil {
		return "", err
	}
	text := tile.String()
	if id, ok := o.shardings[text]; ok {
		return id, nil
	}
	id := "s" + strconv.Itoa(len(o.m.Shardings))
	o.m.Shardings = append(o.m.Shardings, Sharding{ID: id, Tile: text})
	o.shardings[text] = id
	o.m.NumDevices = max(o.m.NumDevices, tile.Size())
	return id, nil
}
