package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

// shardsText prints what each device holds: "0 [0:2, 0:1] r0".
func shardsText(shards []Shard) []string {
	out := make([]string, len(shards))
	for i, s := range shards {
		out[i] = fmt.Sprintf("%d %v r%d", s.Device, s.Index, s.Replica)
	}
	return out
}

// exampleOne is the table EX-SHD-1: mesh 4×2, array (8, 2).
var exampleOne = []struct {
	spec       Spec
	shard      []int
	index      func(d int) Index
	replica    func(d int) int
	replicated bool
}{
	{spec("x", "y"), []int{2, 1}, func(d int) Index { return Index{{d / 2 * 2, d/2*2 + 2}, {d % 2, d%2 + 1}} }, func(int) int { return 0 }, false},
	{spec("x"), []int{2, 2}, func(d int) Index { return Index{{d / 2 * 2, d/2*2 + 2}, {0, 2}} }, func(d int) int { return d % 2 }, false},
	{spec("y"), []int{4, 2}, func(d int) Index { return Index{{d % 2 * 4, d%2*4 + 4}, {0, 2}} }, func(d int) int { return d / 2 }, false},
	{spec("", "y"), []int{8, 1}, func(d int) Index { return Index{{0, 8}, {d % 2, d%2 + 1}} }, func(d int) int { return d / 2 }, false},
	{spec("xy"), []int{1, 2}, func(d int) Index { return Index{{d, d + 1}, {0, 2}} }, func(int) int { return 0 }, false},
	{spec(), []int{8, 2}, func(int) Index { return Index{{0, 8}, {0, 2}} }, func(d int) int { return d }, true},
}

func TestShardsOfExampleOne(t *testing.T) {
	lab.Clause(t, "TC-SHD-03", "EX-SHD-1", "C-SHD-9", "C-SHD-11")
	for _, c := range exampleOne {
		s := must(grid4x2(4).Shard(c.spec))
		shape, err := s.ShardShape([]int{8, 2})
		if err != nil || !slices.Equal(shape, c.shard) {
			t.Errorf("%v: ShardShape = %v, %v; want %v", c.spec, shape, err, c.shard)
		}
		if s.Replicated() != c.replicated {
			t.Errorf("%v: Replicated() = %v; want %v", c.spec, s.Replicated(), c.replicated)
		}
		for d, sh := range must(s.Shards([]int{8, 2})) {
			want := Shard{serry.DeviceID(d), serry.TaskIndex(d / 2), c.index(d), c.replica(d)}
			if sh.Device != want.Device || sh.Task != want.Task || !slices.Equal(sh.Index, want.Index) || sh.Replica != want.Replica {
				t.Errorf("%v: shard %d = %v; want %v", c.spec, d, sh, want)
			}
		}
	}
}

func TestShardsOfTransposedSpec(t *testing.T) {
	lab.Clause(t, "TC-SHD-01")
	s := must(grid4x2(1).Shard(spec("y", "x")))
	if got := must(s.Shards([]int{8, 4}))[0].Index; !slices.Equal(got, Index{{0, 4}, {0, 1}}) {
		t.Errorf("first device holds %v; want [0:4, 0:1]", got)
	}
	tile := must(s.Tile(2))
	if !slices.Equal(tile.Dims, []int{2, 4}) || !slices.Equal(tile.List(), []int{0, 2, 4, 6, 1, 3, 5, 7}) {
		t.Errorf("Tile(2) = %v; want dims [2,4], devices 0,2,4,6,1,3,5,7", tile)
	}
	if got := s.Mesh().Devices(); !slices.Equal(got, grid4x2(1).Devices()) {
		t.Errorf("Devices() = %v; want mesh order", got)
	}
}

