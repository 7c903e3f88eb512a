package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/export"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

func newExport() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "See how an exported program is sharded, and bind it to devices",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return hinted{errors.New("export: the subcommand is missing"), "serry export inspect, bind or diff"}
		},
	}
	cmd.AddCommand(newExportInspect(), newExportBind(), newExportDiff())
	return cmd
}

// exportForms is the part of the help that the commands have in common.
const exportForms = `A file is one that jax.export wrote (exported.serialize()), the manifest of an
older Orbax model, a JSON manifest of serry, or a folder with manifest.json.

Exit status: 0 done; 1 the file cannot be read, or does not fit; 2 what is
written on the command line does not parse.`

// maxExport bounds what is read of a file; FlatBuffers cannot be larger.
const maxExport = 1<<31 - 1

// printManifest is the format that prints the JSON manifest of serry.
const printManifest format = "manifest"

// readExport reads an exported program in any of its forms. Of a file with several functions it takes
// the one of that name.
func readExport(name, function string) (*export.Manifest, error) {
	all, err := readExports(name)
	if err != nil {
		return nil, runError{err}
	}
	var names []string
	for _, m := range all {
		if m.Function == function || len(all) == 1 && function == "" {
			return m, nil
		}
		names = append(names, oneLine(m.Function))
	}
	if function == "" {
		return nil, hinted{fmt.Errorf("%s has the functions %s", name, strings.Join(names, ", ")), "say which one with --function"}
	}
	return nil, runError{fmt.Errorf("%s has no function %q: it has %s", name, function, strings.Join(names, ", "))}
}

func readExports(name string) ([]*export.Manifest, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		name = filepath.Join(name, "manifest.json")
	}
	text, err := readFile(name, maxExport)
	if err != nil {
		return nil, err
	}
	data := []byte(text)
	if strings.HasPrefix(strings.TrimSpace(text[:min(len(text), 64)]), "{") {
		m, err := export.Decode(name, data)
		return []*export.Manifest{m}, err
	}
	m, err := export.ReadJAX(name, data)
	if err == nil {
		m.Program.File = filepath.Base(name)
		return []*export.Manifest{m}, nil
	}
	if errors.Is(err, export.ErrVersion) {
		return nil, err
	}
	functions, orbaxErr := export.ReadOrbax(name, data)
	if orbaxErr != nil {
		return nil, err
	}
	var all []*export.Manifest
	for _, m := range functions {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *export.Manifest) int { return strings.Compare(a.Function, b.Function) })
	return all, nil
}

type exportInspect struct {
	printer
	function string
	show     string
}

func newExportInspect() *cobra.Command {
	x := &exportInspect{}
	cmd := &cobra.Command{
		Use:   "inspect file",
		Short: "List the arguments, results and shardings of an exported program",
		Long: `List what an exported program takes and gives: names, shapes, types and
shardings, the abstract meshes they lie on, platforms and checks. With --show it
draws the sharding of one argument or result. -o manifest prints the manifest
that bind reads, to be completed with names, aliases and variants.

` + exportForms,
		Example: `  serry export inspect step.jax
  serry export inspect step.jax --show 0/w
  serry export inspect step.jax -o manifest > manifest.json`,
		Args: oneExport,
		RunE: func(cmd *cobra.Command, args []string) error { return x.run(cmd, args[0]) },
	}
	x.define(cmd)
	cmd.Flags().StringVar(&x.function, "function", "", "`name` of the function, where the file has several")
	cmd.Flags().StringVar(&x.show, "show", "", "draw the sharding of the argument or result of this `name`")
	return cmd
}

func oneExport(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments: want one file", len(args))
	}
	return nil
}

func (x *exportInspect) run(cmd *cobra.Command, name string) error {
	manifest := x.format == printManifest
	if manifest {
		x.format = asJSON
	}
	if err := x.open(cmd); err != nil {
		return err
	}
	m, err := readExport(name, x.function)
	if err != nil {
		return err
	}
	switch {
	case x.show != "":
		return x.draw(m)
	case manifest:
		text, err := m.Encode()
		if err != nil {
			return runError{err}
		}
		_, err = x.out.Write(text)
		return failed(err)
	}
	if done, err := x.object(inspected(m)); done {
		return failed(err)
	}
	return failed(x.text(m))
}

