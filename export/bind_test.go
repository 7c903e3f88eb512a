package export

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

func TestBindToOtherDevices(t *testing.T) {
	clause.Cite(t, "TC-EXP-11", "C-EXP-9", "P-EXP-5")
	m := jaxFile(t, "vector-0.12.jax")
	b := bind(t, m, over(t, 2, axis("a", 4)), Options{})
	v := b.Inputs[0]
	shards, err := v.Shards()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range shards {
		want := mesh.Range{Start: 8 * i, Stop: 8*i + 8}
		if s.Device != serry.DeviceID(2+i) || s.Index[0] != want {
			t.Errorf("shard %d is %v on device %d; want %v on %d", i, s.Index, s.Device, want, 2+i)
		}
	}
	local, err := v.LocalShards(1)
	if err != nil || len(local) != 2 || local[0].Device != 4 {
		t.Errorf("LocalShards(1) = %v, %v; want those of devices 4 and 5", local, err)
	}
}

func TestBindRefusesOtherMeshes(t *testing.T) {
	clause.Cite(t, "TC-EXP-07", "TC-EXP-13", "C-EXP-9")
	m := jaxFile(t, "layer-0.12.jax")
	explicit := []mesh.Axis{{Name: "data", Size: 4, Type: mesh.Explicit}, {Name: "model", Size: 2, Type: mesh.Auto}}
	abstract, err := mesh.Abstract(nil, axis("data", 4), axis("model", 2))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		on   *mesh.Mesh
		axis string
		want string
	}{
		"names":      {over(t, 0, axis("batch", 4), axis("model", 2)), "data", `exported over (data=4,model=2), bound to (batch=4,model=2)`},
		"sizes":      {over(t, 0, axis("data", 2), axis("model", 4)), "data", `axis "data" has size 2, want 4`},
		"types":      {over(t, 0, explicit...), "data", `axis "data" is Explicit, want Auto`},
		"order":      {over(t, 0, axis("model", 2), axis("data", 4)), "data", "another order"},
		"more axes":  {over(t, 0, axis("data", 4), axis("model", 1), axis("z", 2)), "", "3 axes, want 2"},
		"no devices": {abstract, "", "the mesh has no devices"},
	} {
		_, err := Bind(m, []Supplied{{Mesh: c.on}}, Options{})
		mismatch, ok := errors.AsType[*MismatchError](err)
		if !ok || !errors.Is(err, ErrMismatch) || mismatch.Axis != c.axis || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Bind() = %v; want a MismatchError of axis %q with %q", name, err, c.axis, c.want)
		}
	}
	if _, err := Bind(m, []Supplied{{Mesh: over(t, 0, explicit...)}}, Options{IgnoreAxisTypes: true}); err != nil {
		t.Errorf("Bind(IgnoreAxisTypes) = %v; want nil", err)
	}
}

func TestBindByAlias(t *testing.T) {
	clause.Cite(t, "TC-EXP-13")
	on := over(t, 0, axis("batch", 4), axis("tensor", 2))
	m := jaxFile(t, "layer-0.12.jax")
	aliases := []Alias{{Axes: map[string]string{"batch": "data", "tensor": "model"}}}
	b := bind(t, m, on, Options{Aliases: aliases})
	if got := b.Inputs[2].Sharding.String(); !strings.Contains(got, "'data'") {
		t.Errorf("sharding of the bound argument is %s; want the names of the export", got)
	}
	withAlias := sample() // which has the alias in its manifest
	bind(t, withAlias, over(t, 0, axis("batch", 4), axis("tensor", 2)), Options{})
}

// Two axes with one alias, or an alias for an axis that is not there: the error shows the names that the
// alias gave.
func TestBindSaysWhyAnAliasDoesNotHelp(t *testing.T) {
	clause.Cite(t, "TC-EXP-13")
	m := sample()
	m.Aliases = nil
	for name, axes := range map[string]map[string]string{
		"(data=4,data=2)":  {"a": "data", "b": "data"},
		"(data=4,other=2)": {"a": "data", "b": "other"},
	} {
		_, err := Bind(m, []Supplied{{Mesh: over(t, 0, axis("a", 4), axis("b", 2))}}, Options{Aliases: []Alias{{Axes: axes}}, AllowReorder: true})
		if at, ok := errors.AsType[*MismatchError](err); !ok || at.Axis != "model" || !strings.Contains(err.Error(), name) {
			t.Errorf("Bind(alias %v) = %v; want a mismatch of axis model, bound to %s", axes, err, name)
		}
	}
}