func TestShardShapes(t *testing.T) {
	lab.Clause(t, "TC-SHD-02", "TC-SHD-21", "C-SHD-8", "C-SHD-12")
	flat, deep := grid4x2(1), must(New(Hosts(8, 1), axes("xyz", 2, 2, 2)...))
	for _, c := range []struct {
		mesh  *Mesh
		spec  Spec
		shape []int
		want  []int
	}{
		{flat, spec("x", "y"), []int{8, 4}, []int{2, 2}},
		{flat, spec("x"), []int{8, 4}, []int{2, 4}},
		{flat, spec("y"), []int{8, 4}, []int{4, 4}},
		{flat, spec("", "y"), []int{8, 4}, []int{8, 2}},
		{flat, spec("", "x"), []int{8, 4}, []int{8, 1}},
		{flat, spec("xy"), []int{8, 4}, []int{1, 4}},
		{flat, spec(), []int{8, 4}, []int{8, 4}},
		{deep, spec("x", "y", "z"), []int{8, 4, 2}, []int{4, 2, 1}},
		{deep, spec("xy", "z"), []int{8, 4, 2}, []int{2, 2, 2}},
		{deep, spec("z"), []int{8, 4, 2}, []int{4, 4, 2}},
		{deep, spec("", "", "z"), []int{8, 4, 2}, []int{8, 4, 1}},
	} {
		s := must(c.mesh.Shard(c.spec))
		if got, err := s.ShardShape(c.shape); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: ShardShape(%v) = %v, %v; want %v", c.spec, c.shape, got, err, c.want)
		}
		tile := must(s.Tile(len(c.shape)))
		indices := blocksOfTile(tile, c.want, 8)
		for d, sh := range must(s.Shards(c.shape)) {
			if !slices.Equal(sh.Index, indices[d]) {
				t.Errorf("%v: device %d holds %v by the tile, %v by the names", c.spec, d, indices[d], sh.Index)
			}
		}
	}
}

// blocksOfTile lists the block of each device as a tile says it, for shards of
// the given shape.
func blocksOfTile(tile Tile, shard []int, devices int) []Index {
	list, ways, copies := tile.List(), tile.Dims, 1
	if tile.Replicated() {
		list, ways, copies = count(devices), slices.Repeat([]int{1}, len(shard)), devices
	} else if len(tile.Last) > 0 {
		ways, copies = tile.Dims[:len(shard)], tile.Dims[len(shard)]
	}
	out := make([]Index, devices)
	for at, device := range list {
		block := at / copies
		out[device] = make(Index, len(shard))
		for d := len(shard) - 1; d >= 0; d-- {
			start := block % ways[d] * shard[d]
			out[device][d] = Range{start, start + shard[d]}
			block /= ways[d]
		}
	}
	return out
}

func TestIndivisibleShapes(t *testing.T) {
	lab.Clause(t, "TC-SHD-04", "C-SHD-8")
	_, err := must(grid4x2(1).Shard(spec("x", "y"))).ShardShape([]int{8, 3})
	wantError(t, "ShardShape(8, 3)", err, ErrIndivisible, "dimension 1", "2 ways", "size is 3", "(8, 3)", "evenly divide the shape", "pad it to 4")
	two := must(New(Hosts(4, 1), axes("xy", 2, 2)...))
	_, err = must(two.Shard(spec("x", "y"))).Shards([]int{1, 2})
	wantError(t, "Shards(1, 2)", err, ErrIndivisible, "dimension 0")
	wantError(t, "an indivisible shape", err, ErrInvalid)
	_, err = must(two.Shard(spec("x"))).Shards([]int{-2})
	wantError(t, "Shards(-2)", err, ErrInvalid, "negative")
}

func TestRankOfSpec(t *testing.T) {
	lab.Clause(t, "TC-SHD-05", "C-SPEC-9")
	m := must(New(Hosts(2, 1), Axis{Name: "mdl", Size: 2}))
	s := must(m.Shard(P(nil, Dim{"mdl"}, nil, nil)))
	_, err := s.Shards([]int{4, 4})
	wantError(t, "Shards of rank 2", err, ErrInvalid, "P(None, 'mdl', None, None)", "rank at least 4", "rank 2")
	_, err = must(m.Shard(P(Dim{"mdl"}))).Shards(nil)
	wantError(t, "Shards of a scalar", err, ErrInvalid, "rank 0", "P()")
}

