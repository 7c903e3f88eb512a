package mesh

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
)

// An Element is the type of the elements of an array.
type Element struct {
	Name  string // such as "float32"
	Bytes int    // size of one
}

// A Block is a dense row-major array in the memory of one task.
type Block struct {
	Shape   []int
	Element Element
	Data    []byte
}

// A Piece is the block that one device holds.
type Piece struct {
	Device serry.DeviceID
	Block
}

// A Layout is what one task knows of an array that spans tasks.
type Layout struct {
	Shape    []int
	Element  Element
	Sharding *Sharding
	Task     serry.TaskIndex // whose view this is
}

// An Array is one task's view of an array that spans tasks: the layout, and the
// data of those devices that the task owns. A task may own none; it still has
// the array and can pass it on.
type Array struct {
	layout Layout
	shards []Shard
	data   [][]byte // of each shard
}

// FromPieces makes an array from one block per device of the task, in any order.
// The blocks are kept, not copied. The element type comes from the pieces
// unless the layout has it; without pieces the layout must.
func FromPieces(l Layout, pieces ...Piece) (*Array, error) {
	a, err := newArray(l)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(a.checkDevices(pieces), a.settleElement(pieces)); err != nil {
		return nil, err
	}
	want, err := l.Sharding.ShardShape(l.Shape)
	if err != nil {
		return nil, err
	}
	for _, p := range pieces {
		if err := p.check(a.layout.Element, want); err != nil {
			return nil, fmt.Errorf("piece on device %d: %w", p.Device, err)
		}
		at := slices.IndexFunc(a.shards, func(s Shard) bool { return s.Device == p.Device })
		a.data[at] = p.Data
	}
	return a, nil
}

// FromCallback makes an array by asking for each block the task holds: once in
// all if the array is replicated, else once per device in mesh order. The
// blocks are kept, not copied.
func FromCallback(l Layout, get func(Index) (Block, error)) (*Array, error) {
	a, err := newArray(l)
	if err != nil {
		return nil, err
	}
	pieces := make([]Piece, len(a.shards))
	once := l.Sharding.Replicated()
	for i, s := range a.shards {
		pieces[i].Device = s.Device
		if once && i > 0 {
			pieces[i].Block = pieces[0].Block
			continue
		}
		if pieces[i].Block, err = get(slices.Clone(s.Index)); err != nil {
			return nil, fmt.Errorf("block %v of device %d: %w", s.Index, s.Device, err)
		}
	}
	return FromPieces(l, pieces...)
}

// Put makes an array from its whole value, which every task must have. Whether
// they really have the same can be checked with [Array.Digests].
func Put(l Layout, whole Block) (*Array, error) {
	if l.Shape == nil {
		l.Shape = whole.Shape
	}
	if !slices.Equal(l.Shape, whole.Shape) {
		return nil, errorf(ErrInvalid, "put of a value of shape %s as an array of shape %s", notation.Tuple(whole.Shape), notation.Tuple(l.Shape))
	}
	if err := whole.check(whole.Element, whole.Shape); err != nil {
		return nil, err
	}
	if l.Element == (Element{}) {
		l.Element = whole.Element
	}
	return FromCallback(l, func(x Index) (Block, error) { return whole.Slice(x), nil })
}

