package mesh

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

var (
	float32s = Element{"float32", 4}
	int32s   = Element{"int32", 4}
)

// ramp is a block with values 0, 1, 2, …
func ramp(e Element, shape ...int) Block {
	b := Block{Shape: shape, Element: e}
	for i := range product(shape) {
		v := uint32(i)
		if e == float32s {
			v = math.Float32bits(float32(i))
		}
		b.Data = binary.LittleEndian.AppendUint32(b.Data, v)
	}
	return b
}

func pieces(b Block, ids ...serry.DeviceID) []Piece {
	out := make([]Piece, len(ids))
	for i, id := range ids {
		out[i] = Piece{id, b}
	}
	return out
}

func TestArrayValues(t *testing.T) {
	lab.Clause(t, "TC-ARR-01", "C-ARR-1", "C-ARR-4")
	whole := ramp(float32s, 8, 2)
	for _, c := range exampleOne {
		s := must(grid4x2(1).Shard(c.spec))
		calls := 0
		a, err := FromCallback(Layout{Shape: whole.Shape, Sharding: s}, func(x Index) (Block, error) {
			calls++
			return whole.Slice(x), nil
		})
		if err != nil {
			t.Fatalf("%v: FromCallback = %v", c.spec, err)
		}
		if want := map[bool]int{true: 1, false: 8}[c.replicated]; calls != want {
			t.Errorf("%v: %d calls; want %d", c.spec, calls, want)
		}
		for d, sh := range a.Shards() {
			if got := must(a.Data(sh.Device)); !bytes.Equal(got.Data, whole.Slice(c.index(d)).Data) {
				t.Errorf("%v: device %d does not hold %v", c.spec, d, c.index(d))
			}
		}
		if got := must(a.Value()); !bytes.Equal(got.Data, whole.Data) {
			t.Errorf("%v: Value() differs from the input", c.spec)
		}
	}
}

func TestPiecesAreChecked(t *testing.T) {
	lab.Clause(t, "TC-ARR-02", "TC-ARR-03", "TC-ARR-04", "TC-ARR-05", "C-ARR-2")
	on := func(ids ...int) Layout {
		m := must(New(host(8, ids...), axes("x", len(ids))...))
		return Layout{Shape: []int{8, 2}, Sharding: must(m.Shard(spec("x")))}
	}
	part := ramp(float32s, 4, 2)
	for _, c := range []struct {
		name   string
		layout Layout
		pieces []Piece
		words  []string
	}{
		{"one of two", on(0, 1), pieces(part, 0), []string{"expected 2", "got 1"}},
		{"four of two", on(0, 1), pieces(part, 0, 1, 2, 3), []string{"expected 2", "got 4"}},
		{"other devices", on(0, 1), pieces(part, 2, 3), []string{"{0, 1}", "{2, 3}"}},
		{"one other device", on(1, 2), pieces(part, 0, 1), []string{"{2}", "{0}"}},
		{"one device twice", on(0, 1), pieces(part, 0, 0), []string{"distinct devices", "device 0"}},
		{"other element", func() Layout { l := on(0, 1); l.Element = float32s; return l }(), pieces(ramp(int32s, 4, 2), 0, 1),
			[]string{"got int32", "expected float32"}},
		{"short data", on(0, 1), pieces(Block{[]int{4, 2}, float32s, part.Data[:30]}, 0, 1), []string{"30 bytes"}},
	} {
		_, err := FromPieces(c.layout, c.pieces...)
		wantError(t, c.name, err, ErrInvalid, c.words...)
	}
	// The order of pieces is free.
	a, err := FromPieces(on(3, 5), Piece{5, ramp(int32s, 4, 2)}, Piece{3, Block{[]int{4, 2}, int32s, make([]byte, 32)}})
	if err != nil || a.Shards()[0].Device != 3 || !bytes.Equal(must(a.Data(3)).Data, make([]byte, 32)) {
		t.Errorf("FromPieces in another order = %v, %v; want devices 3, 5", a, err)
	}
}