func TestBindTransposes(t *testing.T) {
	clause.Cite(t, "TC-EXP-14")
	on := over(t, 0, axis("model", 2), axis("data", 4)) // devices 0..3 are row 0 of model
	b := bind(t, jaxFile(t, "layer-0.12.jax"), on, Options{AllowReorder: true})
	if want := []serry.DeviceID{0, 4, 1, 5, 2, 6, 3, 7}; !slices.Equal(b.Devices, want) {
		t.Errorf("device assignment %v; want %v", b.Devices, want)
	}
	renamed := over(t, 0, axis("tensor", 2), axis("batch", 4))
	b = bind(t, sample(), renamed, Options{AllowReorder: true})
	if want := []serry.DeviceID{0, 4, 1, 5, 2, 6, 3, 7}; !slices.Equal(b.Devices, want) {
		t.Errorf("device assignment with an alias %v; want %v", b.Devices, want)
	}
}

func TestBindCountsDevices(t *testing.T) {
	clause.Cite(t, "TC-EXP-15", "C-EXP-10", "C-EXP-12")
	_, err := Bind(jaxFile(t, "layer-0.12.jax"), []Supplied{{Mesh: over(t, 0, axis("data", 3), axis("model", 2))}}, Options{})
	if !errors.Is(err, ErrMismatch) {
		t.Errorf("Bind(6 devices) = %v; want ErrMismatch", err)
	}
	tiles := orbax(t)["f"]
	_, err = Bind(tiles, []Supplied{{Mesh: over(t, 0, axis("x", 3), axis("y", 2))}}, Options{})
	if !errors.Is(err, ErrBinding) || !strings.Contains(err.Error(), "exported for 8 devices and is bound to 6") {
		t.Errorf("Bind(6 devices) = %v; want ErrBinding that names 8 and 6", err)
	}
	b := bind(t, jaxFile(t, "symbolic-0.12.jax"), dataModel(t), Options{Symbols: map[string]int{"b": 3}})
	if len(b.Devices) != 8 || !b.Inputs[0].Sharding.Replicated() || !slices.Equal(b.Inputs[0].Shard, []int{6, 16}) {
		t.Errorf("a program for one device on %d: input %+v; want it replicated on 8", len(b.Devices), b.Inputs[0])
	}
}

func TestBindNamesWhatDoesNotDivide(t *testing.T) {
	clause.Cite(t, "TC-EXP-16")
	m := sample()
	m.Inputs[0].Shape = []Size{"6", "4"}
	m.Inputs[0].Name, m.Parameters = "params/\x1b[2Jw", nil
	_, err := Bind(m, []Supplied{{Mesh: dataModel(t)}}, Options{})
	at, ok := errors.AsType[*ValueError](err)
	if !ok || at.Value != "params/\x1b[2Jw" || at.Dim != 0 || !errors.Is(err, mesh.ErrIndivisible) || !errors.Is(err, ErrBinding) {
		t.Errorf("Bind(6 rows over data=4) = %v; want a ValueError for params/w, dimension 0", err)
	}
	if strings.Contains(err.Error(), "\x1b") {
		t.Errorf("Bind() = %q; want the name without its escape", err)
	}
}