// FromLocal makes an array from what a task has loaded. Each dimension of local
// is either the whole of the array's or the task's part of it, see
// [Sharding.LocalShape]. Layout.Shape may be nil: it then follows from local if
// all tasks load equal parts. A task without devices must give the shape, and
// its data is ignored.
func FromLocal(l Layout, local Block) (*Array, error) {
	if l.Sharding == nil {
		return nil, errorf(ErrInvalid, "local data of shape %s without a sharding", notation.Tuple(local.Shape))
	}
	if err := local.check(local.Element, local.Shape); err != nil {
		return nil, err
	}
	if l.Shape == nil {
		shape, err := l.Sharding.globalShape(local.Shape, l.Task)
		if err != nil {
			return nil, err
		}
		if d := slices.Index(shape, Unknown); d >= 0 {
			return nil, atDim(d).errorf(ErrNonUniform, "the global size of dimension %d does not follow from local shape %s: "+
				"tasks hold different parts: give the shape", d, notation.Tuple(local.Shape))
		}
		l.Shape = shape
	}
	if d := slices.Index(l.Shape, Unknown); d >= 0 {
		return nil, atDim(d).errorf(ErrInvalid, "shape %s with an unknown dimension is not supported: give all sizes, or none", notation.Tuple(l.Shape))
	}
	if l.Element == (Element{}) {
		l.Element = local.Element
	}
	if len(l.Sharding.mesh.localDevices(l.Task)) == 0 {
		return FromPieces(l)
	}
	inside, err := l.Sharding.inLocal(l.Shape, local.Shape, l.Task)
	if err != nil {
		return nil, err
	}
	at := 0
	return FromCallback(l, func(Index) (Block, error) {
		at++
		return local.Slice(inside[at-1]), nil
	})
}

func newArray(l Layout) (*Array, error) {
	if l.Sharding == nil {
		return nil, errorf(ErrInvalid, "array of shape %s without a sharding", notation.Tuple(l.Shape))
	}
	shards, err := l.Sharding.LocalShards(l.Shape, l.Task)
	if err != nil {
		return nil, err
	}
	l.Shape = slices.Clone(l.Shape)
	return &Array{layout: l, shards: shards, data: make([][]byte, len(shards))}, nil
}

// checkDevices wants exactly one piece for each device of the task (C-ARR-2).
func (a *Array) checkDevices(pieces []Piece) error {
	got := make([]serry.DeviceID, len(pieces))
	for i, p := range pieces {
		got[i] = p.Device
	}
	want := a.layout.Sharding.mesh.localDevices(a.layout.Task)
	if len(got) != len(want) {
		return errorf(ErrInvalid, "expected %d pieces (as many devices does task %d have in the sharding), but got %d",
			len(want), a.layout.Task, len(got))
	}
	if id, twice := duplicate(got); twice {
		return errorf(ErrInvalid, "two pieces for device %d: pieces must be from distinct devices", id)
	}
	missing, extra := minus(want, got), minus(got, want)
	if len(missing)+len(extra) > 0 {
		return errorf(ErrInvalid, "devices of task %d and devices of the pieces do not match: no piece for {%s}, no place for {%s}",
			a.layout.Task, notation.Join(missing, ", "), notation.Join(extra, ", "))
	}
	return nil
}

// minus lists what is in a but not in b, in ascending order.
func minus(a, b []serry.DeviceID) []serry.DeviceID {
	out := slices.DeleteFunc(slices.Clone(a), func(id serry.DeviceID) bool { return slices.Contains(b, id) })
	slices.Sort(out)
	return out
}

func (a *Array) settleElement(pieces []Piece) error {
	e := &a.layout.Element
	if *e == (Element{}) {
		if len(pieces) == 0 {
			return errorf(ErrInvalid, "task %d holds no part of the array, so its element type must be given", a.layout.Task)
		}
		*e = pieces[0].Element
	}
	if e.Bytes < 1 || e.Bytes > maxElementBytes {
		return errorf(ErrInvalid, "element type %s of %d bytes: want 1…%d", e.Name, e.Bytes, maxElementBytes)
	}
	return nil
}

// maxElementBytes bounds an element so that byte offsets fit into an int.
const maxElementBytes = 64

