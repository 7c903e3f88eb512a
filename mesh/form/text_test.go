package form

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
)

// TestTextRoundTrip is a property: what is printed reads back as the same.
func TestTextRoundTrip(t *testing.T) {
	lab.Clause(t, "C-MESH-7", "C-SPEC-8")
	rapid.Check(t, func(t *rapid.T) {
		m := drawNamedMesh(t)
		back, err := ParseMesh(m.String())
		if err != nil || !back.Equal(m) {
			t.Fatalf("ParseMesh(%s) = %v, %v", m, back, err)
		}
		sp := drawNamedSpec(t, m)
		if got, err := ParseSpec(sp.String()); err != nil || !got.Equal(sp) {
			t.Fatalf("ParseSpec(%s) = %v, %v", sp, got, err)
		}
		s, err := m.Shard(sp)
		if err != nil {
			t.Fatalf("Shard(%v) = %v", sp, err)
		}
		s = must(s.WithMemory(rapid.SampledFrom([]string{"", "pinned_host"}).Draw(t, "memory")))
		if got, err := ParseSharding(s.String()); err != nil || !got.Equal(s) {
			t.Fatalf("ParseSharding(%s) = %v, %v", s, got, err)
		}
		if got, err := DecodeSharding("f", EncodeSharding(s)); err != nil || !got.Equal(s) {
			t.Fatalf("DecodeSharding(%s) = %v, %v", EncodeSharding(s), got, err)
		}
	})
}

// drawNamedMesh makes meshes with odd names, of devices or abstract.
func drawNamedMesh(t *rapid.T) *mesh.Mesh {
	m := drawMesh(t, "mesh")
	name := rapid.StringMatching(`[a-zé'" \\(){},=:*]{0,6}`)
	list := m.Axes()
	for i := range list {
		list[i].Name = list[i].Name + name.Draw(t, "name")
		list[i].Type = rapid.SampledFrom([]mesh.AxisType{mesh.Auto, mesh.Explicit, mesh.Manual}).Draw(t, "type")
	}
	switch rapid.SampledFrom([]string{"devices", "abstract", "hardware", "empty"}).Draw(t, "kind") {
	case "abstract":
		return must(mesh.Abstract(nil, list...))
	case "hardware":
		return must(mesh.Abstract(&mesh.Hardware{Platform: "tpu", Kind: "TPU v5p", Cores: rapid.IntRange(0, 2).Draw(t, "cores")}, list...))
	case "empty":
		return must(mesh.New(nil))
	}
	return must(mesh.Of(m.Devices(), m.Owners(), nil, list...))
}

func drawNamedSpec(t *rapid.T, m *mesh.Mesh) mesh.Spec {
	rank := rapid.IntRange(0, 3).Draw(t, "rank")
	s := drawSpec(t, m, rank, "spec")
	for _, a := range m.Axes() {
		if slices.ContainsFunc(s.Dims, func(d mesh.Dim) bool { return slices.Contains(d, a.Name) }) || a.Type != mesh.Explicit {
			continue
		}
		switch rapid.IntRange(0, 3).Draw(t, "set") {
		case 0:
			s.Unreduced = append(s.Unreduced, a.Name)
		case 1:
			s.Reduced = append(s.Reduced, a.Name)
		}
	}
	if len(s.Unreduced) > 0 {
		s.Kind = rapid.SampledFrom([]mesh.Reduction{"", mesh.Sum, mesh.Max, mesh.Min}).Draw(t, "kind")
	}
	if len(m.AxesOf(mesh.Auto)) > 0 && rapid.Bool().Draw(t, "free") {
		s.Dims = append(s.Dims, mesh.Dim{mesh.Unconstrained})
	}
	return s
}