// draw draws a sharding on devices 0, 1, 2 and so on.
func (x *exportInspect) draw(m *export.Manifest) error {
	bound, err := bindAnywhere(alone(m, x.show))
	if err != nil {
		return runError{err}
	}
	return drawSharding(&x.printer, bound, x.show, valueNames(m))
}

// alone is the manifest with only the arguments and results of a name, so that a drawing does not depend
// on whether the others can be bound, nor on how many meshes they use.
func alone(m *export.Manifest, name string) *export.Manifest {
	other := func(v export.Value) bool { return v.Name != name }
	return &export.Manifest{
		Format: m.Format, NumDevices: m.NumDevices, Meshes: m.Meshes, Shardings: m.Shardings,
		Inputs:  slices.DeleteFunc(slices.Clone(m.Inputs), other),
		Outputs: slices.DeleteFunc(slices.Clone(m.Outputs), other),
	}
}

// drawSharding draws the sharding of an argument or result as mesh show does. An argument and a result
// may have the same name; then it draws both. names are all names of the program.
func drawSharding(p *printer, b *export.Bound, name string, names []string) error {
	found := false
	for _, side := range []struct {
		kind   string
		values []export.BoundValue
	}{{"argument", b.Inputs}, {"result", b.Outputs}} {
		for _, v := range side.values {
			if v.Name != name {
				continue
			}
			found = true
			if err := drawBound(p, side.kind+" "+oneLine(v.Name), v); err != nil {
				return err
			}
		}
	}
	if !found {
		return fmt.Errorf("--show %q: there is no such argument or result: %s", name, strings.Join(names, ", "))
	}
	return nil
}

func drawBound(p *printer, title string, v export.BoundValue) error {
	if v.Sharding == nil {
		_, err := fmt.Fprintf(p.out, "%s is left to the compiler\n", title)
		return failed(err)
	}
	if _, err := v.Shards(); err != nil {
		return runError{hinted{err, "serry export bind --symbol name=size gives it a value"}}
	}
	text, err := form.Draw(v.Sharding, v.Extent, form.Look{Width: p.width, Color: p.colour})
	if err == nil {
		_, err = fmt.Fprintf(p.out, "%s: %s", title, text)
	}
	return failed(err)
}

// bindAnywhere binds a program to devices that are counted from 0.
func bindAnywhere(m *export.Manifest) (*export.Bound, error) {
	var supplied []export.Supplied
	used := m.UsedMeshes()
	for _, e := range m.Meshes {
		if !used[e.ID] {
			continue
		}
		axes, err := e.List()
		if err != nil {
			return nil, err
		}
		made, err := countedMesh(axes)
		if err != nil {
			return nil, err
		}
		if made.Size() == m.NumDevices {
			supplied = append(supplied, export.Supplied{ID: e.ID, Mesh: made})
		}
	}
	if len(supplied) == 0 {
		made, err := countedMesh([]mesh.Axis{{Name: "devices", Size: m.NumDevices}})
		if err != nil {
			return nil, err
		}
		supplied = []export.Supplied{{Mesh: made}}
	}
	return export.Bind(m, supplied, export.Options{IgnoreAxisTypes: true})
}

func valueNames(m *export.Manifest) []string {
	var out []string
	for _, v := range slices.Concat(m.Inputs, m.Outputs) {
		out = append(out, oneLine(v.Name))
	}
	return out
}

// exportVersion is the version of the JSON answers of these commands.
const exportVersion = 1

type inspectedProgram struct {
	Version    int              `json:"version"`
	Function   string           `json:"function"`
	Producer   export.Producer  `json:"producer"`
	Devices    int              `json:"num_devices"`
	Platforms  []string         `json:"platforms"`
	Convention int              `json:"calling_convention"`
	Disabled   []string         `json:"disabled_checks"`
	SHA256     string           `json:"sha256"`
	Bytes      *int             `json:"program_bytes"` // null: the file does not hold the program
	Meshes     []export.Mesh    `json:"meshes"`
	Inputs     []inspectedValue `json:"inputs"`
	Outputs    []inspectedValue `json:"outputs"`
	Derivative *string          `json:"derivative"` // name of the function, or null
}

