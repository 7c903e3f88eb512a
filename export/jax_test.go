package export

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/mesh/form"
)

func TestReadJAX(t *testing.T) {
	clause.Cite(t, "C-EXP-14", "C-EXP-15a", "P-EXP-3")
	for _, version := range []string{"0.12", "0.9.2"} { // tables and places in them; everything in full
		m := jaxFile(t, "layer-"+version+".jax")
		if m.Function != "layer" || m.NumDevices != 8 || m.Program.Convention != 10 || len(m.Program.Bytes) == 0 {
			t.Errorf("%s: function %q, %d devices, convention %d, program of %d bytes; want layer, 8, 10, some",
				version, m.Function, m.NumDevices, m.Program.Convention, len(m.Program.Bytes))
		}
		if want := []string{"cpu", "cuda"}; !slices.Equal(m.Program.Platforms, want) {
			t.Errorf("%s: platforms %q; want %q", version, m.Program.Platforms, want)
		}
		want := []Value{
			{Name: "0/b", DType: "bf16", Shape: []Size{"8"}}, {Name: "0/w", DType: "bf16", Shape: []Size{"16", "8"}},
			{Name: "1", DType: "bf16", Shape: []Size{"32", "16"}},
		}
		if diff := cmp.Diff(want, m.Inputs, cmpopts.IgnoreFields(Value{}, "Sharding")); diff != "" {
			t.Errorf("%s: inputs differ (-want +got):\n%s", version, diff)
		}
		shardings := m.ShardingTexts(slices.Concat(m.Inputs, m.Outputs))
		if want := []string{"P('model',) in device", "P(None, 'model') in device", "P('data', None) in device", "P('data', 'model') in device"}; !slices.Equal(shardings, want) {
			t.Errorf("%s: shardings %q; want %q", version, shardings, want)
		}
		if len(m.Meshes) != 1 || !slices.Equal(m.Meshes[0].Names, []string{"data", "model"}) || m.Meshes[0].Device == nil {
			t.Errorf("%s: meshes %+v; want one over data and model with a device", version, m.Meshes)
		}
	}
}

func TestReadJAXSymbolsAndDerivative(t *testing.T) {
	clause.Cite(t, "C-EXP-15a", "C-EXP-13b")
	for _, version := range []string{"0.12", "0.9.2"} {
		m := jaxFile(t, "symbolic-"+version+".jax")
		if m.Inputs[0].Name != "0" || m.Inputs[0].Shape[0] != "2*b" || m.Inputs[1].Name != "scale" || m.Outputs[0].Name != "out" {
			t.Errorf("%s: inputs %+v, outputs %+v; want 2*b rows, scale by name, one result", version, m.Inputs, m.Outputs)
		}
		if m.Derivative == nil || len(m.Derivative.Inputs) != 3 || m.Derivative.NumDevices != 1 {
			t.Errorf("%s: derivative %+v; want three inputs on one device", version, m.Derivative)
		}
	}
}

func TestJAXRoundTrip(t *testing.T) {
	clause.Cite(t, "P-EXP-7", "C-EXP-15a")
	files, err := filepath.Glob("testdata/*.jax")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of jax: %v", err)
	}
	for _, name := range files {
		m := jaxFile(t, filepath.Base(name))
		data, err := m.EncodeJAX()
		if err != nil {
			t.Fatalf("%s: EncodeJAX() = %v", name, err)
		}
		again, err := ReadJAX(name, data)
		if err != nil {
			t.Fatalf("%s: ReadJAX(EncodeJAX()) = %v", name, err)
		}
		if diff := cmp.Diff(m, again, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(JAX{}, "Version")); diff != "" {
			t.Errorf("%s: ReadJAX(EncodeJAX()) differs (-want +got):\n%s", name, diff)
		}
	}
}

