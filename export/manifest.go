package export

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// Format is the version of the JSON form that is written, and the newest that is read.
const Format = 1

// Bounds on a manifest. They are far above any real program and keep a hostile file from taking the
// memory of its reader.
const (
	maxManifest   = 64 << 20 // bytes of JSON
	maxRank       = 64
	maxVersions   = 64 // derivatives of derivatives
	maxName       = 1 << 16
	maxMemoryKind = 256
	maxDevices    = 1 << 20  // the largest mesh
	maxList       = 1 << 17  // inputs, outputs, shardings or meshes; JAX itself stops at 1 << 16 arguments
	maxNames      = 64 << 20 // bytes of the names of all inputs, or all outputs
	maxShapes     = 32 << 20 // bytes of the shapes of all inputs, or all outputs
)

// A Manifest says how one exported function is called and sharded (P-EXP-2).
type Manifest struct {
	Format     int               `json:"format"`
	Producer   Producer          `json:"producer"`
	Function   string            `json:"function"`
	Program    Program           `json:"program"`
	NumDevices int               `json:"num_devices"`
	Meshes     []Mesh            `json:"meshes"`
	Shardings  []Sharding        `json:"shardings"`
	Inputs     []Value           `json:"inputs"`
	Outputs    []Value           `json:"outputs"`
	Symbols    map[string]Symbol `json:"symbols,omitempty"`
	Parameters map[string]Source `json:"parameters,omitempty"` // by name of the input
	Aliases    []Alias           `json:"aliases,omitempty"`
	Variants   []Variant         `json:"variants,omitempty"`
	Devices    []ChipPlace       `json:"device_assignment_by_coords,omitempty"` // of Orbax, in logical order
	JAX        *JAX              `json:"jax,omitempty"`                         // what only its own form has
	Derivative *Manifest         `json:"derivative,omitempty"`                  // exported along with the program
}

// A Producer is the program that wrote an export.
type Producer struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// A Program is the compiled function, as opaque bytes.
type Program struct {
	MIME       string   `json:"mime"`
	File       string   `json:"file,omitempty"` // relative to the manifest
	SHA256     string   `json:"sha256"`
	Convention int      `json:"calling_convention"`
	Platforms  []string `json:"platforms"`
	KeptArgs   []int    `json:"kept_args"`                 // inputs that the compiler did not drop
	Disabled   []string `json:"disabled_checks,omitempty"` // safety checks that the exporter switched off
	Effects    Effects  `json:"effects,omitzero"`
	Bytes      []byte   `json:"-"` // or nil: only the digest is known
}

// Effects are the side effects of a program, by the names of their Python types.
type Effects struct {
	Ordered   []string `json:"ordered,omitempty"`
	Unordered []string `json:"unordered,omitempty"`
}

// MIMEStableHLO is the type of programs that JAX exports.
const MIMEStableHLO = "application/x-stablehlo"

// A Mesh is an abstract mesh that shardings of the program use.
type Mesh struct {
	ID string `json:"id"`
	form.Axes
	Device *form.Hardware `json:"device,omitempty"` // what the program was exported for
}

// A Sharding is named, with a mesh and a spec, or has only a tile form, which fits any mesh of the
// right size.
type Sharding struct {
	ID        string         `json:"id"`
	Mesh      string         `json:"mesh,omitempty"`
	Spec      []form.Dim     `json:"spec,omitempty"`
	Unreduced []string       `json:"unreduced,omitempty"`
	Reduced   []string       `json:"reduced,omitempty"`
	Kind      mesh.Reduction `json:"unreduced_kind,omitempty"`
	Memory    string         `json:"memory_kind,omitempty"`
	Tile      string         `json:"tile,omitempty"` // as package mesh writes tiles
}

// A Value is an argument or a result.
type Value struct {
	Name     string `json:"name"` // its path in the tree of arguments or results
	DType    string `json:"dtype"`
	Shape    []Size `json:"shape"`
	Sharding string `json:"sharding,omitempty"`     // id, or "": left to the compiler
	Memory   string `json:"memory_space,omitempty"` // device, host or any; "": device
	Role     string `json:"role,omitempty"`         // parameter or argument
}

