package export

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Difference is one fact on which two manifests, or two bound programs, differ. A missing fact is "".
type Difference struct {
	What string `json:"what"` // such as "mesh m0 axes" or "input 0/w sharding"
	A    string `json:"a"`
	B    string `json:"b"`
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s and %s", plain(d.What), plain(orAbsent(d.A)), plain(orAbsent(d.B)))
}

func orAbsent(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// Diff lists how two manifests differ, in the order of the manifest. Ids do not count: meshes and
// shardings are compared by what they say.
func Diff(a, b *Manifest) []Difference { return difference(a.facts(""), b.facts("")) }

// facts are statements about something, each with a name, in a fixed order.
type facts []fact

type fact struct{ What, Says string }

func (f *facts) add(what, format string, args ...any) {
	*f = append(*f, fact{what, fmt.Sprintf(format, args...)})
}

// bytes writes facts so that equal bytes mean equal facts.
func (f facts) bytes() []byte {
	var out []byte
	for _, one := range f {
		out = fmt.Appendf(out, "%q %q\n", one.What, one.Says)
	}
	return out
}

// difference compares facts by name, in the order of a, then what only b has.
func difference(a, b facts) []Difference {
	says := map[string]string{}
	for _, f := range b {
		says[f.What] = f.Says
	}
	var out []Difference
	for _, f := range a {
		if other := says[f.What]; other != f.Says {
			out = append(out, Difference{f.What, f.Says, other})
		}
		delete(says, f.What)
	}
	for _, f := range b {
		if _, left := says[f.What]; left && f.Says != "" {
			out = append(out, Difference{f.What, "", f.Says})
		}
	}
	return out
}

// facts are what a manifest says. prefix names a derivative.
func (m *Manifest) facts(prefix string) facts {
	var f facts
	f.add(prefix+"function", "%s", m.Function)
	f.add(prefix+"producer", "%s", strings.TrimSpace(m.Producer.Name+" "+m.Producer.Version))
	f.add(prefix+"program", "sha256 %s", m.Program.SHA256)
	f.add(prefix+"calling convention", "%d", m.Program.Convention)
	f.add(prefix+"platforms", "%s", strings.Join(m.Program.Platforms, ", "))
	f.add(prefix+"disabled checks", "%s", strings.Join(m.Program.Disabled, ", "))
	f.add(prefix+"effects", "%s", strings.Join(slices.Concat(m.Program.Effects.Ordered, m.Program.Effects.Unordered), ", "))
	f.add(prefix+"kept arguments", "%v", m.Program.KeptArgs)
	f.add(prefix+"devices", "%d", m.NumDevices)
	for i := range m.Meshes {
		f.add(fmt.Sprintf("%smesh %d", prefix, i), "%s", m.Meshes[i].String())
	}
	f = m.sideFacts(f, prefix+"input ", m.Inputs)
	f = m.sideFacts(f, prefix+"output ", m.Outputs)
	for _, name := range slices.Sorted(maps.Keys(m.Symbols)) {
		f.add(prefix+"symbol "+name, "%+v", m.Symbols[name])
	}
	for _, v := range m.Variants {
		f.add(fmt.Sprintf("%svariant for %d devices", prefix, v.NumDevices), "sha256 %s", v.Program.SHA256)
	}
	if m.Derivative != nil {
		f = append(f, m.Derivative.facts(prefix+"derivative ")...)
	}
	return f
}

func (m *Manifest) sideFacts(f facts, kind string, values []Value) facts {
	shardings := m.ShardingTexts(values)
	for i, v := range values {
		f.add(kind+v.Name+" type", "%s%s", v.DType, ShapeText(v.Shape))
		f.add(kind+v.Name+" sharding", "%s", shardings[i])
		f.add(kind+v.Name+" memory", "%s", v.Memory)
	}
	return f
}

// ShardingTexts writes the sharding of each value for people, "" where it is left to the compiler.
func (m *Manifest) ShardingTexts(values []Value) []string {
	meshes := indexed(m.Meshes, func(e *Mesh) string { return e.ID })
	texts := make(map[string]string, len(m.Shardings))
	for _, s := range m.Shardings {
		texts[s.ID] = s.text(meshes)
	}
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = texts[v.Sharding]
	}
	return out
}

// text writes the sharding for people. It names the mesh only if the manifest has several.
func (s *Sharding) text(meshes map[string]*Mesh) string {
	text := s.Tile
	if text == "" {
		text = s.spec().String()
	}
	if e := meshes[s.Mesh]; e != nil && len(meshes) > 1 {
		text += " over " + e.String()
	}
	if s.Memory != "" {
		text += " in " + s.Memory
	}
	return text
}

// String writes a mesh for people.
func (e Mesh) String() string {
	if len(e.Names) == 0 {
		return "one device"
	}
	parts := make([]string, len(e.Names))
	for i, name := range e.Names {
		parts[i] = fmt.Sprintf("%s=%d", name, e.Sizes[i])
	}
	text := strings.Join(parts, ",")
	if types := slices.Compact(slices.Clone(e.Types)); len(types) == 1 {
		text += " " + types[0]
	} else if len(types) > 1 {
		text += " " + strings.Join(e.Types, ",")
	}
	if e.Device != nil {
		text += " on " + strings.TrimSpace(e.Device.Platform+" "+e.Device.Kind)
	}
	return text
}

// facts are what tasks must agree on before they run a bound program, what is most likely to differ
// first: the program, the meshes with the order of their devices, then each value.
func (b *Bound) facts() facts {
	var f facts
	f.add("program", "sha256 %s", b.Manifest.Program.SHA256)
	for _, m := range b.Meshes {
		f.add(fmt.Sprintf("mesh %s", m.ID), "%s over devices %v", axesText(m.Mesh.Axes()), m.Mesh.Devices())
	}
	f.add("device order", "%v", b.Devices)
	f = boundFacts(f, "input ", b.Inputs)
	return boundFacts(f, "output ", b.Outputs)
}

func boundFacts(f facts, kind string, values []BoundValue) facts {
	for _, v := range values {
		f.add(kind+v.Name, "%s%v %s", v.DType, v.Extent, v.shardingText())
	}
	return f
}

func (v BoundValue) shardingText() string {
	if v.Sharding == nil {
		return "not sharded"
	}
	return v.Sharding.Spec().String() + " " + v.Sharding.Memory()
}