func TestEncodeJAXRefusesWhatItCannotSay(t *testing.T) {
	clause.Cite(t, "TC-EXP-17", "C-EXP-16")
	for name, change := range map[string]func(*Manifest){
		"unconstrained": func(m *Manifest) { m.Shardings[0].Spec[0] = form.Dim{"?"} },
		"kind max": func(m *Manifest) {
			m.Meshes[0].Types = []string{"Explicit", "Explicit"}
			m.Shardings[0] = Sharding{ID: "s0", Mesh: "m0", Unreduced: []string{"data"}, Kind: "max"}
		},
		"tile":       func(m *Manifest) { m.Shardings[0] = Sharding{ID: "s0", Tile: "{devices=[8]<=[8]}"} },
		"no program": func(m *Manifest) { m.Program.Bytes = nil },
		"token":      func(m *Manifest) { m.Outputs[0].DType = Token },
		"convention": func(m *Manifest) { m.Program.Convention = 1 << 16 },
		"check":      func(m *Manifest) { m.Program.Disabled = []string{"all of them"} },
	} {
		m := sample()
		change(m)
		if _, err := m.EncodeJAX(); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: EncodeJAX() = %v; want ErrUnsupported", name, err)
		}
	}
}

// root finds the root table of a file, to change its fields.
func root(t *testing.T, data []byte) table {
	t.Helper()
	f := newFlat(data)
	out := f.root()
	if f.err != nil {
		t.Fatal(f.err)
	}
	return out
}

func TestReadJAXRefusesTheFuture(t *testing.T) {
	clause.Cite(t, "C-EXP-15")
	data, err := os.ReadFile("testdata/layer-0.12.jax")
	if err != nil {
		t.Fatal(err)
	}
	version := root(t, data).field(0)
	binary.LittleEndian.PutUint16(data[version:], newestJAX+1)
	_, err = ReadJAX("new.jax", data)
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "version 13") || !strings.Contains(err.Error(), "up to 12") ||
		errors.Is(err, ErrFormat) || strings.Contains(err.Error(), "damaged") {
		t.Errorf("ReadJAX(next version) = %v; want ErrVersion that names both, and no word of damage", err)
	}
}

func TestReadJAXOutlivesDamage(t *testing.T) {
	data, err := os.ReadFile("testdata/layer-0.12.jax")
	if err != nil {
		t.Fatal(err)
	}
	for n := range data { // cut short at every byte
		if _, err := ReadJAX("short", data[:n]); err == nil && n < len(data)/2 {
			t.Errorf("ReadJAX(first %d of %d bytes) = nil; want an error", n, len(data))
		}
	}
	for at := range data { // every byte wrong, one at a time
		bad := bytes.Clone(data)
		bad[at] ^= 0xff
		if m, err := ReadJAX("bad", bad); err == nil {
			if _, err := m.Encode(); err != nil {
				t.Errorf("byte %d: Encode() of what was read = %v", at, err)
			}
		}
	}
}

// A file of a few kilobytes whose lists point to one table again and again stands for a tree of 50^40
// leaves. Reading it must end early.
func TestReadJAXIsBounded(t *testing.T) {
	w := &jaxWriter{b: flatbuffers.NewBuilder(0)}
	node := w.tree(&Tree{Kind: "leaf"})
	for range 40 {
		node = w.table(5, w.u8(0, 2), w.ref(1, w.refs(slices.Repeat([]offset{node}, 50))))
	}
	program := w.b.CreateByteVector([]byte("program"))
	w.b.Finish(w.table(jaxFields, w.u16(0, newestJAX), w.ref(2, node), w.ref(13, program), w.u32(18, 1)))
	_, err := ReadJAX("bomb", w.b.FinishedBytes())
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "overlap") {
		t.Errorf("ReadJAX(a tree that shares its branches) = %v; want ErrFormat", err)
	}
}

// A branch costs a file 8 bytes and its reader ten times that; a file of many costs no more than a tree
// of the largest size.
func TestReadJAXBoundsTrees(t *testing.T) {
	clause.Cite(t, "C-EXP-14")
	w := &jaxWriter{b: flatbuffers.NewBuilder(0)}
	row := w.tree(&Tree{Kind: "none"})
	var rows []offset
	for range maxNodes / maxList {
		rows = append(rows, w.table(5, w.u8(0, 2), w.ref(1, w.refs(slices.Repeat([]offset{row}, maxList)))))
	}
	in := w.table(5, w.u8(0, 2), w.ref(1, w.refs(rows)))
	_ = w.b.CreateByteVector(make([]byte, 8*maxNodes)) // so that sharing the rows is not what is refused
	_, err := ReadJAX("wide", w.program(in, nil, 0))
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "nodes") {
		t.Errorf("ReadJAX(a tree of more than %d nodes) = %v; want an error about its nodes", maxNodes, err)
	}
}