// check holds a block against what it should be.
func (b Block) check(e Element, shape []int) error {
	if err := CheckShape(b.Shape); err != nil {
		return err
	}
	if b.Element != e {
		return errorf(ErrInvalid, "pieces must have matching element types: got %s, expected %s", b.Element.Name, e.Name)
	}
	if !slices.Equal(b.Shape, shape) {
		return errorf(ErrInvalid, "expected shard shape %s, got %s", notation.Tuple(shape), notation.Tuple(b.Shape))
	}
	if e.Bytes < 1 || e.Bytes > maxElementBytes || len(b.Data) != product(b.Shape)*e.Bytes {
		return errorf(ErrInvalid, "%d bytes of data for shape %s of %s (%d bytes each)", len(b.Data), notation.Tuple(b.Shape), e.Name, e.Bytes)
	}
	return nil
}

// Slice copies a part out of the block. It panics where x is not within it.
func (b Block) Slice(x Index) Block {
	out := Block{Shape: x.Shape(), Element: b.Element}
	out.Data = make([]byte, product(out.Shape)*b.Element.Bytes)
	if from := x.offset(b.Shape) * b.Element.Bytes; len(out.Data) > 0 {
		newPattern(out.Shape, b.Shape, out.Shape, b.Element.Bytes).copy(out.Data, b.Data[from:])
	}
	return out
}

// Layout is what the array is.
func (a *Array) Layout() Layout { return a.layout }

// Shards lists the parts the task holds, in mesh order.
func (a *Array) Shards() []Shard { return slices.Clone(a.shards) }

// Data is the block of one device, or [ErrNotAddressable].
func (a *Array) Data(device serry.DeviceID) (Block, error) {
	at := slices.IndexFunc(a.shards, func(s Shard) bool { return s.Device == device })
	if at < 0 {
		return Block{}, errorf(ErrNotAddressable, "device %d is not one of the %d that task %d has in this array",
			device, len(a.shards), a.layout.Task)
	}
	return Block{Shape: a.shards[at].Index.Shape(), Element: a.layout.Element, Data: a.data[at]}, nil
}

// Value is the whole array. A task can have it if what it holds covers
// everything, else the error is [ErrNotAddressable].
func (a *Array) Value() (Block, error) {
	l := a.layout
	if len(a.shards) == 0 {
		return Block{}, errorf(ErrNotAddressable, "%s has no addressable shards on task %d", a.header(), l.Task)
	}
	out := Block{Shape: l.Shape, Element: l.Element, Data: make([]byte, product(l.Shape)*l.Element.Bytes)}
	covered := 0
	var seen []Index
	for i, s := range a.shards {
		if slices.ContainsFunc(seen, func(x Index) bool { return slices.Equal(x, s.Index) }) {
			continue
		}
		seen = append(seen, s.Index)
		covered += len(a.data[i])
		if to := s.Index.offset(l.Shape) * l.Element.Bytes; len(a.data[i]) > 0 {
			size := s.Index.Shape()
			newPattern(size, size, l.Shape, l.Element.Bytes).copy(out.Data[to:], a.data[i])
		}
	}
	if covered != len(out.Data) {
		return Block{}, errorf(ErrNotAddressable, "%s spans devices that task %d does not own, and it holds only part of it: "+
			"reshard to a replicated sharding first", a.header(), l.Task)
	}
	return out, nil
}

// header is the array without its values.
func (a *Array) header() string {
	return fmt.Sprintf("Array(shape=%s, dtype=%s)", notation.Tuple(a.layout.Shape), a.layout.Element.Name)
}

// String prints small arrays that the task holds wholly as nested lists of
// values, all others by shape and element type.
func (a *Array) String() string {
	const limit = 1000
	whole, err := a.Value()
	show := printers[a.layout.Element]
	if err != nil || show == nil || product(a.layout.Shape) > limit {
		return a.header()
	}
	return "Array(" + nested(show(whole.Data), a.layout.Shape) + ", dtype=" + a.layout.Element.Name + ")"
}

func nested(values []string, shape []int) string {
	if len(shape) == 0 {
		return values[0]
	}
	parts := make([]string, shape[0])
	for i := range parts {
		n := len(values) / shape[0]
		parts[i] = nested(values[i*n:(i+1)*n], shape[1:])
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
