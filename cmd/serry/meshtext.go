package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// readSharding makes a sharding of what the command line says: the text of one, as JAX prints it; a
// mesh and a spec after it; axes and a spec; or @file, a file with any of these or with JSON. Tasks
// above 0 spread the devices evenly over so many, in mesh order.
func readSharding(text string, tasks int) (*mesh.Sharding, error) {
	s, err := parseSharding(text)
	if err != nil {
		return nil, fmt.Errorf("sharding %q: %w", fit(text, 60), err)
	}
	if tasks == 0 {
		return s, nil
	}
	m, err := spread(s.Mesh(), tasks)
	if err != nil {
		return nil, err
	}
	again, err := m.Shard(s.Spec())
	if err != nil {
		return nil, err
	}
	return again.WithMemory(s.Memory())
}

// maxShardingFile bounds what is read of a file.
const maxShardingFile = 1 << 26

func parseSharding(text string) (*mesh.Sharding, error) {
	name, isFile := strings.CutPrefix(text, "@")
	if isFile {
		content, err := readFile(name, maxShardingFile)
		if err != nil {
			return nil, err
		}
		if content = strings.TrimSpace(content); strings.HasPrefix(content, "{") {
			return form.DecodeSharding(name, []byte(content))
		}
		text = content
	}
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, "NamedSharding") {
		return form.ParseSharding(text)
	}
	at := max(strings.LastIndex(text, "PartitionSpec("), strings.LastIndex(text, "P("))
	if at < 0 {
		return nil, errors.New("want NamedSharding(…), a mesh and a spec such as \"data=4,model=2 P('data', 'model')\", or @file")
	}
	m, err := parseMesh(strings.TrimSpace(text[:at]))
	if err != nil {
		return nil, err
	}
	spec, err := form.ParseSpec(text[at:])
	if err != nil {
		return nil, err
	}
	return m.Shard(spec)
}

// parseMesh reads Mesh(…), or axes such as data=4,model=2 with devices 0, 1, 2 and so on.
func parseMesh(text string) (*mesh.Mesh, error) {
	if strings.HasPrefix(text, "Mesh") || strings.HasPrefix(text, "AbstractMesh") {
		return form.ParseMesh(text)
	}
	var axes []mesh.Axis
	for part := range strings.SplitSeq(text, ",") {
		name, size, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("axes %q: want name=size,..., such as data=4,model=2", text)
		}
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("axis %s: size %q: want a number from 1", name, size)
		}
		axes = append(axes, mesh.Axis{Name: name, Size: n})
	}
	return countedMesh(axes)
}

// countedMesh makes a mesh of devices 0, 1, 2 and so on.
func countedMesh(axes []mesh.Axis) (*mesh.Mesh, error) {
	places, err := mesh.Abstract(nil, axes...) // which bounds how many there are
	if err != nil {
		return nil, err
	}
	return mesh.New(mesh.Hosts(max(places.Size(), 1), 1), axes...)
}

// spread gives each of so many tasks an equal part of the devices.
func spread(m *mesh.Mesh, tasks int) (*mesh.Mesh, error) {
	if m.IsAbstract() {
		return m, nil // without devices there is nothing to spread
	}
	if tasks < 0 || m.Size()%tasks != 0 {
		return nil, fmt.Errorf("--tasks %d: %d devices cannot be spread evenly over them", tasks, m.Size())
	}
	hw, owners := m.Hardware(), m.Owners()
	for i := range owners {
		owners[i] = serry.TaskIndex(i * tasks / m.Size())
	}
	return mesh.Of(m.Devices(), owners, &hw, m.Axes()...)
}

// An extent is the shape and the element type of an array.
type extent struct {
	shape   []int
	element mesh.Element
}

// elements are the short names that JAX prints, with theirs in full.
var elements = map[string]mesh.Element{
	"bool": {Name: "bool", Bytes: 1},
	"i8":   {Name: "int8", Bytes: 1}, "i16": {Name: "int16", Bytes: 2}, "i32": {Name: "int32", Bytes: 4}, "i64": {Name: "int64", Bytes: 8},
	"u8": {Name: "uint8", Bytes: 1}, "u16": {Name: "uint16", Bytes: 2}, "u32": {Name: "uint32", Bytes: 4}, "u64": {Name: "uint64", Bytes: 8},
	"bf16": {Name: "bfloat16", Bytes: 2}, "f16": {Name: "float16", Bytes: 2}, "f32": {Name: "float32", Bytes: 4}, "f64": {Name: "float64", Bytes: 8},
	"f8_e4m3fn": {Name: "float8_e4m3fn", Bytes: 1}, "f8_e5m2": {Name: "float8_e5m2", Bytes: 1},
	"c64": {Name: "complex64", Bytes: 8}, "c128": {Name: "complex128", Bytes: 16},
}

// elementOf finds an element type by either of its names.
func elementOf(name string) (mesh.Element, error) {
	if e, ok := elements[name]; ok {
		return e, nil
	}
	var known []string
	for short, e := range elements {
		if e.Name == name {
			return e, nil
		}
		known = append(known, short)
	}
	slices.Sort(known)
	return mesh.Element{}, fmt.Errorf("element type %q: want one of %s", name, strings.Join(known, ", "))
}

// readExtent reads 8x4, or bf16[8,4] as JAX prints arrays; without a type it is f32, as in JAX.
func readExtent(text string) (extent, error) {
	e := extent{element: elements["f32"]}
	sizes, sep := text, "x"
	if name, rest, ok := strings.Cut(text, "["); ok {
		inner, closed := strings.CutSuffix(rest, "]")
		if !closed {
			return e, fmt.Errorf("%q: want a ] at the end", text)
		}
		var err error
		if e.element, err = elementOf(name); err != nil {
			return e, fmt.Errorf("%q: %w", text, err)
		}
		sizes, sep = inner, ","
		if inner == "" {
			return e, nil // a scalar
		}
	}
	total := e.element.Bytes
	for part := range strings.SplitSeq(sizes, sep) {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 {
			return e, fmt.Errorf("%q: size %q: want 8x4, or bf16[8,4] with an element type", text, part)
		}
		if n > 0 && total > maxArrayBytes/n {
			return e, fmt.Errorf("%q: more bytes than any array has", text)
		}
		total *= max(n, 1)
		e.shape = append(e.shape, n)
	}
	return e, nil
}

// maxArrayBytes is far beyond any array, and keeps sums within range.
const maxArrayBytes = 1 << 56

// readFile reads a file of at most limit bytes.
func readFile(name string, limit int64) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s: more than %d bytes", name, limit)
	}
	return string(text), err
}

// asFileError makes the error of a file a failure: the command line itself is right.
func asFileError(err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return runError{err}
	}
	return err
}
