package export

// values reads the arguments and results: the value of each, its sharding, and its name from the tree.
func (r *jaxReader) values() {
	r.avals = list(r.table, 19, readValue)
	r.m.Inputs, r.m.Outputs = r.side(3, 22, 7, 24), r.side(5, 23, 8, 25)
	r.m.JAX.In = r.tree(2, "arguments", r.m.Inputs, argumentNames)
	r.m.JAX.Out = r.tree(4, "results", r.m.Outputs, resultNames)
}

// side reads the arguments or the results. Newer files have tables and lists of places in them, older
// ones list everything in full (C-EXP-15a).
func (r *jaxReader) side(full, places, fullShardings, shardingPlaces int) []Value {
	values := r.placed(places)
	if len(values) == 0 {
		values = list(r.table, full, readValue)
	}
	shardings := r.placedShardings(shardingPlaces)
	if len(shardings) == 0 {
		shardings = list(r.table, fullShardings, r.readSharding)
	}
	if len(shardings) != 0 && len(shardings) != len(values) {
		r.failf("%d shardings for %d values", len(shardings), len(values))
		return nil
	}
	for i, id := range shardings {
		values[i].Sharding = id
	}
	return values
}

// placed reads values by their places in the table.
func (r *jaxReader) placed(field int) []Value {
	places := r.numbers(field, 4)
	if len(places) > maxList {
		r.failf("%d arguments or results, at most %d are read", len(places), maxList)
		return nil
	}
	out := make([]Value, len(places))
	for i, n := range places {
		if n >= len(r.avals) {
			r.failf("value %d of a table of %d", n, len(r.avals))
			return nil
		}
		out[i] = r.avals[n]
	}
	return out
}

// placedShardings reads ids of shardings by their places in the table; these count from 1, and 0 means
// that the sharding is left to the compiler.
func (r *jaxReader) placedShardings(field int) []string {
	places := r.numbers(field, 4)
	out := make([]string, len(places))
	for i, n := range places {
		if n > len(r.named) {
			r.failf("sharding %d of a table of %d", n, len(r.named))
			return nil
		}
		if n > 0 {
			out[i] = r.named[n-1]
		}
	}
	return out
}

// readSharding reads an entry of the older lists: named, or a tile, or neither.
func (r *jaxReader) readSharding(t table) string {
	if named, ok := t.table(2); ok {
		return r.keep(r.readNamed(named))
	}
	at := t.target(1)
	if at == 0 {
		return ""
	}
	tile, err := readOpSharding(t.f.bytes(at))
	t.f.fail(err)
	return r.keep(Sharding{Tile: tile.String()})
}

func readValue(t table) (v Value) {
	kind, shape, dtype, space := t.number(0, 1), t.texts(1), t.number(2, 1), t.number(3, 1)
	for _, s := range shape {
		v.Shape = append(v.Shape, Size(s))
	}
	switch {
	case kind == 1:
		v.DType = Token
	case kind > 1:
		t.failf("unknown kind %d of a value", kind)
	case dtype >= len(elementTypes):
		t.failf("unknown dtype %d of a value", dtype)
	case space >= len(memorySpaces):
		t.failf("unknown memory space %d of a value", space)
	default:
		v.DType = elementTypes[dtype].name
		if v.Memory = memorySpaces[space]; v.Memory == memoryDevice {
			v.Memory = ""
		}
	}
	return v
}

// tree reads a tree and gives the values their names from it.
func (r *jaxReader) tree(field int, kind string, values []Value, names func(*Tree) ([]string, error)) *Tree {
	t, ok := r.table.table(field)
	if !ok {
		r.failf("the tree of its %s is missing", kind)
	}
	nodes := 0
	tree := readTree(t, 0, &nodes)
	if r.f.err != nil {
		return nil
	}
	if err := fitTree(kind, tree, len(values)); err != nil {
		r.f.fail(err)
		return nil
	}
	r.f.fail(nameValues(tree, values, names))
	return tree
}