func TestReplicated(t *testing.T) {
	lab.Clause(t, "TC-SHD-06", "C-SHD-6")
	for _, c := range []struct {
		sizes []int
		spec  Spec
		want  bool
	}{
		{[]int{1, 1}, spec("x", "y"), true}, {[]int{4, 2}, spec("x", "y"), false},
		{[]int{2, 1}, spec(), true}, {[]int{2, 1}, spec(""), true}, {[]int{2, 1}, spec("", ""), true},
		{[]int{2, 1}, spec("x", ""), false}, {[]int{2, 1}, spec("xy", ""), false}, {[]int{2, 1}, spec("x", "", "", ""), false},
		{[]int{2, 1}, spec("", "", ""), true},
		{[]int{1, 2, 4}, spec("x", "", ""), true},
		{[]int{1, 1, 4}, spec("x", "y", ""), true}, {[]int{1, 1, 4}, spec("xy", ""), true},
	} {
		m := must(New(Hosts(product(c.sizes), 1), axes("xyz", c.sizes...)...))
		if got := must(m.Shard(c.spec)).Replicated(); got != c.want {
			t.Errorf("%v on %v: Replicated() = %v; want %v", c.spec, c.sizes, got, c.want)
		}
	}
}

func TestEquivalence(t *testing.T) {
	lab.Clause(t, "TC-SHD-07", "C-SHD-17", "W-TOP-18")
	one := must(New(Hosts(1, 1), axes("x", 1)...))
	single := must(New(Hosts(1, 1)))
	if !must(one.Shard(spec("x"))).Equivalent(must(single.Shard(spec())), 2) {
		t.Errorf("P('x') on one device is not equivalent to that device")
	}
	if tile := must(must(one.Shard(spec("x"))).Tile(2)); !tile.Equal(Tile{Type: TileReplicated}) {
		t.Errorf("tile of one device = %v; want it equal to {replicated}", tile)
	}
	two := must(New(Hosts(2, 1), axes("xy", 2, 1)...))
	if must(one.Shard(spec())).Equivalent(must(two.Shard(spec())), 2) {
		t.Errorf("replicated on one device is equivalent to replicated on two")
	}
	if got, want := must(must(two.Shard(spec("x", "y"))).Tile(2)), must(ListedTile([]int{2, 1}, []int{0, 1})); !got.Equal(want) {
		t.Errorf("tile of P('x', 'y') = %v; want %v", got, want)
	}
	if must(two.Shard(spec("x", "y"))).Equivalent(must(single.Shard(spec())), 2) {
		t.Errorf("two devices are equivalent to one")
	}
	if got, want := must(must(two.Shard(spec("y"))).Tile(2)), must(ListedTile([]int{1, 1, 2}, []int{0, 1}, TileReplicated)); !got.Equal(want) {
		t.Errorf("tile of P('y') = %v; want %v", got, want)
	}
	if !must(two.Shard(spec("x"))).Equivalent(must(two.Shard(spec("x", ""))), 2) {
		t.Errorf("P('x') and P('x', None) are not equivalent")
	}
	// The same slices through another order of devices.
	turned := must(New(host(1, 1, 0), axes("xy", 2, 1)...))
	a, b := must(two.Shard(spec())), must(turned.Shard(spec()))
	if a.Equivalent(b, 2) {
		t.Errorf("shardings over differently ordered devices are equivalent")
	}
}

func TestAbstractShardings(t *testing.T) {
	lab.Clause(t, "C-SHD-3", "TC-SHD-08", "TC-SHD-09", "C-SHD-4", "C-SHD-5", "C-MESH-9")
	m := must(Abstract(nil, axes("x", 2)...))
	a, b := must(m.Shard(spec("x"))), must(m.Shard(spec("x")))
	if !a.Equal(b) || !a.Equivalent(b, 1) {
		t.Errorf("equal shardings over an abstract mesh differ")
	}
	if got := a.Memory(); got != "" {
		t.Errorf("Memory() = %q; want none", got)
	}
	if got := must(a.WithMemory("pinned_host")).Memory(); got != "pinned_host" {
		t.Errorf("Memory() = %q; want pinned_host", got)
	}
	_, err := a.WithMemory("weird_device")
	wantError(t, "WithMemory(weird_device)", err, ErrInvalid, "weird_device", "pinned_host")
	_, err = a.Shards([]int{2})
	wantError(t, "Shards()", err, ErrAbstract)
	if a.addressable(0) {
		t.Errorf("addressable(0) = true for an abstract mesh")
	}
	if shape, err := a.ShardShape([]int{4}); err != nil || shape[0] != 2 {
		t.Errorf("ShardShape = %v, %v; want (2,)", shape, err)
	}
	real := must(must(New(tpu("TPU v4", 2, 2, 1, 1, 1), axes("x", 4)...)).Shard(spec("x")))
	if real.Memory() != "device" {
		t.Errorf("Memory() = %q; want the default of the devices", real.Memory())
	}
	_, err = real.WithMemory("weird_device")
	wantError(t, "WithMemory(weird_device)", err, ErrInvalid, "weird_device")
}

