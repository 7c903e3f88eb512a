package jaxexport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/export"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
)

// programs is how many are made from one seed.
const programs = 16

// fixedSeed is run always, next to a new one.
const fixedSeed = 20261115

func TestAgainstJAX(t *testing.T) {
	lab.Clause(t, "C-EXP-14", "C-EXP-15a", "TC-EXP-07", "TC-EXP-11")
	fresh := time.Now().UnixNano() % 1e9
	if text := os.Getenv("SERRY_EXPORT_SEED"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatalf("SERRY_EXPORT_SEED=%q: %v", text, err)
		}
		fresh = n
	}
	for _, env := range []string{"jax-new", "jax-0.9.2"} {
		python := interpreter(t, env)
		for _, seed := range []int64{fixedSeed, fresh} {
			t.Run(fmt.Sprintf("%s/seed=%d", env, seed), func(t *testing.T) { differ(t, python, seed) })
		}
	}
}

// differ reads what jax wrote, and lets jax read what Go wrote.
func differ(t *testing.T, python string, seed int64) {
	t.Logf("run again with SERRY_EXPORT_SEED=%d", seed)
	dir := t.TempDir()
	run(t, python, "make", strconv.FormatInt(seed, 10), strconv.Itoa(programs), dir)
	met := map[string]int{}
	said := make([]facts, programs)
	for i := range said {
		readJSON(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), &said[i])
		m := readFile(t, filepath.Join(dir, fmt.Sprintf("%d.jax", i)))
		if diff := cmp.Diff(said[i], factsOf(m), ignored); diff != "" {
			t.Errorf("program %d: jax (-) and Go (+) differ:\n%s", i, diff)
		}
		for _, p := range said[i].Placements {
			met[p.compare(t, i, m)]++
		}
		data, err := m.EncodeJAX()
		if err != nil {
			t.Fatalf("program %d: EncodeJAX() = %v", i, err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.again", i)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, python, "read", dir)
	for i := range said {
		var again facts
		readJSON(t, filepath.Join(dir, fmt.Sprintf("%d.again.json", i)), &again)
		if diff := cmp.Diff(said[i], again, ignored, cmpopts.IgnoreFields(facts{}, "Derivative")); diff != "" {
			t.Errorf("program %d: jax reads the file of jax (-) and that of Go (+) in different ways:\n%s", i, diff)
		}
	}
	if met["bound"] < 5 || met["refused"] < 5 {
		t.Errorf("bindings %v; want at least 5 that jax accepts and 5 that it refuses", met)
	}
}

var ignored = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(facts{}, "Placements")}

// facts are what jaxexport.py says of a program.
type facts struct {
	Function   string      `json:"function"`
	Devices    int         `json:"devices"`
	Platforms  []string    `json:"platforms"`
	Convention int         `json:"convention"`
	Kept       []int       `json:"kept"`
	Disabled   []string    `json:"disabled"`
	Program    string      `json:"program"`
	Inputs     []value     `json:"inputs"`
	Outputs    []value     `json:"outputs"`
	Derivative *facts      `json:"derivative"`
	Placements []placement `json:"placements"`
}

type value struct {
	Name     string    `json:"name"`
	DType    string    `json:"dtype"`
	Shape    []string  `json:"shape"`
	Memory   string    `json:"memory"`
	Sharding *sharding `json:"sharding"`
}

type sharding struct {
	Names     []string   `json:"names"`
	Sizes     []int      `json:"sizes"`
	Types     []string   `json:"types"`
	Spec      [][]string `json:"spec"`
	Unreduced []string   `json:"unreduced"`
	Reduced   []string   `json:"reduced"`
	Memory    string     `json:"memory"`
}

// factsOf says of a manifest what jaxexport.py says of a program.
func factsOf(m *export.Manifest) facts {
	f := facts{
		Function: m.Function, Devices: m.NumDevices, Platforms: m.Program.Platforms, Convention: m.Program.Convention,
		Kept: m.Program.KeptArgs, Disabled: slices.Sorted(slices.Values(m.Program.Disabled)), Program: m.Program.SHA256,
		Inputs: valuesOf(m, m.Inputs), Outputs: valuesOf(m, m.Outputs),
	}
	if m.Derivative != nil {
		d := factsOf(m.Derivative)
		f.Derivative = &d
	}
	return f
}

func valuesOf(m *export.Manifest, values []export.Value) []value {
	var out []value
	for _, v := range values {
		one := value{Name: v.Name, DType: v.DType, Memory: v.Memory}
		for _, s := range v.Shape {
			one.Shape = append(one.Shape, string(s))
		}
		if at := slices.IndexFunc(m.Shardings, func(s export.Sharding) bool { return s.ID == v.Sharding }); at >= 0 {
			one.Sharding = shardingOf(m, m.Shardings[at])
		}
		out = append(out, one)
	}
	return out
}

func shardingOf(m *export.Manifest, s export.Sharding) *sharding {
	over := m.Meshes[slices.IndexFunc(m.Meshes, func(e export.Mesh) bool { return e.ID == s.Mesh })]
	out := &sharding{Names: over.Names, Sizes: over.Sizes, Types: over.Types, Unreduced: s.Unreduced, Reduced: s.Reduced, Memory: s.Memory}
	for _, d := range s.Spec {
		out.Spec = append(out.Spec, d)
	}
	return out
}

// A placement is a mesh of the machine, and what jax says when a program is bound to it.
type placement struct {
	Names  []string              `json:"names"`
	Sizes  []int                 `json:"sizes"`
	Types  []string              `json:"types"`
	IDs    []int                 `json:"ids"`
	Error  string                `json:"error"`
	Slices []map[string][][2]int `json:"slices"` // of each argument, by device; nil where jax gives none
}

// compare binds the program to the mesh and says what came of it.
func (p placement) compare(t *testing.T, program int, m *export.Manifest) string {
	t.Helper()
	b, err := export.Bind(m, []export.Supplied{{Mesh: p.mesh(t)}}, export.Options{})
	if p.Error != "" {
		if !errors.Is(err, export.ErrMismatch) {
			t.Errorf("program %d: Bind(%v %v) = %v; jax says %s", program, p.Names, p.Sizes, err, p.Error)
		}
		return "refused"
	}
	if _, unset := errors.AsType[*export.UnsetError](err); unset {
		return "symbolic"
	}
	if err != nil {
		t.Errorf("program %d: Bind(%v %v) = %v; jax binds it", program, p.Names, p.Sizes, err)
		return "wrong"
	}
	for i, want := range p.Slices {
		if want == nil {
			continue
		}
		shards, err := b.Inputs[i].Shards()
		if err != nil {
			t.Errorf("program %d: Shards() of input %d = %v", program, i, err)
			continue
		}
		got := map[string][][2]int{}
		for _, s := range shards {
			index := [][2]int{}
			for _, r := range s.Index {
				index = append(index, [2]int{r.Start, r.Stop})
			}
			got[strconv.Itoa(int(s.Device))] = index
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("program %d: slices of input %d differ: jax (-), Go (+)\n%s", program, i, diff)
		}
	}
	return "bound"
}

func (p placement) mesh(t *testing.T) *mesh.Mesh {
	t.Helper()
	devices := make([]mesh.Device, len(p.IDs))
	for i, id := range p.IDs {
		devices[i] = mesh.Device{ID: serry.DeviceID(id), Slice: mesh.NoSlice}
	}
	types := map[string]mesh.AxisType{"Auto": mesh.Auto, "Explicit": mesh.Explicit, "Manual": mesh.Manual}
	axes := make([]mesh.Axis, len(p.Names))
	for i := range axes {
		axes[i] = mesh.Axis{Name: p.Names[i], Size: p.Sizes[i], Type: types[p.Types[i]]}
	}
	out, err := mesh.New(devices, axes...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFixtures reads the files that jax ships for its own tests, of several versions each.
func TestFixtures(t *testing.T) {
	lab.Clause(t, "TC-EXP-08", "TC-EXP-09", "C-EXP-15")
	dir := t.TempDir()
	run(t, interpreter(t, "jax-new"), "fixtures", dir)
	for name, check := range map[string]func(*testing.T, *export.Manifest){
		"multiple_meshes": severalMeshes, "specified_sharding": specified,
		"unspecified_sharding": unspecified, "memory_space": memorySpace,
	} {
		files, err := filepath.Glob(filepath.Join(dir, name+"-*.jax"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files of %s: %v", name, err)
		}
		for _, file := range files {
			t.Run(filepath.Base(file), func(t *testing.T) { check(t, readFile(t, file)) })
		}
	}
}

func severalMeshes(t *testing.T, m *export.Manifest) {
	f := factsOf(m)
	if m.NumDevices != 2 || len(m.Meshes) != 2 || len(m.Shardings) != 3 || m.Program.Convention != 10 {
		t.Errorf("%d devices, %d meshes, %d shardings, convention %d; want 2, 2, 3, 10",
			m.NumDevices, len(m.Meshes), len(m.Shardings), m.Program.Convention)
	}
	if want := []string{"cpu", "tpu", "cuda", "rocm"}; !slices.Equal(m.Program.Platforms, want) {
		t.Errorf("platforms %q; want %q", m.Program.Platforms, want)
	}
	var ids []string
	for _, v := range slices.Concat(m.Inputs, m.Outputs) {
		ids = append(ids, v.Sharding)
	}
	if want := strings.Split("s0 s0 s0 s0 s1 s1 s1 s1 s2 s2 s2 s2", " "); !slices.Equal(ids, want) {
		t.Errorf("shardings %q; want %q", ids, want)
	}
	for i, want := range [][]string{0: {"4", "8"}, 4: {"8", "2"}} {
		if want != nil && !slices.Equal(f.Inputs[i].Shape, want) {
			t.Errorf("input %d has the shape %q; want %q", i, f.Inputs[i].Shape, want)
		}
	}
}

func specified(t *testing.T, m *export.Manifest) {
	if len(m.Shardings) != 2 || m.Inputs[0].Sharding != "s0" || m.Outputs[0].Sharding != "s1" ||
		!slices.Equal(m.Inputs[0].Shape, []export.Size{"16", "4"}) {
		t.Errorf("inputs %+v, outputs %+v of %d shardings; want (16,4), s0 and s1", m.Inputs, m.Outputs, len(m.Shardings))
	}
}

func unspecified(t *testing.T, m *export.Manifest) {
	if m.Inputs[0].Sharding == "" || m.Outputs[0].Sharding != "" {
		t.Errorf("inputs %+v, outputs %+v; want only the result without a sharding", m.Inputs, m.Outputs)
	}
}

func memorySpace(t *testing.T, m *export.Manifest) {
	if s := m.Shardings[0]; s.Memory != "pinned_host" || m.Inputs[0].Memory != "host" {
		t.Errorf("memory kind %q, space %q; want pinned_host, host", s.Memory, m.Inputs[0].Memory)
	}
}

func readFile(t *testing.T, name string) *export.Manifest {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	m, err := export.ReadJAX(filepath.Base(name), data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func readJSON(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// run runs jaxexport.py to its end.
func run(t *testing.T, python string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python, append([]string{"jaxexport.py"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("jaxexport.py %q: %v\n%s", args, err, out.Bytes())
	}
	t.Logf("jax %s", strings.TrimSpace(out.String()))
}

// interpreter is the Python of an environment of scripts/venvs.sh.
func interpreter(t *testing.T, env string) string {
	t.Helper()
	python, err := filepath.Abs(filepath.Join("..", "..", ".cache", "venv", env, "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	err = exec.CommandContext(t.Context(), python, "-c", "import jax, flatbuffers").Run()
	if err == nil {
		return python
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("no Python with jax and flatbuffers at %s (%v): run scripts/venvs.sh %s", python, err, env)
	}
	t.Skipf("no Python with jax and flatbuffers at %s (%v): run scripts/venvs.sh %s", python, err, env)
	return ""
}

// TestExample runs the example of docs/EXPORT.md as it stands there: jax exports, serry binds, and jax
// runs the program on another mesh.
func TestExample(t *testing.T) {
	lab.Clause(t, "TC-EXP-13", "TC-EXP-14")
	python := interpreter(t, "jax-new")
	serryBin := filepath.Join(t.TempDir(), "serry")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", serryBin, "../../cmd/serry")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), "../../examples/export/run.sh")
	cmd.Env = append(os.Environ(), "PYTHON="+python, "SERRY="+serryBin)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("the result is right")) {
		t.Errorf("run.sh: %v\n%s", err, out)
	}
}