func TestCallbackShapes(t *testing.T) {
	lab.Clause(t, "TC-ARR-06")
	for _, c := range []struct {
		spec Spec
		want string
	}{{spec("x", "y"), "(2, 2)"}, {spec("x"), "(2, 4)"}, {spec("y"), "(4, 4)"}, {spec("", "y"), "(8, 2)"},
		{spec("", "x"), "(8, 1)"}, {spec("xy"), "(1, 4)"}, {spec(), "(8, 4)"}} {
		s := must(grid4x2(1).Shard(c.spec))
		_, err := FromCallback(Layout{Shape: []int{8, 4}, Sharding: s}, func(Index) (Block, error) { return ramp(float32s, 5), nil })
		wantError(t, c.spec.String(), err, ErrInvalid, "expected shard shape "+c.want, "(5,)")
	}
	_, err := FromCallback(Layout{Shape: []int{8, 4}, Sharding: must(grid4x2(1).Shard(spec("x")))},
		func(Index) (Block, error) { return Block{}, ErrDiffer })
	wantError(t, "callback that fails", err, ErrDiffer, "block [0:2, 0:4]", "device 0")
}

func TestElementOfNoPieces(t *testing.T) {
	lab.Clause(t, "TC-ARR-07", "C-ARR-3", "C-ARR-6")
	s := must(must(New(Hosts(8, 4)[:4], axes("x", 4)...)).Shard(spec("x")))
	away := Layout{Shape: []int{8, 8}, Sharding: s, Task: 3}
	_, err := FromPieces(away)
	wantError(t, "FromPieces(no element)", err, ErrInvalid, "element type must be given")
	away.Element = float32s
	a, err := FromPieces(away)
	if err != nil || a.String() != "Array(shape=(8, 8), dtype=float32)" {
		t.Errorf("FromPieces() = %v, %v; want the header", a, err)
	}
	here := Layout{Shape: []int{8, 8}, Element: int32s, Sharding: s}
	_, err = FromPieces(here, pieces(ramp(float32s, 2, 8), 0, 1)...)
	wantError(t, "FromPieces(other element)", err, ErrInvalid, "got float32", "expected int32")
	here.Element = Element{}
	if _, err := FromPieces(here, pieces(ramp(float32s, 2, 8), 0, 1)...); err != nil {
		t.Fatalf("FromPieces = %v", err)
	}
}

func TestValueAcrossTasks(t *testing.T) {
	lab.Clause(t, "TC-ARR-08", "TC-ARR-09", "C-ARR-5")
	deep := must(New(Hosts(8, 4), axes("xyz", 2, 2, 2)...))
	for _, c := range []struct {
		mesh  *Mesh
		spec  Spec
		shape []int
		ok    bool
	}{
		{grid4x2(4), spec("y"), []int{8, 2}, true}, {grid4x2(4), spec(), []int{8, 2}, true},
		{grid4x2(4), spec("x", "y"), []int{8, 2}, false}, {grid4x2(4), spec("x"), []int{8, 2}, false}, {grid4x2(4), spec("xy"), []int{8, 2}, false},
		{deep, spec("z"), []int{8, 4, 2}, true}, {deep, spec("", "", "z"), []int{8, 4, 2}, true},
		{deep, spec("x", "y", "z"), []int{8, 4, 2}, false}, {deep, spec("xy", "z"), []int{8, 4, 2}, false},
	} {
		whole := ramp(float32s, c.shape...)
		for task := range serry.TaskIndex(4) {
			a := must(Put(Layout{Sharding: must(c.mesh.Shard(c.spec)), Task: task}, whole))
			if len(a.Shards()) != 2 {
				t.Fatalf("%v: task %d has %d shards; want 2", c.spec, task, len(a.Shards()))
			}
			for _, sh := range a.Shards() {
				if !bytes.Equal(must(a.Data(sh.Device)).Data, whole.Slice(sh.Index).Data) {
					t.Errorf("%v: device %d does not hold %v", c.spec, sh.Device, sh.Index)
				}
			}
			got, err := a.Value()
			if c.ok && (err != nil || !bytes.Equal(got.Data, whole.Data)) {
				t.Errorf("%v: Value() on task %d = %v; want the input", c.spec, task, err)
			}
			if !c.ok {
				wantError(t, c.spec.String()+".Value()", err, ErrNotAddressable, "task", "part of it")
			}
		}
	}
}

func TestArrayText(t *testing.T) {
	lab.Clause(t, "TC-ARR-10")
	put := func(sp Spec) string {
		return must(Put(Layout{Sharding: must(grid4x2(4).Shard(sp))}, ramp(float32s, 8, 2))).String()
	}
	if got, want := put(spec("")), "Array([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]], dtype=float32)"; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
	if got, want := put(spec("x")), "Array(shape=(8, 2), dtype=float32)"; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
}