// The roles of an input.
const (
	RoleArgument  = "argument"
	RoleParameter = "parameter"
)

// Token is the dtype of values that only order side effects.
const Token = "token"

// A Symbol bounds a symbolic size. Zero values mean no bound.
type Symbol struct {
	Min        int `json:"min,omitempty"`
	Max        int `json:"max,omitempty"`
	MultipleOf int `json:"multiple_of,omitempty"`
}

// A Source says where a parameter is stored.
type Source struct {
	Checkpoint string `json:"checkpoint,omitempty"`
	Key        string `json:"key,omitempty"`
}

// An Alias gives the axes of a mesh other names: the axis that a job calls Axes' key is the exported
// axis of its value.
type Alias struct {
	Mesh string            `json:"mesh"`
	Axes map[string]string `json:"axes"`
}

// A Variant is the same function exported for another number of devices.
type Variant struct {
	NumDevices int     `json:"num_devices"`
	Program    Program `json:"program"`
}

// A ChipPlace says where the device with a logical number is on the torus.
type ChipPlace struct {
	ID     int   `json:"id"`
	Coords []int `json:"coords"`
	Core   int   `json:"core_on_chip"`
}

// JAX is what the binary form of jax.export has and this one does not need.
type JAX struct {
	Version         int    `json:"serialization_version"`
	In              *Tree  `json:"in_tree"`
	Out             *Tree  `json:"out_tree"`
	GlobalConstants bool   `json:"uses_global_constants,omitempty"`
	Release         string `json:"jax_version,omitempty"`
}

// newManifest is a manifest with lists that are empty in JSON, not null.
func newManifest() *Manifest {
	return &Manifest{
		Format: Format, Program: Program{Platforms: []string{}, KeptArgs: []int{}},
		Meshes: []Mesh{}, Shardings: []Sharding{}, Inputs: []Value{}, Outputs: []Value{},
	}
}