func TestBindSymbols(t *testing.T) {
	clause.Cite(t, "P-EXP-4")
	on := []Supplied{{Mesh: dataModel(t)}}
	b, err := Bind(sample(), on, Options{})
	if err != nil { // b is a multiple of 8, which is how often it is cut
		t.Fatalf("Bind(b unset) = %v; want nil", err)
	}
	if _, err := b.Inputs[1].Shards(); !errors.Is(err, ErrBinding) || b.Inputs[1].Shard[0] != unknownSize {
		t.Errorf("Shards() with b unset = %v, shard %v; want an error, unknown rows", err, b.Inputs[1].Shard)
	}
	b, err = Bind(sample(), on, Options{Shapes: map[string][]int{"x": {32, 4096}}})
	if err != nil || b.Symbols["b"] != 32 || !slices.Equal(b.Outputs[0].Extent, []int{32, 1024}) {
		t.Errorf("Bind(x is 32 rows) = %v, symbols %v; want b 32 and as many results", err, b.Symbols)
	}
	loose := sample()
	loose.Symbols = nil
	for name, c := range map[string]struct {
		m    *Manifest
		o    Options
		want string
	}{
		"no bound":     {loose, Options{}, `symbol "b" has no value`},
		"not multiple": {sample(), Options{Symbols: map[string]int{"b": 12}}, `symbol "b" is 12, want a multiple of 8`},
		"too small":    {sample(), Options{Symbols: map[string]int{"b": 0}}, `symbol "b" is 0, want 1 or more`},
		"other shape":  {sample(), Options{Shapes: map[string][]int{"x": {32, 1}}}, "[b,4096]"},
		"other rank":   {sample(), Options{Shapes: map[string][]int{"x": {32}}}, "has 1 dimensions, want 2"},
		"no symbol":    {sample(), Options{Symbols: map[string]int{"z": 3}}, `no symbol "z": it has ["b"]`},
		"no input":     {sample(), Options{Shapes: map[string][]int{"z": {32}}}, `no input "z"`},
		"two values":   {sample(), Options{Symbols: map[string]int{"b": 8}, Shapes: map[string][]int{"x": {16, 4096}}}, `symbol "b" is 8`},
	} {
		if _, err := Bind(c.m, on, c.o); !errors.Is(err, ErrBinding) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Bind() = %v; want ErrBinding with %q", name, err, c.want)
		}
	}
}

