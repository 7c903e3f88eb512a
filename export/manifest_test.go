package export

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/mesh/form"
)

func TestManifestRoundTrip(t *testing.T) {
	clause.Cite(t, "P-EXP-2")
	for name, m := range map[string]*Manifest{
		"sample": sample(), "layer": jaxFile(t, "layer-0.12.jax"), "symbolic": jaxFile(t, "symbolic-0.9.2.jax"),
	} {
		text, err := m.Encode()
		if err != nil {
			t.Fatalf("%s: Encode() = %v", name, err)
		}
		again, err := Decode(name, text)
		if err != nil {
			t.Fatalf("%s: Decode(Encode()) = %v", name, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Program{}, "Bytes")); diff != "" {
			t.Errorf("%s: Decode(Encode()) differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestManifestRefusesWhatDoesNotFitTogether(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Manifest)
		want   string
	}{
		"no devices":       {func(m *Manifest) { m.NumDevices = 0 }, "num_devices is 0"},
		"devices":          {func(m *Manifest) { m.NumDevices = 1<<32 - 1 }, "num_devices is 4294967295"},
		"shardings":        {func(m *Manifest) { m.Shardings = make([]Sharding, maxList+1) }, "131073 shardings"},
		"memory kind":      {func(m *Manifest) { m.Shardings[0].Memory = strings.Repeat("x", 257) }, "memory_kind of 257 bytes"},
		"mesh twice":       {func(m *Manifest) { m.Meshes = append(m.Meshes, m.Meshes[0]) }, `mesh id "m0" is empty or used twice`},
		"axis lists":       {func(m *Manifest) { m.Meshes[0].Sizes = []int{8} }, "2 axis_names but 1 axis_sizes"},
		"axis type":        {func(m *Manifest) { m.Meshes[0].Types[1] = "Round" }, `axis type "Round"`},
		"unknown axis":     {func(m *Manifest) { m.Shardings[0].Spec[0] = form.Dim{"batch"} }, `axis 'batch' in entry 0`},
		"axis twice":       {func(m *Manifest) { m.Shardings[1].Spec = []form.Dim{{"data"}, {"data"}} }, "data"},
		"no such mesh":     {func(m *Manifest) { m.Shardings[0].Mesh = "m9" }, `there is no mesh "m9"`},
		"tile and spec":    {func(m *Manifest) { m.Shardings[0].Tile = "{replicated}" }, "both a tile and a mesh"},
		"no such sharding": {func(m *Manifest) { m.Inputs[0].Sharding = "s9" }, `input "params/w": there is no sharding "s9"`},
		"name twice":       {func(m *Manifest) { m.Inputs[1].Name = "params/w" }, `name "params/w" is used twice`},
		"dtype":            {func(m *Manifest) { m.Inputs[0].DType = "f33" }, `unknown dtype "f33"`},
		"expression":       {func(m *Manifest) { m.Inputs[1].Shape[0] = "b +" }, `dimension 0: size "b +": at byte 3`},
		"kept":             {func(m *Manifest) { m.Program.KeptArgs = []int{2} }, "kept_args names input 2 of 2"},
		"symbol":           {func(m *Manifest) { m.Symbols["b"] = Symbol{Min: 8, Max: 4} }, `symbol "b"`},
		"parameter":        {func(m *Manifest) { m.Parameters["v"] = Source{} }, `there is no input "v"`},
		"alias":            {func(m *Manifest) { m.Aliases[0].Axes["t"] = "tensor" }, `"t" stands for "tensor", but mesh "m0" has`},
		"variant":          {func(m *Manifest) { m.Variants[0].NumDevices = 0 }, "variants: num_devices is 0"},
	} {
		m := sample()
		c.change(m)
		err := m.Check()
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Check() = %v; want ErrFormat with %q", name, err, c.want)
		}
	}
}

func TestDecodeRefusesOtherForms(t *testing.T) {
	good, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"empty":         {"", ErrFormat},
		"not JSON":      {"\x08\x00\x00\x00", ErrFormat},
		"no format":     {"{}", ErrVersion},
		"next format":   {strings.Replace(string(good), `"format": 1`, `"format": 2`, 1), ErrVersion},
		"unknown field": {strings.Replace(string(good), `"producer"`, `"maker"`, 1), ErrFormat},
		"cut short":     {string(good[:len(good)/2]), ErrFormat},
		"size of null":  {strings.Replace(string(good), `"shape": [`, `"shape": [null, `, 1), ErrFormat},
		"two values":    {string(good) + "{}", ErrFormat},
	} {
		if _, err := Decode("m.json", []byte(c.text)); !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "m.json: ") {
			t.Errorf("%s: Decode() = %v; want %v that names the file", name, err, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	symbols := map[string]int{"a": 7, "b": 4, "é": 5, "größe_2": 2}
	for text, want := range map[Size]int{
		"0": 0, "12": 12, "b": 4, "2*b": 8, "a - b": 3, "a*b + 1": 29, "b^3": 64, "floordiv(a, b)": 1, "mod(a, b)": 3,
		"max(a, b)": 7, "min(a, 2*b)": 7, "(a + 1)*(b - 1)": 24, "-1 + b": 3, "floordiv(a - 15, 4) + 2": 0,
		"- floordiv(- 2*b, 3)": 3, "- 2*mod(- b + a, 7) + 20": 14, "floordiv(a*b, a + 1)^2 + max(a - 8, 0)": 9, // as jax prints them
		"é": 5, "größe_2*b": 8,
	} {
		if got, err := text.eval(symbols); got != want || err != nil {
			t.Errorf("Size(%q).eval() = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []Size{"", "b b", "2b", "b +", "f(a, b)", "max(a)", "(a", "a^b", "mod(a, 0)", "b - a",
		"9223372036854775807 + 1", "a^99999999", "c", Size(strings.Repeat("(", 1000)), Size(strings.Repeat("-", 4000) + "1")} {
		if got, err := text.eval(symbols); err == nil {
			t.Errorf("Size(%q).eval() = %d; want an error", text, got)
		}
	}
	_, err := Size("2*c").eval(symbols)
	if unset, ok := errors.AsType[*UnsetError](err); !ok || unset.Symbol != "c" {
		t.Errorf(`Size("2*c").eval() = %v; want an UnsetError for c`, err)
	}
}