// Decode reads the JSON form. name says where data comes from, usually a file, and starts every error.
func Decode(name string, data []byte) (*Manifest, error) {
	m, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func decode(data []byte) (*Manifest, error) {
	if len(data) > maxManifest {
		return nil, formErrorf("%d bytes, at most %d are read", len(data), maxManifest)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, formErrorf("%v", err)
	}
	if version.Format < 1 || version.Format > Format {
		return nil, fmt.Errorf("%w: format %d, this build reads 1 to %d", ErrVersion, version.Format, Format)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	m := &Manifest{}
	if err := d.Decode(m); err != nil {
		return nil, formErrorf("%v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, formErrorf("more than one JSON value")
	}
	return m, m.Check()
}

// Encode writes the JSON form that [Decode] reads back.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(m); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Check says whether the parts of the manifest fit together, without any mesh.
func (m *Manifest) Check() error {
	for depth := 0; m != nil; m, depth = m.Derivative, depth+1 {
		if depth > maxVersions {
			return formErrorf("more than %d derivatives", maxVersions)
		}
		if err := m.check(); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manifest) check() error {
	switch {
	case m.Format != Format:
		return fmt.Errorf("%w: format %d, want %d", ErrVersion, m.Format, Format)
	case m.NumDevices < 1 || m.NumDevices > maxDevices:
		return formErrorf("num_devices is %d, want 1 to %d", m.NumDevices, maxDevices)
	case max(len(m.Meshes), len(m.Shardings), len(m.Inputs), len(m.Outputs)) > maxList:
		return formErrorf("%d meshes, %d shardings, %d inputs and %d outputs, at most %d of each are read",
			len(m.Meshes), len(m.Shardings), len(m.Inputs), len(m.Outputs), maxList)
	}
	meshes, err := m.abstractMeshes()
	if err != nil {
		return err
	}
	shardings, err := m.checkShardings(meshes)
	if err != nil {
		return err
	}
	if err := cmp.Or(checkValues("input", m.Inputs, shardings), checkValues("output", m.Outputs, shardings)); err != nil {
		return err
	}
	for _, i := range m.Program.KeptArgs {
		if i < 0 || i >= len(m.Inputs) {
			return formErrorf("kept_args names input %d of %d", i, len(m.Inputs))
		}
	}
	return m.checkExtras()
}

// abstractMeshes makes the meshes of the manifest, by id.
func (m *Manifest) abstractMeshes() (map[string]*mesh.Mesh, error) {
	out := map[string]*mesh.Mesh{}
	for _, entry := range m.Meshes {
		if entry.ID == "" || out[entry.ID] != nil {
			return nil, formErrorf("mesh id %q is empty or used twice", entry.ID)
		}
		abstract, err := entry.abstract()
		if err != nil {
			return nil, formErrorf("mesh %q: %v", entry.ID, err)
		}
		out[entry.ID] = abstract
	}
	return out, nil
}

// checkShardings returns the ids of the shardings.
func (m *Manifest) checkShardings(meshes map[string]*mesh.Mesh) (map[string]bool, error) {
	seen := map[string]bool{}
	for _, s := range m.Shardings {
		if s.ID == "" || seen[s.ID] {
			return nil, formErrorf("sharding id %q is empty or used twice", s.ID)
		}
		seen[s.ID] = true
		if err := s.check(meshes); err != nil {
			return nil, formErrorf("sharding %q: %v", s.ID, err)
		}
	}
	return seen, nil
}

func (s *Sharding) check(meshes map[string]*mesh.Mesh) error {
	if len(s.Memory) > maxMemoryKind {
		return fmt.Errorf("a memory_kind of %d bytes, at most %d", len(s.Memory), maxMemoryKind)
	}
	if s.Tile != "" {
		if s.Mesh != "" || s.Spec != nil {
			return errors.New("it has both a tile and a mesh or spec, want one of them")
		}
		_, err := form.ParseTile(s.Tile)
		return err
	}
	over := meshes[s.Mesh]
	if over == nil {
		return fmt.Errorf("there is no mesh %q", s.Mesh)
	}
	_, err := over.Shard(s.spec())
	return err
}

func checkValues(kind string, values []Value, shardings map[string]bool) error {
	seen := map[string]bool{}
	shapes := 0 // bytes so far: many values can share one long shape in a small file
	for i := range values {
		v := &values[i]
		for _, size := range v.Shape[:min(len(v.Shape), maxRank)] {
			shapes += len(size)
		}
		if shapes > maxShapes {
			return formErrorf("the shapes of the %ss have more than %d bytes", kind, maxShapes)
		}
		if seen[v.Name] {
			return formErrorf("%s %d: name %q is used twice", kind, i, v.Name)
		}
		seen[v.Name] = true
		if v.Sharding != "" && !shardings[v.Sharding] {
			return formErrorf("%s %q: there is no sharding %q", kind, v.Name, v.Sharding)
		}
		if err := v.check(); err != nil {
			return formErrorf("%s %d: %v", kind, i, err)
		}
	}
	return nil
}

func (v *Value) check() error {
	switch {
	case len(v.Name) > maxName:
		return fmt.Errorf("a name of %d bytes, at most %d", len(v.Name), maxName)
	case len(v.Shape) > maxRank:
		return fmt.Errorf("%q has %d dimensions, at most %d", v.Name, len(v.Shape), maxRank)
	case v.DType != Token && !knownType(v.DType):
		return fmt.Errorf("%q has the unknown dtype %q", v.Name, v.DType)
	case !slices.Contains([]string{"", memoryDevice, memoryHost, memoryAny}, v.Memory):
		return fmt.Errorf("%q has the unknown memory_space %q", v.Name, v.Memory)
	case !slices.Contains([]string{"", RoleArgument, RoleParameter}, v.Role):
		return fmt.Errorf("%q has the unknown role %q", v.Name, v.Role)
	}
	for d, size := range v.Shape {
		if _, _, err := size.parse(nil); err != nil {
			return fmt.Errorf("%q, dimension %d: %w", v.Name, d, err)
		}
	}
	return nil
}

// checkExtras checks what only the JSON form has.
func (m *Manifest) checkExtras() error {
	if m.JAX != nil {
		if err := m.checkTrees(); err != nil {
			return err
		}
	}
	for name, s := range m.Symbols {
		if s.Min < 0 || s.Max < 0 || s.MultipleOf < 0 || s.Max > 0 && s.Max < s.Min {
			return formErrorf("symbol %q: no size can be from %d to %d and a multiple of %d", name, s.Min, s.Max, s.MultipleOf)
		}
	}
	inputs := indexed(m.Inputs, func(v *Value) string { return v.Name })
	for name := range m.Parameters {
		if inputs[name] == nil {
			return formErrorf("parameters: there is no input %q", name)
		}
	}
	meshes := indexed(m.Meshes, func(e *Mesh) string { return e.ID })
	for _, a := range m.Aliases {
		entry := meshes[a.Mesh]
		if entry == nil {
			return formErrorf("aliases: there is no mesh %q", a.Mesh)
		}
		for name, axis := range a.Axes {
			if !slices.Contains(entry.Names, axis) {
				return formErrorf("aliases: %q stands for %q, but mesh %q has the axes %q", name, axis, a.Mesh, entry.Names)
			}
		}
	}
	for _, v := range m.Variants {
		if v.NumDevices < 1 {
			return formErrorf("variants: num_devices is %d, want 1 or more", v.NumDevices)
		}
	}
	return nil
}

func (m *Manifest) checkTrees() error {
	for _, t := range []*Tree{m.JAX.In, m.JAX.Out} {
		if err := t.checkDeep(0); err != nil {
			return err
		}
	}
	return cmp.Or(fitTree("arguments", m.JAX.In, len(m.Inputs)), fitTree("results", m.JAX.Out, len(m.Outputs)))
}

// UsedMeshes says which meshes, by id, an argument or result depends on.
func (m *Manifest) UsedMeshes() map[string]bool {
	over := map[string]string{}
	for _, s := range m.Shardings {
		over[s.ID] = s.Mesh
	}
	used := map[string]bool{}
	for _, v := range slices.Concat(m.Inputs, m.Outputs) {
		used[over[v.Sharding]] = true
	}
	return used
}

func (m *Manifest) mesh(id string) *Mesh {
	return find(m.Meshes, func(e *Mesh) bool { return e.ID == id })
}

// shardings gives the shardings by id.
func (m *Manifest) shardings() map[string]*Sharding {
	return indexed(m.Shardings, func(s *Sharding) string { return s.ID })
}

func (m *Manifest) input(name string) *Value {
	return find(m.Inputs, func(v *Value) bool { return v.Name == name })
}

// find returns the first element that fits, or nil.
func find[T any](list []T, fits func(*T) bool) *T {
	for i := range list {
		if fits(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// indexed gives the elements of a list by key. Whatever looks up an element for each value uses it, so
// that a file with many values and many shardings takes linear time.
func indexed[T any](list []T, key func(*T) string) map[string]*T {
	out := make(map[string]*T, len(list))
	for i := range list {
		out[key(&list[i])] = &list[i]
	}
	return out
}

// axes gives the axes of the mesh. An axis without a type is Auto.
func (e *Mesh) axes() ([]mesh.Axis, error) {
	axes, err := e.List()
	for i := range axes {
		axes[i].Type = cmp.Or(axes[i].Type, mesh.Auto)
	}
	return axes, err
}

// axisTypes are the types of an axis, in the order of their numbers in the form of JAX, from 1.
var axisTypes = []mesh.AxisType{mesh.Auto, mesh.Explicit, mesh.Manual}

func (e *Mesh) abstract() (*mesh.Mesh, error) {
	axes, err := e.axes()
	if err != nil {
		return nil, err
	}
	return mesh.Abstract((*mesh.Hardware)(e.Device), axes...)
}

// spec gives the partition spec of a named sharding.
func (s *Sharding) spec() mesh.Spec {
	out := mesh.Spec{Unreduced: s.Unreduced, Reduced: s.Reduced, Kind: s.Kind}
	for _, d := range s.Spec {
		out.Dims = append(out.Dims, mesh.Dim(d))
	}
	return out
}

// digest writes the digest of a program as manifests hold it.
func digest(program []byte) string {
	sum := sha256.Sum256(program)
	return hex.EncodeToString(sum[:])
}