func TestTextFromTheFuture(t *testing.T) {
	lab.Clause(t, "C-MESH-7", "C-SPEC-8")
	for _, c := range []struct {
		text  string
		words []string
	}{
		{"", []string{"Mesh(…)", "end of the text"}},
		{"Mesh('x': 4", []string{"byte 11", "end of the text"}},
		{"Mesh('x': 4, torus=True)", []string{"byte 13", "torus"}},
		{"Mesh('x': 4, axis_types=(Auto))x", []string{"the end"}},
		{"Mesh('x': 4, axis_types=(Lazy,))", []string{"Auto, Explicit or Manual", "Lazy"}},
		{"Mesh('x: 4)", []string{"closed name"}},
		{"Mesh('x': 4, 'x': 2)", []string{"'x'", "rename"}},
		{"Mesh('x': 99999999999)", []string{"a number"}},
		{"Mesh('x': 4, devices=(0:3))", []string{"size 4", "3 devices"}},
		{"Mesh('x': 4, devices=(0:4:0))", []string{"range"}},
		{"Mesh('x': 4, devices=(0:900000000))", []string{"not too long"}},
		{"Mesh('x': 4, tasks=(0*900000000))", []string{"fewer tasks"}},
		{"Mesh('x': 4, tasks=(0*3))", []string{"3 tasks"}},
		{"AbstractMesh('x': 4, devices=(0:4))", []string{"devices"}},
		{"Mesh('x': 0)", []string{"'x'", "size 0"}},
	} {
		_, err := ParseMesh(c.text)
		wantError(t, "ParseMesh("+c.text+")", err, mesh.ErrInvalid, c.words...)
	}
	for _, c := range []struct {
		text  string
		words []string
	}{
		{"P('x', priority=3)", []string{"priority", "this version"}},
		{"P('x'", []string{"\",\" or \")\""}},
		{"P(unreduced='x')", []string{"{"}},
		{"Q('x')", []string{"P(…)"}},
		{strings.Repeat("P(", 40), []string{"spec entry"}},
	} {
		_, err := ParseSpec(c.text)
		wantError(t, "ParseSpec("+c.text+")", err, mesh.ErrFormat, c.words...)
	}
	_, err := ParseSharding("NamedSharding(mesh=Mesh('x': 2), spec=P('y'))")
	wantError(t, "ParseSharding(unknown axis)", err, mesh.ErrUnknownAxis, "'y'")
	_, err = ParseMesh(strings.Repeat(" ", maxText+1))
	wantError(t, "ParseMesh(huge)", err, mesh.ErrFormat, "at most")
}

func TestTextOfJAX(t *testing.T) {
	lab.Clause(t, "C-MESH-7", "C-SPEC-8")
	// What jax 0.12 prints.
	s, err := ParseSharding("NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto)), spec=P('x', 'y'), memory_kind=device)")
	if err != nil || s.Memory() != "device" || !s.Mesh().Equal(grid4x2(1)) || !s.Spec().Equal(spec("x", "y")) {
		t.Errorf("ParseSharding = %v, %v", s, err)
	}
	m, err := ParseMesh("AbstractMesh('x': 4, 'y': 4, axis_types=(Auto, Auto), device_kind=TPU v4, num_cores=None, platform=tpu)")
	if err != nil || m.Hardware().Kind != "TPU v4" || m.Hardware().Platform != "tpu" {
		t.Errorf("ParseMesh = %v, %v", m, err)
	}
	if m, err := ParseMesh("AbstractMesh((), axis_types=())"); err != nil || m.Size() != 0 {
		t.Errorf("ParseMesh = %v, %v; want the empty abstract mesh", m, err)
	}
}