func TestUnreducedAxes(t *testing.T) {
	lab.Clause(t, "TC-SHD-10", "C-SHD-2", "C-SHD-10", "C-SPEC-6")
	auto := must(New(Hosts(1, 1), axes("xyz", 1, 1, 1)...))
	_, err := auto.Shard(Spec{Dims: []Dim{{"x"}}, Unreduced: []string{"a"}})
	wantError(t, "unreduced {a}", err, ErrUnknownAxis, "'a'", "not found")
	_, err = auto.Shard(Spec{Dims: []Dim{{"x"}}, Unreduced: []string{"y", "z"}})
	wantError(t, "unreduced {y, z}", err, ErrInvalid, "Explicit", "'y'")
	_, err = auto.Shard(Spec{Dims: []Dim{{"x"}}, Unreduced: []string{"y", ""}})
	wantError(t, "unreduced {y, none}", err, ErrInvalid, "name")
	m := must(Make(Hosts(8, 1), axes("xy", 4, 2)...))
	s := must(m.Shard(Spec{Dims: []Dim{{"x"}}, Unreduced: []string{"y"}}))
	if shape, err := s.ShardShape([]int{8, 2}); err != nil || !slices.Equal(shape, []int{2, 2}) {
		t.Errorf("ShardShape = %v, %v; want (2, 2)", shape, err)
	}
	_, err = s.Shards([]int{8, 2})
	wantError(t, "Shards of unreduced", err, ErrUnsupported, "'y'", "reduce")
	if s.Replicated() || len(s.ReplicatedAxes()) != 0 {
		t.Errorf("unreduced sharding counts as replicated over %v", s.ReplicatedAxes())
	}
	r := must(m.Shard(Spec{Dims: []Dim{{"x"}}, Reduced: []string{"y"}}))
	if got := must(r.Shards([]int{8}))[1]; got.Replica != 1 {
		t.Errorf("second device along a reduced axis = %v; want a replica", got)
	}
}

func TestUnconstrained(t *testing.T) {
	lab.Clause(t, "C-SHD-2", "C-SPEC-2")
	free := P(Dim{"x"}, Dim{Unconstrained})
	if _, err := grid4x2(1).Shard(free); err != nil {
		t.Errorf("Shard(%v) over Auto axes = %v", free, err)
	}
	_, err := must(Make(Hosts(8, 1), axes("xy", 4, 2)...)).Shard(free)
	wantError(t, "Shard over Explicit axes", err, ErrInvalid, "dimension 1", "Auto")
}

func TestShardsInAnyDeviceOrder(t *testing.T) {
	lab.Clause(t, "TC-SHD-22", "TC-SHD-23", "TC-SHD-24", "EX-SHD-2")
	order := []int{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}
	line := must(must(New(host(4, order...), axes("x", 16)...)).Shard(spec("x")))
	starts := []int{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}
	for _, sh := range must(line.Shards([]int{16})) {
		if want := starts[sh.Device]; sh.Index[0] != (Range{want, want + 1}) || sh.Replica != 0 {
			t.Errorf("device %d holds %v; want it to start at %d", sh.Device, sh, want)
		}
	}
	check := func(list []int, rows int, want map[int][2]int) {
		t.Helper()
		s := must(must(New(host(4, list...), axes("xy", len(list)/2, 2)...)).Shard(spec("x", "y")))
		for _, sh := range must(s.Shards([]int{rows, 2})) {
			w := want[int(sh.Device)]
			if !slices.Equal(sh.Index, Index{{w[0], w[0] + 2}, {w[1], w[1] + 1}}) {
				t.Errorf("device %d holds %v; want it to start at %v", sh.Device, sh.Index, w)
			}
		}
	}
	check([]int{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}, 16, map[int][2]int{0: {0, 0}, 2: {0, 1}, 4: {2, 0}, 6: {2, 1},
		1: {4, 0}, 3: {4, 1}, 5: {6, 0}, 7: {6, 1}, 8: {8, 0}, 10: {8, 1}, 12: {10, 0}, 14: {10, 1}, 9: {12, 0}, 11: {12, 1}, 13: {14, 0}, 15: {14, 1}})
	check([]int{0, 2, 3, 1, 4, 6, 7, 5}, 8, map[int][2]int{0: {0, 0}, 1: {2, 1}, 2: {0, 1}, 3: {2, 0}, 4: {4, 0}, 5: {6, 1}, 6: {4, 1}, 7: {6, 0}})
	yx := must(grid4x2(1).Shard(spec("yx")))
	for d, want := range []int{0, 4, 1, 5, 2, 6, 3, 7} {
		if got := must(yx.Shards([]int{8, 8}))[d].Index[0]; got.Start != want {
			t.Errorf("P(('y', 'x')): device %d starts at %d; want %d", d, got.Start, want)
		}
	}
}