func TestArraysWithoutLocalShards(t *testing.T) {
	lab.Clause(t, "TC-ARR-11", "TC-ARR-12", "C-ARR-6")
	first := must(New(Hosts(8, 4)[:2], axes("x", 2)...)) // task 0 only
	for _, sp := range []Spec{spec("x"), spec()} {
		away := must(Put(Layout{Sharding: must(first.Shard(sp)), Task: 1}, ramp(float32s, 8, 2)))
		if len(away.Shards()) != 0 || len(away.Digests()) != 0 {
			t.Errorf("%v: task 1 has %d shards; want none", sp, len(away.Shards()))
		}
		_, err := away.Value()
		wantError(t, "Value()", err, ErrNotAddressable, "no addressable shards")
		_, err = away.Data(0)
		wantError(t, "Data(0)", err, ErrNotAddressable, "device 0", "task 1")
		plan := must(Reshard{Shape: []int{8, 2}, ElementBytes: 4, From: away.Layout().Sharding, To: must(first.Shard(spec()))}.PlanFor(1))
		if len(plan.Moves) != 0 {
			t.Errorf("%v: a task without devices has %d moves; want none", sp, len(plan.Moves))
		}
	}
	second := must(New(Hosts(8, 4)[2:4], axes("x", 2)...)) // task 1 only
	for task := range serry.TaskIndex(4) {
		a := must(Put(Layout{Sharding: must(second.Shard(spec("x"))), Task: task}, ramp(float32s, 8, 2)))
		if want := map[bool]int{true: 2}[task == 1]; len(a.Shards()) != want {
			t.Errorf("task %d has %d shards; want %d", task, len(a.Shards()), want)
		}
	}
}

func TestPutMustBeTheSame(t *testing.T) {
	lab.Clause(t, "TC-ARR-13", "C-ARR-7", "P-ARR-2", "W-TOP-22")
	scalar := func(v uint32) Block {
		return Block{Element: int32s, Data: binary.LittleEndian.AppendUint32(nil, v)}
	}
	put := func(v uint32, task serry.TaskIndex) []Digest {
		return must(Put(Layout{Sharding: must(grid4x2(4).Shard(spec())), Task: task}, scalar(v))).Digests()
	}
	same := slices.Concat(put(1, 0), put(1, 1), put(1, 2))
	if err := CheckReplicas(same); err != nil {
		t.Errorf("CheckReplicas(same) = %v", err)
	}
	err := CheckReplicas(append(same, put(2, 3)...))
	wantError(t, "CheckReplicas(one differs)", err, ErrDiffer, "task 2", "task 3")
	// Replicas of a block, loaded differently by one task.
	var all []Digest
	for task := range serry.TaskIndex(4) {
		whole := ramp(float32s, 8, 2)
		if task == 2 {
			whole.Data[60] ^= 1 // the last row
		}
		all = append(all, must(Put(Layout{Sharding: must(grid4x2(4).Shard(spec("y"))), Task: task}, whole)).Digests()...)
	}
	wantError(t, "CheckReplicas", CheckReplicas(all), ErrDiffer, "[4:8, 0:2]", "task 1", "task 2")
}

