package export

import (
	"fmt"
	"math"
	"slices"
	"strings"

	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

// EncodeJAX writes the form that jax.export reads (C-EXP-15a): tables and places in them, and the full
// lists for older readers. It refuses what that form cannot say (C-EXP-16): a dimension that is left
// unconstrained, another way to combine partial values than a sum, and shardings that are only tiles.
func (m *Manifest) EncodeJAX() ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	for one := m; one != nil; one = one.Derivative {
		if err := one.representable(); err != nil {
			return nil, err
		}
	}
	w := &jaxWriter{b: flatbuffers.NewBuilder(len(m.Program.Bytes) + 1<<12)}
	w.b.Finish(w.exported(m))
	return w.b.FinishedBytes(), nil
}

// representable says what the form of JAX cannot say.
func (m *Manifest) representable() error {
	if m.Program.Bytes == nil {
		return fmt.Errorf("%w: the manifest does not hold the bytes of the program", ErrUnsupported)
	}
	if err := m.Program.representable(); err != nil {
		return err
	}
	for _, s := range m.Shardings {
		free := slices.ContainsFunc(s.Spec, func(a form.Dim) bool { return slices.Contains(a, mesh.Unconstrained) })
		switch {
		case s.Tile != "":
			return fmt.Errorf("%w: sharding %q is a tile without names", ErrUnsupported, s.ID)
		case free:
			return fmt.Errorf("%w: sharding %q leaves a dimension unconstrained", ErrUnsupported, s.ID)
		case s.Kind != "" && s.Kind != mesh.Sum:
			return fmt.Errorf("%w: sharding %q combines partial values by %q, not by a sum", ErrUnsupported, s.ID, s.Kind)
		}
	}
	for _, v := range slices.Concat(m.Inputs, m.Outputs) {
		if v.DType == Token {
			return fmt.Errorf("%w: %q is a token", ErrUnsupported, v.Name)
		}
	}
	return nil
}

// representable refuses numbers that do not fit 16 bits, and checks that the form has no number for.
// Without it the file would name another check as switched off, or another argument as kept.
func (p *Program) representable() error {
	for _, n := range append(slices.Clone(p.KeptArgs), p.Convention) {
		if n < 0 || n > math.MaxUint16 {
			return fmt.Errorf("%w: calling convention %d, or a kept argument, does not fit 16 bits", ErrUnsupported, p.Convention)
		}
	}
	for _, check := range p.Disabled {
		if kind, _, _ := strings.Cut(check, ":"); !slices.Contains(disabledKinds, kind) {
			return fmt.Errorf("%w: unknown disabled check %q", ErrUnsupported, check)
		}
	}
	return nil
}

// A jaxWriter builds a file from its leaves up, as FlatBuffers wants it: what a table points to is
// written before the table.
type jaxWriter struct {
	b *flatbuffers.Builder

	// of the function that is being written
	shardings map[string]*Sharding // by id
	meshes    map[string]int       // places in the table, by id
}

type offset = flatbuffers.UOffsetT

// A slot writes one field of a table.
type slot func()

// table writes a table of n fields.
func (w *jaxWriter) table(n int, slots ...slot) offset {
	w.b.StartObject(n)
	for _, s := range slots {
		s()
	}
	return w.b.EndObject()
}

// ref is a field that points to something; nothing is written for 0.
func (w *jaxWriter) ref(field int, to offset) slot {
	return func() { w.b.PrependUOffsetTSlot(field, to, 0) }
}

// The number fields. Zero is the default of each, and is not written.
func (w *jaxWriter) u8(field, n int) slot {
	return func() { w.b.PrependByteSlot(field, byte(n), 0) }
}

func (w *jaxWriter) u16(field, n int) slot {
	return func() { w.b.PrependUint16Slot(field, uint16(n), 0) }
}

func (w *jaxWriter) u32(field, n int) slot {
	return func() { w.b.PrependUint32Slot(field, uint32(n), 0) }
}

// refs writes a list of what was written before.
func (w *jaxWriter) refs(to []offset) offset {
	w.b.StartVector(4, len(to), 4)
	for _, o := range slices.Backward(to) {
		w.b.PrependUOffsetT(o)
	}
	return w.b.EndVector(len(to))
}

// each writes a list with one element for each of values.
func each[T any](w *jaxWriter, values []T, write func(T) offset) offset {
	to := make([]offset, len(values))
	for i, v := range values {
		to[i] = write(v)
	}
	return w.refs(to)
}

func (w *jaxWriter) texts(list []string) offset { return each(w, list, w.text) }

func (w *jaxWriter) text(s string) offset { return w.b.CreateString(s) }

// optional writes a text that is left out where it is empty.
func (w *jaxWriter) optional(s string) offset {
	if s == "" {
		return 0
	}
	return w.text(s)
}

// numbers writes a list of numbers of 1, 2 or 4 bytes.
func (w *jaxWriter) numbers(list []int, width int) offset {
	w.b.StartVector(width, len(list), width)
	for _, n := range slices.Backward(list) {
		switch width {
		case 1:
			w.b.PrependByte(byte(n))
		case 2:
			w.b.PrependUint16(uint16(n))
		default:
			w.b.PrependUint32(uint32(n))
		}
	}
	return w.b.EndVector(len(list))
}

