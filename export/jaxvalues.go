package export

// values reads the arguments and results: the value of each, its sharding, and its name from the tree.
func (r *jaxReader) values() (err error) {
	if r.avals, err = list(r.t, 19, readValue); err != nil {
		return err
	}
	if r.m.Inputs, err = r.side(3, 22, 7, 24); err != nil {
		return err
	}
	if r.m.Outputs, err = r.side(5, 23, 8, 25); err != nil {
		return err
	}
	if r.m.JAX.In, err = r.tree(2, "arguments", r.m.Inputs, argumentNames); err != nil {
		return err
	}
	r.m.JAX.Out, err = r.tree(4, "results", r.m.Outputs, resultNames)
	return err
}

// side reads the arguments or the results. Newer files have tables and lists of places in them, older
// ones list everything in full (C-EXP-15a).
func (r *jaxReader) side(full, places, fullShardings, shardingPlaces int) ([]Value, error) {
	values, err := r.placed(places)
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		if values, err = list(r.t, full, readValue); err != nil {
			return nil, err
		}
	}
	shardings, err := r.placedShardings(shardingPlaces)
	if err != nil {
		return nil, err
	}
	if len(shardings) == 0 {
		if shardings, err = list(r.t, fullShardings, r.readSharding); err != nil {
			return nil, err
		}
	}
	if len(shardings) != 0 && len(shardings) != len(values) {
		return nil, formErrorf("%d shardings for %d values", len(shardings), len(values))
	}
	for i, id := range shardings {
		values[i].Sharding = id
	}
	return values, nil
}

// placed reads values by their places in the table.
func (r *jaxReader) placed(field int) ([]Value, error) {
	places, err := r.t.numbers(field, 4)
	if err != nil {
		return nil, err
	}
	if len(places) > maxList {
		return nil, formErrorf("%d arguments or results, at most %d are read", len(places), maxList)
	}
	out := make([]Value, len(places))
	for i, n := range places {
		if n >= len(r.avals) {
			return nil, formErrorf("value %d of a table of %d", n, len(r.avals))
		}
		out[i] = r.avals[n]
	}
	return out, nil
}

// placedShardings reads ids of shardings by their places in the table; these count from 1, and 0 means
// that the sharding is left to the compiler.
func (r *jaxReader) placedShardings(field int) ([]string, error) {
	places, err := r.t.numbers(field, 4)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(places))
	for i, n := range places {
		if n > len(r.named) {
			return nil, formErrorf("sharding %d of a table of %d", n, len(r.named))
		}
		if n > 0 {
			out[i] = r.named[n-1]
		}
	}
	return out, nil
}

// readSharding reads an entry of the older lists: named, or a tile, or neither.
func (r *jaxReader) readSharding(t table) (string, error) {
	named, ok, err := t.table(2)
	if err != nil {
		return "", err
	}
	if ok {
		s, err := r.readNamed(named)
		if err != nil {
			return "", err
		}
		return r.keep(s), nil
	}
	at, err := t.target(1)
	if err != nil || at == 0 {
		return "", err
	}
	proto, err := t.f.bytes(at)
	if err != nil {
		return "", err
	}
	tile, err := readOpSharding(proto)
	if err != nil {
		return "", err
	}
	return r.keep(Sharding{Tile: tile.String()}), nil
}

func readValue(t table) (Value, error) {
	var v Value
	kind, err := t.number(0, 1)
	if err != nil {
		return v, err
	}
	shape, err := t.texts(1)
	if err != nil {
		return v, err
	}
	for _, s := range shape {
		v.Shape = append(v.Shape, Size(s))
	}
	dtype, err := t.number(2, 1)
	if err != nil {
		return v, err
	}
	space, err := t.number(3, 1)
	if err != nil {
		return v, err
	}
	switch {
	case kind == 1:
		v.DType = Token
		return v, nil
	case kind > 1:
		return v, formErrorf("unknown kind %d of a value", kind)
	case dtype >= len(elementTypes):
		return v, formErrorf("unknown dtype %d of a value", dtype)
	case space >= len(memorySpaces):
		return v, formErrorf("unknown memory space %d of a value", space)
	}
	v.DType = elementTypes[dtype].name
	if v.Memory = memorySpaces[space]; v.Memory == memoryDevice {
		v.Memory = ""
	}
	return v, nil
}

// tree reads a tree and gives the values their names from it.
func (r *jaxReader) tree(field int, kind string, values []Value, names func(*Tree) ([]string, error)) (*Tree, error) {
	t, ok, err := r.t.table(field)
	if err != nil || !ok {
		return nil, orMissing(err, "the tree of its "+kind+" is missing")
	}
	tree, err := readTree(t)
	if err != nil {
		return nil, err
	}
	if err := fitTree(kind, tree, len(values)); err != nil {
		return nil, err
	}
	all, err := names(tree)
	if err != nil {
		return nil, err
	}
	for i, name := range all {
		values[i].Name = name
	}
	return tree, nil
}