func TestAddressableShards(t *testing.T) {
	lab.Clause(t, "TC-SHD-25", "TC-SHD-26", "C-SHD-6")
	s := must(grid4x2(4).Shard(spec("x", "y")))
	all := must(s.Shards([]int{8, 2}))
	for task := range serry.TaskIndex(4) {
		got := must(s.LocalShards([]int{8, 2}, task))
		if want := shardsText(all[2*task : 2*task+2]); !slices.Equal(shardsText(got), want) {
			t.Errorf("LocalShards(%d) = %v; want %v", task, shardsText(got), want)
		}
		if s.addressable(task) {
			t.Errorf("addressable(%d) = true for a mesh of four tasks", task)
		}
	}
	if got := must(s.LocalShards([]int{8, 2}, 9)); len(got) != 0 {
		t.Errorf("LocalShards(9) = %v; want none", got)
	}
	own := must(must(New(Hosts(8, 4)[:2], axes("x", 2)...)).Shard(spec("x")))
	if !own.addressable(0) || own.addressable(1) {
		t.Errorf("addressable = %v on task 0, %v on task 1; want true, false", own.addressable(0), own.addressable(1))
	}
	half := must(New(Hosts(8, 4)[:4], axes("x", 4)...))
	if got := half.Tasks(); !slices.Equal(got, []serry.TaskIndex{0, 1}) {
		t.Errorf("Tasks() of half of the devices = %v; want 0, 1", got)
	}
	if got := s.Mesh().Tasks(); len(got) != 4 {
		t.Errorf("Tasks() of all = %v; want four", got)
	}
}

func TestManualAxes(t *testing.T) {
	lab.Clause(t, "C-SHD-13")
	m := must(New(Hosts(8, 1), Axis{"x", 4, Explicit}, Axis{"y", 2, Manual}))
	_, err := must(m.Shard(spec("x"))).ShardShape([]int{8})
	wantError(t, "ShardShape beside a Manual axis", err, ErrUnsupported, "'y'", "Manual")
	if _, err := must(m.Shard(spec("x", "y"))).ShardShape([]int{8, 2}); err != nil {
		t.Errorf("ShardShape where all axes split = %v", err)
	}
	if tile := must(must(m.Shard(spec())).Tile(2)); !strings.Contains(tile.String(), "{manual, replicated}") {
		t.Errorf("Tile(2) = %v; want manual and replicated groups", tile)
	}
}

func ExampleMesh_Shard() {
	m, _ := Make(Hosts(4, 2), Axis{Name: "data", Size: 2}, Axis{Name: "model", Size: 2})
	s, _ := m.Shard(P(Dim{"data"}, Dim{"model"}))
	shards, _ := s.Shards([]int{4, 6})
	for _, sh := range shards {
		fmt.Println("device", sh.Device, "of task", sh.Task, "holds", sh.Index)
	}
	_, err := s.Shards([]int{5, 6})
	fmt.Println(err)
	// Output:
	// device 0 of task 0 holds [0:2, 0:3]
	// device 1 of task 0 holds [0:2, 3:6]
	// device 2 of task 1 holds [2:4, 0:3]
	// device 3 of task 1 holds [2:4, 3:6]
	// P('data', 'model') splits dimension 0 2 ways ('data': 2), but its size is 5 (full shape (5, 6), ways (2, 2) should evenly divide the shape): pad it to 6, or split it over fewer axes
}