type inspectedValue struct {
	Name     string        `json:"name"`
	DType    string        `json:"dtype"`
	Shape    []export.Size `json:"shape"`
	Sharding string        `json:"sharding"` // "": left to the compiler
	Memory   string        `json:"memory_space"`
}

func inspected(m *export.Manifest) inspectedProgram {
	out := inspectedProgram{
		Version: exportVersion, Function: m.Function, Producer: m.Producer, Devices: m.NumDevices,
		Platforms: orEmpty(m.Program.Platforms), Convention: m.Program.Convention, Disabled: orEmpty(m.Program.Disabled),
		SHA256: m.Program.SHA256, Meshes: orEmpty(m.Meshes),
		Inputs: inspectedValues(m, m.Inputs), Outputs: inspectedValues(m, m.Outputs),
	}
	if m.Program.Bytes != nil {
		n := len(m.Program.Bytes)
		out.Bytes = &n
	}
	if m.Derivative != nil {
		out.Derivative = &m.Derivative.Function
	}
	return out
}

func inspectedValues(m *export.Manifest, values []export.Value) []inspectedValue {
	out := []inspectedValue{}
	shardings := m.ShardingTexts(values)
	for i, v := range values {
		out = append(out, inspectedValue{v.Name, v.DType, orEmpty(v.Shape), shardings[i], v.Memory})
	}
	return out
}

func (x *exportInspect) text(m *export.Manifest) error {
	devices := "devices"
	if m.NumDevices == 1 {
		devices = "device"
	}
	fmt.Fprintf(x.out, "%s, for %d %s, %s\n", oneLine(m.Function), m.NumDevices, devices, oneLine(strings.Join(m.Program.Platforms, ", ")))
	fmt.Fprintf(x.out, "by %s, calling convention %d, program %s, sha256 %.12s\n",
		oneLine(strings.TrimSpace(m.Producer.Name+" "+m.Producer.Version)), m.Program.Convention, programText(m.Program), oneLine(orDash(m.Program.SHA256)))
	if len(m.Program.Disabled) > 0 {
		fmt.Fprintf(x.out, "checks switched off: %s\n", oneLine(strings.Join(m.Program.Disabled, ", ")))
	}
	if m.Derivative != nil {
		fmt.Fprintf(x.out, "with its derivative %s\n", oneLine(m.Derivative.Function))
	}
	for _, e := range m.Meshes {
		fmt.Fprintf(x.out, "mesh %s: %s\n", oneLine(e.ID), oneLine(e.String()))
	}
	t := &table{columns: []column{{title: "VALUE"}, {title: "NAME", most: 30}, {title: "TYPE", most: 30}, {title: "SHARDING"}}}
	addValues(t, "argument", inspectedValues(m, m.Inputs))
	addValues(t, "result", inspectedValues(m, m.Outputs))
	return x.table(t)
}

// programText says how long the program is, or where it is: a manifest does not hold its bytes.
func programText(p export.Program) string {
	switch {
	case p.Bytes != nil:
		return fmt.Sprintf("of %d bytes", len(p.Bytes))
	case p.File != "":
		return "in " + oneLine(p.File)
	}
	return "elsewhere"
}

func addValues(t *table, kind string, values []inspectedValue) {
	for _, v := range values {
		t.add(texts(kind, v.Name, v.DType+export.ShapeText(v.Shape), orDash(v.Sharding))...)
	}
}

type exportBind struct {
	printer
	function string
	meshes   []string
	aliases  []string
	symbols  []string
	tasks    int
	task     int
	show     string
	export.Options
}