// A long key stands in the name of every leaf below it: a file of 200 kilobytes would have 300 megabytes
// of names.
func TestReadJAXBoundsNames(t *testing.T) {
	clause.Cite(t, "P-EXP-3")
	const n = 5000
	below := &Tree{Kind: "tuple", Children: slices.Repeat([]*Tree{{Kind: "leaf"}}, n)}
	w := &jaxWriter{b: flatbuffers.NewBuilder(0)}
	in := w.tree(&Tree{Kind: "dict", Keys: []string{strings.Repeat("k", maxName-10)}, Children: []*Tree{below}})
	_, err := ReadJAX("bomb", w.program(in, nil, n))
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "names") {
		t.Errorf("ReadJAX(one long key over %d leaves) = %v; want an error about its names", n, err)
	}
}

// Values share the shapes of a table: a file of 300 kilobytes would have a gigabyte of expressions.
func TestReadJAXBoundsShapes(t *testing.T) {
	clause.Cite(t, "C-EXP-14")
	const n = 5000
	long := slices.Repeat([]Size{Size(strings.Repeat("1+", maxExpression/2-1) + "1")}, maxRank)
	w := &jaxWriter{b: flatbuffers.NewBuilder(0)}
	in := w.tree(&Tree{Kind: "tuple", Children: slices.Repeat([]*Tree{{Kind: "leaf"}}, n)})
	_, err := ReadJAX("bomb", w.program(in, long, n))
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "shapes") {
		t.Errorf("ReadJAX(%d values of one long shape) = %v; want an error about the shapes", n, err)
	}
}

// program writes a file with n arguments of one shape.
func (w *jaxWriter) program(in offset, shape []Size, n int) []byte {
	w.b.Finish(w.table(jaxFields, w.u16(0, newestJAX), w.ref(2, in), w.ref(4, w.tree(&Tree{Kind: "none"})),
		w.ref(13, w.b.CreateByteVector([]byte("program"))), w.u32(18, 1),
		w.ref(19, each(w, []Value{{DType: "f32", Shape: shape}}, w.value)), w.ref(22, w.numbers(make([]int, n), 4))))
	return w.b.FinishedBytes()
}

// Python allows a keyword that reads like a position: f(x, **{"0": y}).
func TestArgumentNamesAreUnique(t *testing.T) {
	clause.Cite(t, "P-EXP-3")
	leaf := &Tree{Kind: "leaf"}
	got, err := argumentNames(&Tree{Kind: "tuple", Children: []*Tree{
		{Kind: "tuple", Children: []*Tree{leaf, leaf}},
		{Kind: "dict", Keys: []string{"0", "a/b", "~k0"}, Children: []*Tree{leaf, leaf, leaf}},
	}})
	if want := []string{"0", "1", "~k0", "a~1b", "~0k0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("argumentNames() = %q, %v; want %q", got, err, want)
	}
}

func FuzzReadJAX(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jax")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadJAX("fuzz", data)
		if err != nil {
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Fatalf("Encode() of what was read = %v", err)
		}
		binary, err := m.EncodeJAX()
		if errors.Is(err, ErrUnsupported) {
			return
		}
		if err != nil {
			t.Fatalf("EncodeJAX() of what was read = %v", err)
		}
		again, err := ReadJAX("again", binary)
		if err != nil {
			t.Fatalf("ReadJAX(EncodeJAX()) = %v", err)
		}
		if found := Diff(m, again); len(found) > 0 {
			t.Fatalf("Diff(m, ReadJAX(EncodeJAX(m))) = %v", found)
		}
	})
}

func FuzzReadOrbax(f *testing.F) {
	f.Add(orbaxModel())
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := ReadOrbax("fuzz", data)
		for name, m := range all {
			if err := m.Check(); err != nil {
				t.Fatalf("Check() of %q = %v", name, err)
			}
		}
		if err == nil && len(all) == 0 {
			t.Fatal("ReadOrbax() = no function and no error")
		}
	})
}

func FuzzDecode(f *testing.F) {
	text, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode("fuzz", data)
		if err != nil {
			return
		}
		if _, err := m.Encode(); err != nil {
			t.Fatalf("Encode() of what was read = %v", err)
		}
	})
}