func TestJSONFromTheFuture(t *testing.T) {
	lab.Clause(t, "P-EXP-2", "C-MESH-2")
	good := EncodeSharding(must(grid4x2(4).Shard(spec("x", "y"))))
	for cut := range len(good) {
		_, err := DecodeSharding("run/sharding.json", good[:cut])
		wantError(t, "DecodeSharding(truncated)", err, mesh.ErrFormat, "run/sharding.json", "truncated")
	}
	for _, c := range []struct {
		data  string
		words []string
	}{
		{`{"format":2,"axis_names":[],"axis_sizes":[]}`, []string{"format 2", "up to 1", "newer"}},
		{`{"axis_names":[],"axis_sizes":[]}`, []string{"format 0"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2],"links":[]}`, []string{"links"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2,2]}`, []string{"1 axis_names", "2 axis_sizes"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2],"axis_types":["Lazy"]}`, []string{"'x'", "Lazy"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2],"axis_types":["Auto","Auto"]}`, []string{"2 axis_types"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2],"device_ids":[0]}`, []string{"2 devices", "got 1"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2],"device_ids":[0,0]}`, []string{"device 0", "twice"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":[2],"device_ids":[0,1],"tasks":[0]}`, []string{"1 tasks"}},
		{`{"format":1,"axis_names":[null],"axis_sizes":[2]}`, []string{"name"}},
		{`{"format":1,"axis_names":["x"],"axis_sizes":["2"]}`, []string{"axis_sizes"}},
		{`[]`, []string{"array"}},
		{`{"format":1,"axis_names":[],"axis_sizes":[]}{}`, []string{"follows"}},
	} {
		_, err := DecodeMesh("mesh.json", []byte(c.data))
		wantError(t, "DecodeMesh("+c.data+")", err, mesh.ErrInvalid, append(c.words, "mesh.json")...)
	}
	_, err := DecodeSharding("s.json", []byte(`{"format":1,"mesh":{"format":1,"axis_names":["x"],"axis_sizes":[2]},"spec":[["x",["y"]]]}`))
	wantError(t, "DecodeSharding(nested)", err, mesh.ErrFormat, "s.json", "spec entry")
	_, err = DecodeSharding("s.json", []byte(`{"format":1,"mesh":{"format":1,"axis_names":["x"],"axis_sizes":[2]},"spec":["q"]}`))
	wantError(t, "DecodeSharding(unknown axis)", err, mesh.ErrUnknownAxis, "s.json", "'q'")
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"Mesh('x': 4, 'y': 2, axis_types=(Auto, Explicit), devices=(0:4, 9:12, 20), tasks=(0*4, 1*4))",
		"AbstractMesh('x': 4, axis_types=(Manual,), device_kind='TPU v4', num_cores=2, platform='tpu')",
		"P('x', ('a', 'b'), None, UNCONSTRAINED, unreduced={'c'}, reduced={'d'}, unreduced_kind=max)",
		"NamedSharding(mesh=Mesh('x': 2), spec=P('x',), memory_kind=device)",
		"{devices=[2,6]<=[4,3]T(1,0) last_tile_dims={manual, replicated}}", "{{replicated}, {maximal device=3}}",
		`{"format":1,"mesh":{"format":1,"axis_names":["x"],"axis_sizes":[2]},"spec":["x",null]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := ParseMesh(text); err == nil {
			again(t, m.String(), ParseMesh)
		}
		if s, err := ParseSpec(text); err == nil {
			again(t, s.String(), ParseSpec)
		}
		if s, err := ParseSharding(text); err == nil {
			again(t, s.String(), ParseSharding)
		}
		if tile, err := ParseTile(text); err == nil {
			again(t, tile.String(), ParseTile)
		}
		if s, err := DecodeSharding("f", []byte(text)); err == nil {
			again(t, string(EncodeSharding(s)), func(x string) (fixed, error) {
				s, err := DecodeSharding("f", []byte(x))
				if err != nil {
					return "", err
				}
				return fixed(EncodeSharding(s)), nil
			})
		}
	})
}

type fixed string

func (f fixed) String() string { return string(f) }

// again checks that printing and reading is stable.
func again[T interface{ String() string }](t *testing.T, text string, parse func(string) (T, error)) {
	t.Helper()
	got, err := parse(text)
	if err != nil || got.String() != text {
		t.Fatalf("parse(%s) = %v, %v; want the same text", text, got, err)
	}
}