func newExportBind() *cobra.Command {
	x := &exportBind{}
	cmd := &cobra.Command{
		Use:   "bind file --mesh mesh",
		Short: "Bind the shardings of an exported program to devices",
		Long: `Bind the abstract meshes of an exported program to devices, check that
everything fits, and say what each device holds. A mesh is written as axes,
data=4,model=2 over devices 0, 1, 2..., or as JAX prints it, Mesh(...); with
several meshes, write m0:data=4,model=2 for each. Types of axes count only where
the text gives them.

` + exportForms,
		Example: `  serry export bind step.jax --mesh data=4,model=2 --tasks 4
  serry export bind step.jax --mesh batch=4,tensor=2 --alias batch=data,tensor=model
  serry export bind step.jax --mesh data=4,model=2 --symbol b=64 --show 0/w`,
		Args: oneExport,
		RunE: func(cmd *cobra.Command, args []string) error { return x.run(cmd, args[0]) },
	}
	x.define(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&x.meshes, "mesh", nil, "a `mesh` of devices; give it again for each mesh of the program")
	f.StringSliceVar(&x.aliases, "alias", nil, "`name=axis`: an axis of the mesh stands for an axis of the export")
	f.StringSliceVar(&x.symbols, "symbol", nil, "`name=size` of a symbolic dimension")
	f.IntVar(&x.tasks, "tasks", 1, "spread the devices evenly over this `number` of tasks, in mesh order")
	f.BoolVar(&x.AllowReorder, "allow-reorder", false, "transpose a mesh whose axes stand in another order")
	f.BoolVar(&x.IgnoreAxisTypes, "ignore-axis-types", false, "take the axis types of the export")
	f.BoolVar(&x.StrictDevice, "strict-device", false, "refuse another kind of device than the export names")
	f.StringVar(&x.function, "function", "", "`name` of the function, where the file has several")
	f.StringVar(&x.show, "show", "", "draw the argument or result of this `name`")
	_ = cmd.MarkFlagRequired("mesh") // it is there
	return cmd
}

func (x *exportBind) run(cmd *cobra.Command, name string) error {
	if err := x.open(cmd); err != nil {
		return err
	}
	supplied, err := x.supplied()
	if err != nil {
		return err
	}
	if err := x.settle(); err != nil {
		return err
	}
	m, err := readExport(name, x.function)
	if err != nil {
		return err
	}
	b, err := export.Bind(m, supplied, x.Options)
	if err != nil {
		return bindHint(fmt.Errorf("%s: %w", name, err))
	}
	if x.show != "" {
		return drawSharding(&x.printer, b, x.show, valueNames(m))
	}
	if done, err := x.object(boundAnswer(b)); done {
		return failed(err)
	}
	return failed(x.text(b))
}

// bindHint says which flag may help.
func bindHint(err error) error {
	if mismatch, ok := errors.AsType[*export.MismatchError](err); ok && optionHints[mismatch.Option] != "" {
		return runError{hinted{err, optionHints[mismatch.Option]}}
	}
	if _, unset := errors.AsType[*export.UnsetError](err); unset {
		return runError{hinted{err, "--symbol name=size gives it a value"}}
	}
	return runError{err}
}

// optionHints says which flag sets a field of export.Options.
var optionHints = map[string]string{
	"AllowReorder":    "--allow-reorder transposes the mesh",
	"Aliases":         "--alias name=axis gives an axis its name in the export",
	"IgnoreAxisTypes": "--ignore-axis-types takes those of the export",
}

// supplied reads the meshes of the command line.
func (x *exportBind) supplied() ([]export.Supplied, error) {
	var out []export.Supplied
	for _, text := range x.meshes {
		id, rest, named := strings.Cut(text, ":")
		if !named || strings.ContainsAny(id, "(='") {
			id, rest = "", text
		}
		m, err := parseMesh(strings.TrimSpace(rest))
		if err != nil {
			return nil, fmt.Errorf("--mesh %q: %w", fit(text, 60), err)
		}
		if !strings.Contains(rest, "axis_types") {
			x.IgnoreAxisTypes = true
		}
		if m, err = spread(m, x.tasks); err != nil {
			return nil, err
		}
		out = append(out, export.Supplied{ID: id, Mesh: m})
	}
	return out, nil
}

// settle reads aliases and symbols.
func (x *exportBind) settle() error {
	alias := map[string]string{}
	for _, text := range x.aliases {
		name, axis, ok := strings.Cut(text, "=")
		if !ok || name == "" || axis == "" {
			return fmt.Errorf("--alias %q: want name=axis, such as batch=data", text)
		}
		alias[name] = axis
	}
	if len(alias) > 0 {
		x.Aliases = []export.Alias{{Axes: alias}}
	}
	x.Symbols = map[string]int{}
	for _, text := range x.symbols {
		name, size, ok := strings.Cut(text, "=")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 {
			return fmt.Errorf("--symbol %q: want name=size, such as b=64", text)
		}
		x.Symbols[name] = n
	}
	return nil
}

