package export

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// newestJAX is the newest version of the form of JAX that is read (C-EXP-15). Until 2026-07-27 writers put
// the constant 3 into the file, so a version up to 3 says nothing, and old files are known by the fields
// they have.
const newestJAX = 12

// jaxFields is how many fields the root table of the newest form has.
const jaxFields = 27

// ReadJAX reads a file that jax.export wrote (C-EXP-14). name says where data comes from and starts
// every error. The program of the result is part of data, not a copy.
//
// Files without named shardings, from before 2026-01-15, give tile shardings. Field numbers of the
// tables are those of the clause.
func ReadJAX(name string, data []byte) (*Manifest, error) {
	m, err := readJAX(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func readJAX(data []byte) (*Manifest, error) {
	f := newFlat(data)
	root := f.root()
	if f.err != nil {
		return nil, fmt.Errorf("%w: not a file of jax.export: %w", ErrFormat, f.err)
	}
	m := readExported(root, 0)
	if f.err != nil {
		return nil, wrapForm(f.err)
	}
	return m, m.Check()
}

// wrapForm makes errors about the layout errors about the form. A file of a newer version is not damaged.
func wrapForm(err error) error {
	switch {
	case errors.Is(err, ErrVersion) || errors.Is(err, ErrUnsupported):
		return err
	case errors.Is(err, ErrFormat):
		return fmt.Errorf("not a file of jax.export, or a damaged one: %w", err)
	}
	return fmt.Errorf("%w: not a file of jax.export, or a damaged one: %w", ErrFormat, err)
}

// A jaxReader reads one exported function. Its faults are kept by the flat of the table.
type jaxReader struct {
	table
	m *Manifest

	tables bool              // meshes are in a table, not in each sharding
	named  []string          // ids of the table of shardings, in order
	ids    map[string]string // of meshes and shardings, by their text: equal ones are one
	avals  []Value           // of the table of values
}

func readExported(t table, depth int) *Manifest {
	if depth > maxVersions {
		t.failf("more than %d derivatives", maxVersions)
		return nil
	}
	r := &jaxReader{table: t, m: newManifest(), ids: map[string]string{}}
	r.version()
	r.program()
	r.meshes()
	r.shardings()
	r.values()
	if derivative, ok := t.table(17); ok {
		r.m.Derivative = readExported(derivative, depth+1)
	}
	return r.m
}

// failf says what is wrong with the form of the file.
func (t table) failf(format string, args ...any) { t.f.fail(formErrorf(format, args...)) }

func (r *jaxReader) version() {
	version, release := r.number(0, 2), r.text(26)
	of := ""
	if release != "" {
		of = fmt.Sprintf(" of jax %q", release)
	}
	if version > newestJAX {
		r.f.fail(fmt.Errorf("%w: serialization version %d%s, this build of serry reads up to %d", ErrVersion, version, of, newestJAX))
	}
	for i := jaxFields; i < r.fields; i++ {
		if r.field(i) != 0 {
			r.f.fail(fmt.Errorf("%w: field %d of the file%s is not known to this build of serry", ErrVersion, i, of))
		}
	}
	r.m.Producer = Producer{Name: "jax", Version: release}
	r.m.JAX = &JAX{Version: version, Release: release}
}

func (r *jaxReader) program() {
	m, p := r.m, &r.m.Program
	m.Function = r.text(1)
	p.Platforms = r.texts(9)
	p.Effects.Ordered, p.Effects.Unordered = list(r.table, 10, effect), list(r.table, 11, effect)
	p.Disabled = list(r.table, 12, disabledCheck)
	p.Convention = r.number(14, 2)
	p.KeptArgs = r.numbers(15, 2)
	if m.NumDevices = r.number(18, 4); m.NumDevices == 0 {
		m.NumDevices = r.number(6, 2)
	}
	m.JAX.GlobalConstants = r.number(16, 1) != 0
	at := r.target(13)
	if at == 0 {
		r.failf("there is no program in it")
		return
	}
	p.MIME, p.Bytes = MIMEStableHLO, r.f.bytes(at)
	p.SHA256 = digest(p.Bytes)
}

func effect(t table) string { return t.text(0) }

// disabledCheck names a safety check as jax.export prints it.
func disabledCheck(t table) string {
	kind, target := t.number(0, 1), t.text(1)
	switch {
	case kind >= len(disabledKinds):
		t.failf("unknown kind %d of a disabled check", kind)
		return ""
	case kind == disabledCustomCall:
		return disabledKinds[kind] + ":" + target
	}
	return disabledKinds[kind]
}

const disabledCustomCall = 1

var disabledKinds = []string{"platform", "custom_call", "shape_assertions"}

// meshes reads the table of abstract meshes; files before version 10 have none, but one in each
// sharding.
func (r *jaxReader) meshes() {
	for _, e := range list(r.table, 20, readMesh) {
		r.addMesh(e)
	}
	r.tables = len(r.m.Meshes) > 0
}

// addMesh adds a mesh to the manifest and returns its id.
func (r *jaxReader) addMesh(e Mesh) string {
	e.ID = "m" + strconv.Itoa(len(r.m.Meshes))
	r.m.Meshes = append(r.m.Meshes, e)
	return e.ID
}

func readMesh(t table) Mesh {
	e := Mesh{Axes: form.Axes{Sizes: t.numbers(0, 4), Names: t.texts(1)}}
	types := t.numbers(2, 1)
	if len(types) == 0 {
		e.Types = slices.Repeat([]string{mesh.Auto.String()}, len(e.Names))
	}
	for _, n := range types {
		if n < 1 || n > len(axisTypes) {
			t.failf("unknown type %d of an axis", n)
			return e
		}
		e.Types = append(e.Types, axisTypes[n-1].String())
	}
	if device, ok := t.table(3); ok {
		e.Device = &form.Hardware{Kind: device.text(0), Cores: device.number(1, 4), Platform: device.text(2)}
	}
	return e
}

// shardings reads the table of unique shardings.
func (r *jaxReader) shardings() {
	for _, s := range list(r.table, 21, r.readNamed) {
		r.named = append(r.named, r.keep(s))
	}
}

// keep adds a sharding to the manifest, unless there is an equal one, and returns its id.
func (r *jaxReader) keep(s Sharding) string {
	text := fmt.Sprintf("sharding %q", []any{s.Mesh, s.Spec, s.Unreduced, s.Reduced, s.Memory, s.Tile})
	if id, ok := r.ids[text]; ok {
		return id
	}
	s.ID = "s" + strconv.Itoa(len(r.m.Shardings))
	r.m.Shardings = append(r.m.Shardings, s)
	r.ids[text] = s.ID
	return s.ID
}

// readNamed reads a named sharding. Its mesh is one of the table if the file has a table, else it is
// in the sharding itself.
func (r *jaxReader) readNamed(t table) Sharding {
	var s Sharding
	spec, ok := t.table(1)
	if !ok {
		t.failf("a sharding has no spec")
	}
	s.Spec = list(spec, 0, func(t table) form.Dim { return t.texts(0) })
	s.Reduced, s.Unreduced = spec.texts(1), spec.texts(2)
	if len(s.Unreduced) > 0 {
		s.Kind = mesh.Sum // C-EXP-16: the form does not keep it
	}
	s.Memory = t.text(2)
	if r.tables {
		n := t.number(3, 4)
		if n >= len(r.m.Meshes) {
			t.failf("a sharding names mesh %d of %d", n, len(r.m.Meshes))
			return s
		}
		s.Mesh = r.m.Meshes[n].ID
		return s
	}
	inline, ok := t.table(0)
	if !ok {
		t.failf("a sharding has no mesh")
	}
	s.Mesh = r.inlineMesh(inline)
	return s
}

// inlineMesh reads a mesh that is in a sharding, and gives equal ones the same id.
func (r *jaxReader) inlineMesh(t table) string {
	e := readMesh(t)
	text := fmt.Sprintf("mesh %q %d %q", e.Names, e.Sizes, e.Types)
	if e.Device != nil {
		text += fmt.Sprintf(" %q", []any{e.Device.Platform, e.Device.Kind, e.Device.Cores})
	}
	id, ok := r.ids[text]
	if !ok {
		id = r.addMesh(e)
		r.ids[text] = id
	}
	return id
}