func TestWhatJAXCanPut(t *testing.T) {
	lab.Clause(t, "TC-ARR-14", "TC-ARR-15", "TC-ARR-16", "C-ARR-8")
	shape := []int{8, 8}
	mesh := func(hw *Hardware, perTask int, sizes []int, ids ...int) *Mesh {
		devices := host(perTask, ids...)
		for i := range devices {
			devices[i].Hardware = hw
		}
		return must(New(devices, axes("xyz", sizes...)...))
	}
	gpu, cpu := &Hardware{Platform: "gpu"}, &Hardware{Platform: "cpu"}
	all := must(mesh(gpu, 2, []int{8}, count(8)...).Shard(spec("x")))
	turned := must(mesh(gpu, 2, []int{4, 2}, reversed(count(8))...).Shard(spec("x", "y")))
	even := must(mesh(gpu, 2, []int{4}, 0, 2, 4, 6).Shard(spec("x")))
	local := must(mesh(gpu, 2, []int{2}, 0, 1).Shard(spec("x")))
	next := must(mesh(gpu, 2, []int{2}, 2, 3).Shard(spec("x")))
	pair := must(mesh(gpu, 2, []int{2}, 1, 2).Shard(spec("x")))
	other := must(mesh(gpu, 2, []int{2}, 4, 6).Shard(spec("x")))
	if err := CanPut(all, turned, shape, 0); err != nil {
		t.Errorf("CanPut(same devices) = %v", err)
	}
	wantError(t, "CanPut(4 to 8 devices)", CanPut(even, all, shape, 0), ErrUnsupported, "same set of devices")
	wantError(t, "CanPut(local to global)", CanPut(local, all, shape, 0), ErrUnsupported, "only on task 0")
	if err := CanPut(pair, other, shape, 3); err != nil {
		t.Errorf("CanPut(equal shards elsewhere) = %v", err)
	}
	if err := CanPut(local, next, shape, 1); err != nil {
		t.Errorf("CanPut(task 0 to task 1, seen from 1) = %v", err)
	}
	a, b := must(mesh(cpu, 2, []int{2}, 1, 2).Shard(spec("x"))), must(mesh(cpu, 2, []int{2}, 4, 6).Shard(spec("x")))
	wantError(t, "CanPut on cpu", CanPut(a, b, shape, 3), ErrUnsupported, "cpu")
}

func ExampleFromPieces() {
	m, _ := New(Hosts(4, 2), Axis{Name: "x", Size: 4})
	s, _ := m.Shard(P(Dim{"x"}))
	u8 := Element{"uint8", 1}
	a, err := FromPieces(Layout{Shape: []int{8}, Sharding: s, Task: 1},
		Piece{2, Block{[]int{2}, u8, []byte{20, 21}}},
		Piece{3, Block{[]int{2}, u8, []byte{30, 31}}})
	fmt.Println(a, err)
	for _, sh := range a.Shards() {
		b, _ := a.Data(sh.Device)
		fmt.Println(sh.Device, sh.Index, b.Data)
	}
	// Output:
	// Array(shape=(8,), dtype=uint8) <nil>
	// 2 [4:6] [20 21]
	// 3 [6:8] [30 31]
}

func ExampleFromCallback() {
	m, _ := New(Hosts(2, 1), Axis{Name: "x", Size: 2})
	s, _ := m.Shard(P(nil, Dim{"x"}))
	a, _ := FromCallback(Layout{Shape: []int{2, 4}, Sharding: s}, func(x Index) (Block, error) {
		b := Block{Shape: x.Shape(), Element: Element{"uint8", 1}}
		for row := x[0].Start; row < x[0].Stop; row++ {
			for column := x[1].Start; column < x[1].Stop; column++ {
				b.Data = append(b.Data, byte(10*row+column))
			}
		}
		return b, nil
	})
	fmt.Println(a)
	// Output: Array([[0, 1, 2, 3], [10, 11, 12, 13]], dtype=uint8)
}

func TestValuesOfElements(t *testing.T) {
	lab.Clause(t, "TC-ARR-10")
	le := binary.LittleEndian
	for _, c := range []struct {
		element Element
		data    []byte
		want    string
	}{
		{Element{"bool", 1}, []byte{0, 1}, "[false, true]"}, {Element{"int8", 1}, []byte{255}, "[-1]"},
		{Element{"int16", 2}, le.AppendUint16(nil, 65535), "[-1]"}, {Element{"uint16", 2}, le.AppendUint16(nil, 65535), "[65535]"},
		{Element{"uint32", 4}, le.AppendUint32(nil, 1<<31), "[2147483648]"}, {Element{"int64", 8}, le.AppendUint64(nil, 1<<63), "[-9223372036854775808]"},
		{Element{"uint64", 8}, le.AppendUint64(nil, 1<<63), "[9223372036854775808]"}, {Element{"bfloat16", 2}, le.AppendUint16(nil, 0x3fc0), "[1.5]"},
		{Element{"float64", 8}, le.AppendUint64(nil, math.Float64bits(0.1)), "[0.1]"}, {Element{"key", 16}, make([]byte, 16), "shape=(1,)"},
	} {
		n := len(c.data) / c.element.Bytes
		l := Layout{Sharding: must(must(New(Hosts(1, 1))).Shard(spec()))}
		if got := must(Put(l, Block{[]int{n}, c.element, c.data})).String(); !strings.Contains(got, c.want) {
			t.Errorf("%s prints as %s; want %s", c.element.Name, got, c.want)
		}
	}
}