type boundProgram struct {
	Version  int               `json:"version"`
	Function string            `json:"function"`
	Digest   string            `json:"digest"`
	Devices  []serry.DeviceID  `json:"device_assignment"`
	Tasks    []serry.TaskIndex `json:"tasks"`
	Symbols  map[string]int    `json:"symbols"`
	Inputs   []boundShown      `json:"inputs"`
	Outputs  []boundShown      `json:"outputs"`
}

type boundShown struct {
	Name     string `json:"name"`
	DType    string `json:"dtype"`
	Shape    []int  `json:"shape"`       // -1: a symbol without a value
	Shard    []int  `json:"shard_shape"` // null: left to the compiler
	Sharding string `json:"sharding"`
}

func boundAnswer(b *export.Bound) boundProgram {
	return boundProgram{
		Version: exportVersion, Function: b.Manifest.Function, Digest: b.Digest(), Devices: b.Devices, Tasks: b.Tasks,
		Symbols: b.Symbols, Inputs: boundValues(b.Inputs), Outputs: boundValues(b.Outputs),
	}
}

func boundValues(values []export.BoundValue) []boundShown {
	out := []boundShown{}
	for _, v := range values {
		one := boundShown{Name: v.Name, DType: v.DType, Shape: orEmpty(v.Extent)}
		if v.Sharding != nil {
			one.Shard, one.Sharding = orEmpty(v.Shard), v.Sharding.Spec().String()
		}
		out = append(out, one)
	}
	return out
}

func (x *exportBind) text(b *export.Bound) error {
	fmt.Fprintf(x.out, "%s on %d devices of %d tasks, digest %.12s\n", oneLine(b.Manifest.Function), len(b.Devices), len(b.Tasks), b.Digest())
	t := &table{columns: []column{{title: "VALUE"}, {title: "NAME", most: 30}, {title: "TYPE", most: 24}, {title: "ON EACH DEVICE", most: 20}, {title: "SHARDING"}}}
	add := func(kind string, values []boundShown) {
		for _, v := range values {
			shard, sharding := "-", "-"
			if v.Sharding != "" {
				shard, sharding = sizesText(v.Shard), v.Sharding
			}
			t.add(texts(kind, v.Name, v.DType+sizesText(v.Shape), shard, sharding)...)
		}
	}
	add("argument", boundValues(b.Inputs))
	add("result", boundValues(b.Outputs))
	return x.table(t)
}

// sizesText writes a shape; a size that is not known is a question mark.
func sizesText(shape []int) string {
	parts := make([]string, len(shape))
	for i, n := range shape {
		if parts[i] = strconv.Itoa(n); n < 0 {
			parts[i] = "?"
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func newExportDiff() *cobra.Command {
	p := &printer{}
	cmd := &cobra.Command{
		Use:   "diff a b",
		Short: "Say how two exported programs differ",
		Long: `Say how two exported programs differ: program, meshes, and each argument and
result by name. Exit status 1 means that they do.

` + exportForms,
		Example: `  serry export diff yesterday.jax today.jax`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%d arguments: want two files", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runExportDiff(cmd, p, args[0], args[1]) },
	}
	p.define(cmd)
	return cmd
}

type diffAnswer struct {
	Version     int                 `json:"version"`
	Differences []export.Difference `json:"differences"`
}

func runExportDiff(cmd *cobra.Command, p *printer, a, b string) error {
	if err := p.open(cmd); err != nil {
		return err
	}
	var read [2]*export.Manifest
	for i, name := range []string{a, b} {
		m, err := readExport(name, "")
		if err != nil {
			return err
		}
		read[i] = m
	}
	found := export.Diff(read[0], read[1])
	done, err := p.object(diffAnswer{exportVersion, orEmpty(found)})
	if err == nil && !done {
		t := &table{columns: []column{{title: "WHAT", most: 30}, {title: "A", most: 40}, {title: "B"}}}
		for _, d := range found {
			t.add(texts(d.What, orDash(d.A), orDash(d.B))...)
		}
		if len(found) > 0 {
			err = p.table(t)
		}
	}
	if err == nil && len(found) > 0 {
		err = runError{fmt.Errorf("%s and %s differ in %d facts", a, b, len(found))}
	}
	return failed(err)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