func TestBindSeveralMeshes(t *testing.T) {
	clause.Cite(t, "C-EXP-11", "P-EXP-4")
	m := sample()
	m.Aliases = nil
	m.Meshes = append(m.Meshes, Mesh{ID: "m1", Axes: form.Axes{Names: []string{"all"}, Sizes: []int{8}}})
	m.Shardings = append(m.Shardings, Sharding{ID: "s2", Mesh: "m1", Spec: []form.Dim{{"all"}}})
	m.Outputs[0].Sharding = "s2"
	reversed := make([]mesh.Device, 8)
	for i := range reversed {
		reversed[i] = mesh.Device{ID: serry.DeviceID(7 - i), Slice: mesh.NoSlice}
	}
	flat, err := mesh.New(reversed, axis("all", 8))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Bind(m, []Supplied{{Mesh: flat}, {Mesh: dataModel(t)}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int{7, 6, 5, 4, 3, 2, 1, 0}; !slices.Equal(b.Meshes[1].Order, want) || b.Devices[0] != 0 {
		t.Errorf("order of the second mesh %v, devices %v; want %v of those of the first", b.Meshes[1].Order, b.Devices, want)
	}
	for name, c := range map[string]struct {
		supplied []Supplied
		want     string
	}{
		"one missing":   {[]Supplied{{Mesh: dataModel(t)}}, `mesh "m1"`},
		"other devices": {[]Supplied{{Mesh: dataModel(t)}, {Mesh: over(t, 1, axis("all", 8))}}, "do not have the same devices"},
		"two match":     {[]Supplied{{Mesh: dataModel(t)}, {Mesh: flat}, {Mesh: flat}}, `match mesh "m1"`},
		"unknown id":    {[]Supplied{{ID: "m7", Mesh: flat}}, `no mesh "m7"`},
		"none":          {nil, `mesh "m0" (data=4,model=2) is not supplied`},
	} {
		if _, err := Bind(m, c.supplied, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Bind() = %v; want %q", name, err, c.want)
		}
	}
}

func TestBindChecksDevices(t *testing.T) {
	clause.Cite(t, "P-EXP-4")
	made := func(hw mesh.Hardware) []Supplied {
		devices := mesh.Hosts(8, 1)
		for i := range devices {
			devices[i].Hardware = &hw
		}
		m, err := mesh.New(devices, axis("data", 4), axis("model", 2))
		if err != nil {
			t.Fatal(err)
		}
		return []Supplied{{Mesh: m}}
	}
	pinned := sample()
	pinned.Shardings[0].Memory = "pinned_host"
	for name, c := range map[string]struct {
		m    *Manifest
		hw   mesh.Hardware
		o    Options
		want string
	}{
		"gpu is cuda": {sample(), mesh.Hardware{Platform: "gpu"}, Options{}, ""},
		"platform":    {sample(), mesh.Hardware{Platform: "tpu"}, Options{}, `bound to devices of platform "tpu"`},
		"kind":        {sample(), mesh.Hardware{Platform: "gpu", Kind: "H100"}, Options{StrictDevice: true}, `exported for "H200" with 132 cores, bound to "H100"`},
		"same kind":   {sample(), mesh.Hardware{Platform: "gpu", Kind: "H200", Cores: 132}, Options{StrictDevice: true}, ""},
		"memory":      {pinned, mesh.Hardware{Platform: "gpu", Memories: []string{"device"}}, Options{}, "pinned_host"},
	} {
		_, err := Bind(c.m, made(c.hw), c.o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Bind() = %v; want %q", name, err, c.want)
		}
	}
}

func TestReads(t *testing.T) {
	clause.Cite(t, "P-EXP-5")
	m := sample()
	b := bind(t, m, dataModel(t), Options{})
	reads, err := b.Reads(1) // devices 2 and 3: row 1 of data
	if err != nil {
		t.Fatal(err)
	}
	const quarter = 4096 * 1024 * 2 / 4
	for _, r := range reads {
		if r.Parameter != "params/w" || r.Source.Key != "w" || r.Offset != quarter || r.ToOffset != 0 || r.Pattern.Bytes() != quarter {
			t.Errorf("read %+v of %d bytes; want the second quarter of params/w", r, r.Pattern.Bytes())
		}
	}
	if len(reads) != 2 {
		t.Errorf("Reads(1) = %d reads; want one for each device", len(reads))
	}
}

func TestRebind(t *testing.T) {
	clause.Cite(t, "P-EXP-8")
	m := sample()
	m.Derivative = sample()
	b := bind(t, m, dataModel(t), Options{Symbols: map[string]int{"b": 8}})
	live := []serry.DeviceID{0, 1, 2, 4, 5, 6, 7} // device 3 is lost, and with it row 1 of data
	again, err := b.Rebind(live, "data", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []serry.DeviceID{0, 1, 4, 5}; !slices.Equal(again.Devices, want) || again.Manifest.Program.SHA256 != "aa" {
		t.Errorf("devices %v with program %q; want %v, the variant for four", again.Devices, again.Manifest.Program.SHA256, want)
	}
	if got := again.Inputs[0].Shard; !slices.Equal(got, []int{2048, 1024}) {
		t.Errorf("shard of params/w %v; want half of it", got)
	}
	if again.Manifest.Derivative != nil {
		t.Errorf("the variant for 4 devices has a derivative for %d", again.Manifest.Derivative.NumDevices)
	}
	bare := sample()
	bare.Variants = nil
	_, err = bind(t, bare, dataModel(t), Options{}).Rebind(live, "data", Options{})
	missing, ok := errors.AsType[*VariantError](err)
	if !ok || missing.Alive != 3 || missing.Needs != 2 || !errors.Is(err, ErrNoVariant) {
		t.Errorf("Rebind() without a variant = %v; want a VariantError with 3 rows of 2", err)
	}
	if _, err := b.Rebind(live, "rows", Options{}); !errors.Is(err, ErrBinding) {
		t.Errorf("Rebind(axis rows) = %v; want ErrBinding", err)
	}
	if again, err := b.Rebind(b.Devices, "data", Options{}); err != nil || again.Digest() != b.Digest() || again.Manifest.Derivative == nil {
		t.Errorf("Rebind(all live) = %v; want the same binding", err)
	}
}

func TestDiff(t *testing.T) {
	a, b := sample(), sample()
	if got := Diff(a, b); got != nil {
		t.Errorf("Diff(m, m) = %v; want none", got)
	}
	b.Shardings[0].Spec = []form.Dim{nil, {"data"}}
	b.NumDevices, b.Outputs = 4, nil
	var what []string
	for _, d := range Diff(a, b) {
		what = append(what, d.What)
	}
	if want := []string{"devices", "input params/w sharding", "output y type"}; !slices.Equal(what, want) {
		t.Errorf("Diff() = %q; want %q", what, want)
	}
}
