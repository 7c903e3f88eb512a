package export

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// jaxFile reads a file that a real jax wrote. interop/jaxexport has the program that makes such files.
func jaxFile(t testing.TB, name string) *Manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := ReadJAX(name, data)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// over makes a mesh of Auto axes over devices first, first+1 and so on, two to a task.
func over(t testing.TB, first int, axes ...mesh.Axis) *mesh.Mesh {
	t.Helper()
	n := 1
	for _, a := range axes {
		n *= a.Size
	}
	devices := make([]mesh.Device, n)
	for i := range devices {
		devices[i] = mesh.Device{ID: serry.DeviceID(first + i), Task: serry.TaskIndex(i / 2), Slice: mesh.NoSlice}
	}
	m, err := mesh.New(devices, axes...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func axis(name string, size int) mesh.Axis { return mesh.Axis{Name: name, Size: size} }

// dataModel is the mesh that most cases were exported over.
func dataModel(t testing.TB) *mesh.Mesh { return over(t, 0, axis("data", 4), axis("model", 2)) }

// bind binds to one mesh, or fails the test.
func bind(t testing.TB, m *Manifest, on *mesh.Mesh, o Options) *Bound {
	t.Helper()
	b, err := Bind(m, []Supplied{{Mesh: on}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sample is a manifest with everything that the JSON form can say.
func sample() *Manifest {
	m := newManifest()
	m.Function, m.NumDevices = "step", 8
	m.Producer = Producer{Name: "test", Version: "1"}
	m.Program.Bytes = []byte("program")
	m.Program.MIME, m.Program.SHA256, m.Program.Convention = MIMEStableHLO, digest(m.Program.Bytes), 10
	m.Program.Platforms, m.Program.KeptArgs = []string{"cpu", "cuda"}, []int{0, 1}
	m.Meshes = []Mesh{{ID: "m0", Axes: form.Axes{Names: []string{"data", "model"}, Sizes: []int{4, 2}, Types: []string{"Auto", "Auto"}},
		Device: &form.Hardware{Platform: "cuda", Kind: "H200", Cores: 132}}}
	m.Shardings = []Sharding{
		{ID: "s0", Mesh: "m0", Spec: []form.Dim{{"data"}, nil}},
		{ID: "s1", Mesh: "m0", Spec: []form.Dim{{"data", "model"}}},
	}
	m.Inputs = []Value{
		{Name: "params/w", DType: "bf16", Shape: []Size{"4096", "1024"}, Sharding: "s0", Role: RoleParameter},
		{Name: "x", DType: "bf16", Shape: []Size{"b", "4096"}, Sharding: "s1", Role: RoleArgument},
	}
	m.Outputs = []Value{{Name: "y", DType: "bf16", Shape: []Size{"b", "1024"}}}
	m.Symbols = map[string]Symbol{"b": {Min: 1, MultipleOf: 8}}
	m.Parameters = map[string]Source{"params/w": {Checkpoint: "ckpt", Key: "w"}}
	m.Aliases = []Alias{{Mesh: "m0", Axes: map[string]string{"batch": "data", "tensor": "model"}}}
	m.Variants = []Variant{{NumDevices: 4, Program: Program{MIME: MIMEStableHLO, SHA256: "aa", Platforms: []string{"cpu"}}}}
	return m
}
