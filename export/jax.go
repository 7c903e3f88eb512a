package export

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// Versions of the form of JAX (C-EXP-15). Until 2026-07-27 writers put the constant 3 into the file, so
// a version up to 3 says nothing, and old files are known by the fields they have.
const (
	newestJAX = 12
	silentJAX = 3
)

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
	root, err := newFlat(data).root()
	if err != nil {
		return nil, fmt.Errorf("%w: not a file of jax.export: %w", ErrFormat, err)
	}
	m, err := readExported(root, 0)
	if err != nil {
		return nil, wrapForm(err)
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

// A jaxReader reads one exported function.
type jaxReader struct {
	t table
	m *Manifest

	tables bool              // meshes are in a table, not in each sharding
	named  []string          // ids of the table of shardings, in order
	ids    map[string]string // of meshes and shardings, by their text: equal ones are one
	avals  []Value           // of the table of values
}

func readExported(t table, depth int) (*Manifest, error) {
	if depth > maxVersions {
		return nil, formErrorf("more than %d derivatives", maxVersions)
	}
	r := &jaxReader{t: t, m: newManifest(), ids: map[string]string{}}
	for _, read := range []func() error{r.version, r.program, r.meshes, r.shardings, r.values} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	derivative, ok, err := t.table(17)
	if err != nil || !ok {
		return r.m, err
	}
	r.m.Derivative, err = readExported(derivative, depth+1)
	return r.m, err
}

func (r *jaxReader) version() error {
	version, err := r.t.number(0, 2)
	if err != nil {
		return err
	}
	release, err := r.t.text(26)
	if err != nil {
		return err
	}
	if version > newestJAX {
		return fmt.Errorf("%w: serialization version %d%s, this build of serry reads up to %d",
			ErrVersion, version, ofRelease(release), newestJAX)
	}
	for i := jaxFields; i < r.t.fields; i++ {
		if at, err := r.t.field(i); err != nil || at != 0 {
			return fmt.Errorf("%w: field %d of the file%s is not known to this build of serry", ErrVersion, i, ofRelease(release))
		}
	}
	r.m.Producer = Producer{Name: "jax", Version: release}
	r.m.JAX = &JAX{Version: version, Release: release}
	return nil
}

func ofRelease(release string) string {
	if release == "" {
		return ""
	}
	return fmt.Sprintf(" of jax %q", release)
}

func (r *jaxReader) program() error {
	m, t := r.m, r.t
	steps := []func() error{
		func() (err error) { m.Function, err = t.text(1); return err },
		func() (err error) { m.Program.Platforms, err = t.texts(9); return err },
		func() (err error) { m.Program.Effects.Ordered, err = list(t, 10, effect); return err },
		func() (err error) { m.Program.Effects.Unordered, err = list(t, 11, effect); return err },
		func() (err error) { m.Program.Disabled, err = list(t, 12, disabledCheck); return err },
		func() (err error) { m.Program.Convention, err = t.number(14, 2); return err },
		func() (err error) { m.Program.KeptArgs, err = t.numbers(15, 2); return err },
		func() (err error) { m.NumDevices, err = t.number(18, 4); return err },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if m.NumDevices == 0 {
		old, err := t.number(6, 2)
		if err != nil {
			return err
		}
		m.NumDevices = old
	}
	constants, err := t.number(16, 1)
	if err != nil {
		return err
	}
	m.JAX.GlobalConstants = constants != 0
	at, err := t.target(13)
	if err != nil {
		return err
	}
	if at == 0 {
		return formErrorf("there is no program in it")
	}
	m.Program.MIME = MIMEStableHLO
	if m.Program.Bytes, err = t.f.bytes(at); err == nil {
		m.Program.SHA256 = digest(m.Program.Bytes)
	}
	return err
}

func effect(t table) (string, error) { return t.text(0) }

// disabledCheck names a safety check as jax.export prints it.
func disabledCheck(t table) (string, error) {
	kind, err := t.number(0, 1)
	if err != nil {
		return "", err
	}
	target, err := t.text(1)
	if err != nil {
		return "", err
	}
	if kind >= len(disabledKinds) {
		return "", formErrorf("unknown kind %d of a disabled check", kind)
	}
	if kind == disabledCustomCall {
		return disabledKinds[kind] + ":" + target, nil
	}
	return disabledKinds[kind], nil
}

const disabledCustomCall = 1

var disabledKinds = []string{"platform", "custom_call", "shape_assertions"}

// meshes reads the table of abstract meshes; files before version 10 have none, but one in each
// sharding.
func (r *jaxReader) meshes() error {
	all, err := list(r.t, 20, readMesh)
	if err != nil {
		return err
	}
	for _, e := range all {
		e.ID = "m" + strconv.Itoa(len(r.m.Meshes))
		r.m.Meshes = append(r.m.Meshes, e)
	}
	r.tables = len(all) > 0
	return nil
}

func readMesh(t table) (Mesh, error) {
	var e Mesh
	var err error
	if e.Sizes, err = t.numbers(0, 4); err != nil {
		return e, err
	}
	if e.Names, err = t.texts(1); err != nil {
		return e, err
	}
	types, err := t.numbers(2, 1)
	if err != nil {
		return e, err
	}
	if len(types) == 0 {
		e.Types = slices.Repeat([]string{mesh.Auto.String()}, len(e.Names))
	}
	for _, n := range types {
		if n < 1 || n > len(axisTypes) {
			return e, formErrorf("unknown type %d of an axis", n)
		}
		e.Types = append(e.Types, axisTypes[n-1].String())
	}
	device, ok, err := t.table(3)
	if err != nil || !ok {
		return e, err
	}
	e.Device, err = readHardware(device)
	return e, err
}

func readHardware(t table) (*form.Hardware, error) {
	kind, err := t.text(0)
	if err != nil {
		return nil, err
	}
	cores, err := t.number(1, 4)
	if err != nil {
		return nil, err
	}
	platform, err := t.text(2)
	return &form.Hardware{Platform: platform, Kind: kind, Cores: cores}, err
}

// shardings reads the table of unique shardings.
func (r *jaxReader) shardings() error {
	all, err := list(r.t, 21, r.readNamed)
	if err != nil {
		return err
	}
	for _, s := range all {
		r.named = append(r.named, r.keep(s))
	}
	return nil
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
func (r *jaxReader) readNamed(t table) (Sharding, error) {
	var s Sharding
	spec, ok, err := t.table(1)
	if err != nil || !ok {
		return s, orMissing(err, "a sharding has no spec")
	}
	if s.Spec, err = list(spec, 0, func(t table) (form.Dim, error) { axes, err := t.texts(0); return axes, err }); err != nil {
		return s, err
	}
	if s.Reduced, err = spec.texts(1); err != nil {
		return s, err
	}
	if s.Unreduced, err = spec.texts(2); err != nil {
		return s, err
	}
	if len(s.Unreduced) > 0 {
		s.Kind = mesh.Sum // C-EXP-16: the form does not keep it
	}
	if s.Memory, err = t.text(2); err != nil {
		return s, err
	}
	if r.tables {
		n, err := t.number(3, 4)
		if err == nil && n >= len(r.m.Meshes) {
			err = formErrorf("a sharding names mesh %d of %d", n, len(r.m.Meshes))
		}
		if err != nil {
			return s, err
		}
		s.Mesh = r.m.Meshes[n].ID
		return s, nil
	}
	inline, ok, err := t.table(0)
	if err != nil || !ok {
		return s, orMissing(err, "a sharding has no mesh")
	}
	s.Mesh, err = r.inlineMesh(inline)
	return s, err
}

func orMissing(err error, what string) error {
	if err != nil {
		return err
	}
	return formErrorf("%s", what)
}

// inlineMesh reads a mesh that is in a sharding, and gives equal ones the same id.
func (r *jaxReader) inlineMesh(t table) (string, error) {
	e, err := readMesh(t)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("mesh %q %d %q", e.Names, e.Sizes, e.Types)
	if e.Device != nil {
		text += fmt.Sprintf(" %q", []any{e.Device.Platform, e.Device.Kind, e.Device.Cores})
	}
	if id, ok := r.ids[text]; ok {
		return id, nil
	}
	e.ID = "m" + strconv.Itoa(len(r.m.Meshes))
	r.m.Meshes = append(r.m.Meshes, e)
	r.ids[text] = e.ID
	return e.ID, nil
}