func (w *jaxWriter) exported(m *Manifest) offset {
	derivative := offset(0)
	if m.Derivative != nil {
		derivative = w.exported(m.Derivative)
	}
	w.shardings, w.meshes = m.shardings(), map[string]int{}
	for i, e := range m.Meshes {
		w.meshes[e.ID] = i
	}
	all := slices.Concat(m.Inputs, m.Outputs)
	in, out := m.trees()
	constants := 0
	if m.JAX != nil && m.JAX.GlobalConstants {
		constants = 1
	}
	slots := []slot{
		w.u16(0, newestJAX),
		w.ref(1, w.text(m.Function)),
		w.ref(2, w.tree(in)),
		w.ref(3, each(w, m.Inputs, w.value)),
		w.ref(4, w.tree(out)),
		w.ref(5, each(w, m.Outputs, w.value)),
		w.ref(7, each(w, m.Inputs, func(v Value) offset { return w.sharding(m, v) })),
		w.ref(8, each(w, m.Outputs, func(v Value) offset { return w.sharding(m, v) })),
		w.ref(9, w.texts(m.Program.Platforms)),
		w.ref(10, each(w, m.Program.Effects.Ordered, w.effect)),
		w.ref(11, each(w, m.Program.Effects.Unordered, w.effect)),
		w.ref(12, each(w, m.Program.Disabled, w.disabled)),
		w.ref(13, w.b.CreateByteVector(m.Program.Bytes)),
		w.u16(14, m.Program.Convention),
		w.ref(15, w.numbers(m.Program.KeptArgs, 2)),
		w.u8(16, constants),
		w.u32(18, m.NumDevices),
		w.ref(19, each(w, all, w.value)),
		w.ref(20, each(w, m.Meshes, w.mesh)),
		w.ref(21, each(w, m.Shardings, func(s Sharding) offset { return w.named(m, s) })),
		w.ref(22, w.numbers(countFrom(0, len(m.Inputs)), 4)),
		w.ref(23, w.numbers(countFrom(len(m.Inputs), len(m.Outputs)), 4)),
		w.ref(24, w.numbers(m.places(m.Inputs), 4)),
		w.ref(25, w.numbers(m.places(m.Outputs), 4)),
		w.ref(17, derivative),
		w.ref(26, w.optional(m.Producer.Version)),
	}
	return w.table(jaxFields, slots...)
}

// trees are the trees of arguments and results; a manifest from elsewhere has flat ones.
func (m *Manifest) trees() (in, out *Tree) {
	if m.JAX != nil {
		return m.JAX.In, m.JAX.Out
	}
	return &Tree{Kind: "tuple", Children: []*Tree{flatTree(len(m.Inputs)), {Kind: "dict"}}}, flatTree(len(m.Outputs))
}

func flatTree(n int) *Tree {
	t := &Tree{Kind: "tuple"}
	for range n {
		t.Children = append(t.Children, &Tree{Kind: "leaf"})
	}
	return t
}

func countFrom(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

// places are the places of shardings in the table, from 1; 0 where there is none.
func (m *Manifest) places(values []Value) []int {
	at := map[string]int{}
	for i, s := range m.Shardings {
		at[s.ID] = i + 1
	}
	out := make([]int, len(values))
	for i, v := range values {
		out[i] = at[v.Sharding]
	}
	return out
}

func (w *jaxWriter) tree(t *Tree) offset {
	slots := []slot{w.u8(0, slices.Index(treeKinds, t.Kind))}
	if len(t.Children) > 0 {
		slots = append(slots, w.ref(1, each(w, t.Children, w.tree)))
	}
	if len(t.Keys) > 0 {
		slots = append(slots, w.ref(2, w.texts(t.Keys)))
	}
	if t.Kind == "custom" {
		slots = append(slots, w.ref(3, w.text(t.Type)), w.ref(4, w.b.CreateByteVector(t.Aux)))
	}
	return w.table(5, slots...)
}

func (w *jaxWriter) value(v Value) offset {
	shape := each(w, v.Shape, func(s Size) offset { return w.text(string(s)) })
	space := max(1, slices.Index(memorySpaces, v.Memory))
	return w.table(4, w.ref(1, shape), w.u8(2, typeNumber(v.DType)), w.u8(3, space))
}

// sharding writes an entry of the older lists.
func (w *jaxWriter) sharding(m *Manifest, v Value) offset {
	s := w.shardings[v.Sharding]
	if s == nil {
		return w.table(3)
	}
	return w.table(3, w.ref(2, w.named(m, *s)))
}

func (w *jaxWriter) named(m *Manifest, s Sharding) offset {
	at := w.meshes[s.Mesh]
	partitions := each(w, s.Spec, func(a form.Dim) offset { return w.table(1, w.ref(0, w.texts(a))) })
	spec := w.table(3, w.ref(0, partitions), w.ref(1, w.texts(s.Reduced)), w.ref(2, w.texts(s.Unreduced)))
	return w.table(4, w.ref(0, w.mesh(m.Meshes[at])), w.ref(1, spec), w.u32(3, at), w.ref(2, w.optional(s.Memory)))
}

func (w *jaxWriter) mesh(e Mesh) offset {
	axes, _ := e.axes() // Check has seen them
	types := make([]int, len(axes))
	for i, a := range axes {
		types[i] = slices.Index(axisTypes, a.Type) + 1
	}
	slots := []slot{w.ref(0, w.numbers(e.Sizes, 4)), w.ref(1, w.texts(e.Names)), w.ref(2, w.numbers(types, 1))}
	if e.Device != nil {
		kind, platform := w.text(e.Device.Kind), w.text(e.Device.Platform)
		slots = append(slots, w.ref(3, w.table(3, w.ref(0, kind), w.u32(1, e.Device.Cores), w.ref(2, platform))))
	}
	return w.table(4, slots...)
}

func (w *jaxWriter) effect(name string) offset { return w.table(1, w.ref(0, w.text(name))) }

func (w *jaxWriter) disabled(name string) offset {
	kind, target, _ := strings.Cut(name, ":")
	return w.table(2, w.u8(0, slices.Index(disabledKinds, kind)), w.ref(1, w.optional(target)))
}
