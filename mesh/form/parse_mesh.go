package form

import (
	"slices"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
)

// meshText is what a mesh reads as before it is checked.
type meshText struct {
	axes     []mesh.Axis
	types    []mesh.AxisType
	devices  []serry.DeviceID
	tasks    []serry.TaskIndex
	hardware mesh.Hardware
	scalar   bool
}

func (p *parser) mesh() *mesh.Mesh {
	abstract := p.take("AbstractMesh")
	if !abstract && !p.take("Mesh") {
		p.want("Mesh(…) or AbstractMesh(…)")
	}
	var t meshText
	p.list("(", ")", func() { p.meshItem(&t, abstract) })
	if t.types != nil && len(t.types) != len(t.axes) {
		p.fail(errorf(mesh.ErrFormat, "number of axis names should match the number of axis_types, got %d and %d",
			len(t.axes), len(t.types)))
	}
	if p.err != nil {
		return nil
	}
	for i := range t.types {
		t.axes[i].Type = t.types[i]
	}
	build := t.build
	if abstract {
		build = func() (*mesh.Mesh, error) { return mesh.Abstract(&t.hardware, t.axes...) }
	}
	m, err := build()
	p.fail(err)
	return m
}

func (p *parser) meshItem(t *meshText, abstract bool) {
	if p.next(quotes) {
		name := p.name()
		p.expect(":")
		t.axes = append(t.axes, mesh.Axis{Name: name, Size: p.number()})
		return
	}
	if p.take("()") { // how JAX prints an abstract mesh without axes
		return
	}
	start := p.pos
	word := p.word()
	if word != "" {
		p.expect("=")
	}
	switch {
	case word == "axis_types":
		t.types = append([]mesh.AxisType{}, items(p, "(", ")", p.axisType)...)
	case word == "devices" && !abstract:
		p.list("(", ")", func() { p.numberRange(&t.devices) })
	case word == "tasks" && !abstract:
		p.list("(", ")", func() { p.repeated(&t.tasks) })
	case word == "size" && !abstract:
		t.scalar = true
		p.expect("1")
	case word == "device_kind" && abstract:
		t.hardware.Kind = p.nameOrWords()
	case word == "platform" && abstract:
		t.hardware.Platform = p.nameOrWords()
	case word == "num_cores" && abstract:
		if !p.take("None") {
			t.hardware.Cores = p.number()
		}
	default:
		p.wantAt(start, "an axis or a field this version knows")
	}
}

func (p *parser) axisType() mesh.AxisType {
	p.space()
	start := p.pos
	typ, err := axisTypeOf(p.word())
	if err != nil {
		p.wantAt(start, "Auto, Explicit or Manual")
	}
	return typ
}

// nameOrWords reads a quoted name, or up to the next comma or bracket, as JAX
// prints names of hardware without quotes.
func (p *parser) nameOrWords() string {
	if p.next(quotes) {
		return p.name()
	}
	n := strings.IndexAny(p.text[p.pos:], ",)")
	if n < 0 || n > maxName {
		p.want("a short name")
		return ""
	}
	p.pos += n
	return p.text[p.pos-n : p.pos]
}

// numberRange reads 7, 0:4 or 0:8:2.
func (p *parser) numberRange(out *[]serry.DeviceID) {
	start, step := p.number(), 1
	stop := start + 1
	if p.take(":") {
		stop = p.number()
		if p.take(":") {
			step = p.number()
		}
	}
	if step < 1 || stop <= start || len(*out)+(stop-start)/step > maxDevices {
		p.want("a range that goes up and is not too long")
		return
	}
	for id := start; id < stop && p.err == nil; id += step {
		*out = append(*out, serry.DeviceID(id))
	}
}

// repeated reads 3 or 3*4.
func (p *parser) repeated(out *[]serry.TaskIndex) {
	task, n := p.number(), 1
	if p.take("*") {
		n = p.number()
	}
	if len(*out)+n > maxDevices {
		p.want("fewer tasks")
		return
	}
	*out = append(*out, slices.Repeat([]serry.TaskIndex{serry.TaskIndex(task)}, n)...)
}

// build fills in what the text leaves out and makes the mesh.
func (t *meshText) build() (*mesh.Mesh, error) {
	places, err := mesh.Abstract(nil, t.axes...)
	if err != nil {
		return nil, err
	}
	size := places.Size()
	if t.scalar && len(t.axes) == 0 {
		size = 1
	}
	if t.devices == nil {
		t.devices = make([]serry.DeviceID, size)
		for i := range t.devices {
			t.devices[i] = serry.DeviceID(i)
		}
	}
	if t.tasks == nil {
		t.tasks = make([]serry.TaskIndex, size)
	}
	if len(t.devices) != size || len(t.tasks) != size {
		return nil, errorf(mesh.ErrFormat, "mesh of size %d lists %d devices and %d tasks", size, len(t.devices), len(t.tasks))
	}
	return mesh.Of(t.devices, t.tasks, nil, t.axes...)
}

func axisTypeOf(word string) (mesh.AxisType, error) {
	for t := mesh.Auto; t <= mesh.Manual; t++ {
		if t.String() == word {
			return t, nil
		}
	}
	return mesh.Default, errorf(mesh.ErrFormat, "axis type %q: use Auto, Explicit or Manual", word)
}
