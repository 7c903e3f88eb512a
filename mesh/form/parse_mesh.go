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

func (p *parser) mesh() (*mesh.Mesh, error) {
	abstract := p.take("AbstractMesh")
	if !abstract && !p.take("Mesh") {
		return nil, p.fail("Mesh(…) or AbstractMesh(…)")
	}
	var t meshText
	if err := p.list("(", ")", func() error { return p.meshItem(&t, abstract) }); err != nil {
		return nil, err
	}
	if t.types != nil && len(t.types) != len(t.axes) {
		return nil, errorf(mesh.ErrFormat, "number of axis names should match the number of axis_types, got %d and %d",
			len(t.axes), len(t.types))
	}
	for i := range t.types {
		t.axes[i].Type = t.types[i]
	}
	if abstract {
		return mesh.Abstract(&t.hardware, t.axes...)
	}
	return t.build()
}

func (p *parser) meshItem(t *meshText, abstract bool) error {
	if p.space(); p.pos < len(p.text) && strings.IndexByte(`'"`, p.text[p.pos]) >= 0 {
		return p.axis(t)
	}
	if p.take("()") { // how JAX prints an abstract mesh without axes
		return nil
	}
	start := p.pos
	word := p.word()
	if word != "" {
		if err := p.expect("="); err != nil {
			return err
		}
	}
	var err error
	switch {
	case word == "axis_types":
		t.types = []mesh.AxisType{}
		return p.list("(", ")", func() error { return p.axisType(t) })
	case word == "devices" && !abstract:
		return p.list("(", ")", func() error { return p.numberRange(&t.devices) })
	case word == "tasks" && !abstract:
		return p.list("(", ")", func() error { return p.repeated(&t.tasks) })
	case word == "size" && !abstract:
		t.scalar = true
		return p.expect("1")
	case word == "device_kind" && abstract:
		t.hardware.Kind, err = p.nameOrWords()
	case word == "platform" && abstract:
		t.hardware.Platform, err = p.nameOrWords()
	case word == "num_cores" && abstract:
		if !p.take("None") {
			t.hardware.Cores, err = p.number()
		}
	default:
		p.pos = start
		return p.fail("an axis or a field this version knows")
	}
	return err
}

func (p *parser) axis(t *meshText) error {
	name, err := p.name()
	if err != nil {
		return err
	}
	if err := p.expect(":"); err != nil {
		return err
	}
	size, err := p.number()
	t.axes = append(t.axes, mesh.Axis{Name: name, Size: size})
	return err
}

func (p *parser) axisType(t *meshText) error {
	p.space()
	start := p.pos
	typ, err := axisTypeOf(p.word())
	if err != nil {
		p.pos = start
		return p.fail("Auto, Explicit or Manual")
	}
	t.types = append(t.types, typ)
	return nil
}

// nameOrWords reads a quoted name, or up to the next comma or bracket, as JAX
// prints names of hardware without quotes.
func (p *parser) nameOrWords() (string, error) {
	if p.space(); p.pos < len(p.text) && strings.IndexByte(`'"`, p.text[p.pos]) >= 0 {
		return p.name()
	}
	n := strings.IndexAny(p.text[p.pos:], ",)")
	if n < 0 || n > maxName {
		return "", p.fail("a short name")
	}
	p.pos += n
	return p.text[p.pos-n : p.pos], nil
}

// numberRange reads 7, 0:4 or 0:8:2.
func (p *parser) numberRange(out *[]serry.DeviceID) error {
	start, err := p.number()
	if err != nil {
		return err
	}
	stop, step := start+1, 1
	if p.take(":") {
		if stop, err = p.number(); err != nil {
			return err
		}
		if p.take(":") {
			if step, err = p.number(); err != nil {
				return err
			}
		}
	}
	if step < 1 || stop <= start || len(*out)+(stop-start)/step > maxDevices {
		return p.fail("a range that goes up and is not too long")
	}
	for id := start; id < stop; id += step {
		*out = append(*out, serry.DeviceID(id))
	}
	return nil
}

// repeated reads 3 or 3*4.
func (p *parser) repeated(out *[]serry.TaskIndex) error {
	task, err := p.number()
	if err != nil {
		return err
	}
	n := 1
	if p.take("*") {
		if n, err = p.number(); err != nil {
			return err
		}
	}
	if len(*out)+n > maxDevices {
		return p.fail("fewer tasks")
	}
	*out = append(*out, slices.Repeat([]serry.TaskIndex{serry.TaskIndex(task)}, n)...)
	return nil
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
