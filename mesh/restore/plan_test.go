package restore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/topo"
)

// The job of EX-RMP-5: four hosts with two GPUs, a mesh of 4x2, one array W of
// 8x4 float32 in blocks of 2x2. Device k of the mesh has block k.

func blockOf(k int) mesh.Index {
	row, column := k/2*2, k%2*2
	return block(row, row+2, column, column+2)
}

// holds makes the index of a task that wrote the given blocks as task t.
func holds(t serry.TaskIndex, blocks ...int) *Inventory {
	x := &Inventory{Format: format, Step: 100, Task: t, Arrays: []StoredArray{{Name: "W", Shape: []int{8, 4}, Type: "float32"}}}
	for _, k := range blocks {
		x.Arrays[0].Shards = append(x.Arrays[0].Shards, StoredShard{Index: blockOf(k), File: fmt.Sprintf("W.%d", k), Bytes: 16, Digest: fmt.Sprintf("sha256:%d", k)})
	}
	return x
}

// wants asks for block k on device k.
func wants(devices int) []Array {
	w := Array{Name: "W", Shape: []int{8, 4}, Type: "float32"}
	for k := range devices {
		w.Parts = append(w.Parts, Part{Device: serry.DeviceID(k), Index: blockOf(k)})
	}
	return []Array{w}
}

func savedJob() *Manifest { return &Manifest{Mesh: flat(4, 2), Tasks: hosts("a", "b", "c", "d")} }

// replacedHost is the job after b was replaced by e and ranks were given out by
// name: a, c, d, e.
func replacedHost(store *Inventory) Input {
	records := hosts("a", "c", "d", "e")
	return Input{
		Step: 100, Saved: savedJob(), Arrays: wants(8), Store: store,
		Live: []Live{
			{Record: records[0], Held: holds(0, 0, 1)},
			{Record: records[1], Held: holds(2, 4, 5)},
			{Record: records[2], Held: holds(3, 6, 7)},
			{Record: records[3]},
		},
	}
}

func plan(t *testing.T, in Input) *Plan {
	t.Helper()
	p, err := NewPlan(in)
	if err != nil {
		t.Fatalf("NewPlan() = %v", err)
	}
	return p
}

// moves prints the reads that are not local as "device<from:block", and checks
// that each reads what its device wants.
func moves(t *testing.T, p *Plan) string {
	t.Helper()
	var texts []string
	for _, r := range p.Reads {
		if !slices.Equal(r.Index, blockOf(int(r.Device))) || !slices.Equal(r.Shard.Index, r.Index) {
			t.Errorf("device %d reads %v out of %v; want its block %v", r.Device, r.Index, r.Shard.Index, blockOf(int(r.Device)))
		}
		if !r.Local() {
			texts = append(texts, fmt.Sprintf("%d<%d:%s", r.Device, r.From, r.Shard.File))
		}
	}
	return strings.Join(texts, " ")
}

func TestPlanSeesShuffledRanks(t *testing.T) {
	lab.Clause(t, "TC-RMP-19", "EX-RMP-5", "P-RMP-12", "P-RMP-2", "P-RMP-4")
	in := replacedHost(holds(0, 0, 1, 2, 3, 4, 5, 6, 7))
	p := plan(t, in)
	// Task 1 (c) reads rows 2:4 from the store, 2 (d) rows 4:6 from c, 3 (e)
	// rows 6:8 from d.
	const want = "2<-1:W.2 3<-1:W.3 4<1:W.4 5<1:W.5 6<2:W.6 7<2:W.7"
	if got := moves(t, p); got != want || len(p.Missing) != 0 {
		t.Errorf("plan moves %s, misses %v; want %s", got, p.Missing, want)
	}
	if got, want := p.cost(), (cost{Local: 2, Peer: 4, Store: 2, PeerBytes: 64, StoreBytes: 32}); got != want {
		t.Errorf("cost() = %v; want %v", got, want)
	}
}

func TestPlanExplains(t *testing.T) {
	lab.Clause(t, "P-RMP-10", "P-RMP-12")
	got := plan(t, replacedHost(nil)).Explain()
	want := `step 100 cannot be restored
  task 1 was task 2 (same device), on host c
  task 2 was task 3 (same device), on host d
  task 3 is new, on host e
  task 1 of then is gone, on host b
  2 reads local, 4 from peers (64 bytes), 0 from the store (0 bytes)
  nobody holds W[2:4, 0:2], which device 2 needs
  nobody holds W[2:4, 2:4], which device 3 needs
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Explain() (-want +got)\n%s", diff)
	}
}

func TestPlanFor(t *testing.T) {
	lab.Clause(t, "P-RMP-10")
	p := plan(t, replacedHost(holds(0, 2, 3)))
	reads, serves := p.For(1)
	if len(reads) != 2 || reads[0].From != FromStore || len(serves) != 2 || serves[0].Task != 2 {
		t.Errorf("For(1) = %v, %v; want two reads from the store and two serves to task 2", reads, serves)
	}
}

// A plan is for all tasks, whatever number of them there is now.
func TestPlanIsElastic(t *testing.T) {
	lab.Clause(t, "P-RMP-6", "C-RMP-11", "W-TOP-34")
	records := hosts("d", "a") // two hosts are left, each wants half of the rows on either device
	in := Input{Step: 100, Saved: savedJob(), Live: []Live{
		{Record: records[0], Held: holds(3, 6, 7, 4, 5)}, // d holds a copy of c's blocks too
		{Record: records[1], Held: holds(0, 0, 1, 2, 3)},
	}, Arrays: []Array{{Name: "W", Shape: []int{8, 4}, Type: "float32", Parts: []Part{
		{0, block(0, 4, 0, 2)}, {1, block(0, 4, 2, 4)}, {2, block(4, 8, 0, 2)}, {3, block(4, 8, 2, 4)},
	}}}}
	p := plan(t, in)
	if len(p.Missing) != 0 || len(p.Reads) != 8 || p.cost().Peer != 8 {
		t.Fatalf("plan = %v, missing %v; want eight blocks from the peer", p.cost(), p.Missing)
	}
	checkCovered(t, in, p)
	if !strings.Contains(p.Explain(), "4 tasks then, 2 now") {
		t.Errorf("Explain() = %s; want the change of size in it", p.Explain())
	}
}

// A failer is a test, of package testing or rapid.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkCovered counts how often each element that a device wants is read for it:
// once.
func checkCovered(t failer, in Input, p *Plan) {
	t.Helper()
	type cell struct {
		device serry.DeviceID
		array  string
		i, j   int
	}
	read := map[cell]int{}
	each := func(b mesh.Index, f func(i, j int)) {
		for i := b[0].Start; i < b[0].Stop; i++ {
			for j := b[1].Start; j < b[1].Stop; j++ {
				f(i, j)
			}
		}
	}
	for _, r := range p.Reads {
		if _, ok := r.Shard.Index.Overlap(r.Index); !ok || len(r.Index.Minus(must(r.Shard.Index.Overlap(r.Index)))) != 0 {
			t.Fatalf("%v is read out of a shard with %v", r.Index, r.Shard.Index)
		}
		each(r.Index, func(i, j int) { read[cell{r.Device, r.Array, i, j}]++ })
	}
	for _, m := range p.Missing {
		each(m.Index, func(i, j int) { read[cell{m.Device, m.Array, i, j}]++ })
	}
	total := 0
	for _, a := range in.Arrays {
		for _, part := range a.Parts {
			each(part.Index, func(i, j int) {
				total++
				if n := read[cell{part.Device, a.Name, i, j}]; n != 1 {
					t.Fatalf("device %d gets %s[%d, %d] %d times", part.Device, a.Name, i, j, n)
				}
			})
		}
	}
	if total != len(read) {
		t.Fatalf("%d elements are read; %d were asked for", len(read), total)
	}
}

func must(b mesh.Index, _ bool) mesh.Index { return b }

// The reads of any plan together are exactly what was asked for, out of shards
// that have it, and what is missing is held by nobody.
func TestPlanCovers(t *testing.T) {
	lab.Clause(t, "P-RMP-4", "P-RMP-6")
	rapid.Check(t, func(t *rapid.T) {
		index := func(name string) mesh.Index {
			i, j := rapid.IntRange(0, 6).Draw(t, name), rapid.IntRange(0, 6).Draw(t, name)
			return block(i, rapid.IntRange(i, 6).Draw(t, name), j, rapid.IntRange(j, 6).Draw(t, name))
		}
		in := Input{Step: 100}
		held := map[[2]int]bool{}
		hold := func(task serry.TaskIndex) *Inventory {
			x := &Inventory{Step: 100, Arrays: []StoredArray{{Name: "W", Shape: []int{6, 6}, Type: "int8"}}}
			for range rapid.IntRange(0, 4).Draw(t, "shards") {
				b := index("held")
				x.Arrays[0].Shards = append(x.Arrays[0].Shards, StoredShard{Index: b, File: "f", Bytes: int64(b.Elements()), Digest: b.String()})
				for i := b[0].Start; i < b[0].Stop; i++ {
					for j := b[1].Start; j < b[1].Stop; j++ {
						held[[2]int{i, j}] = true
					}
				}
			}
			return x
		}
		w := Array{Name: "W", Shape: []int{6, 6}, Type: "int8"}
		for task := range serry.TaskIndex(rapid.IntRange(1, 3).Draw(t, "tasks")) {
			in.Live = append(in.Live, Live{Record: host(task, fmt.Sprint(task)), Held: hold(task)})
			w.Parts = append(w.Parts, Part{Device: serry.DeviceID(2 * task), Index: index("wanted")})
		}
		if rapid.Bool().Draw(t, "store") {
			in.Store = hold(FromStore)
		}
		in.Arrays = []Array{w}
		p, err := NewPlan(in)
		if err != nil {
			t.Fatal(err)
		}
		checkCovered(t, in, p)
		for _, m := range p.Missing {
			for i := m.Index[0].Start; i < m.Index[0].Stop; i++ {
				for j := m.Index[1].Start; j < m.Index[1].Stop; j++ {
					if held[[2]int{i, j}] {
						t.Fatalf("%v is called missing, but [%d, %d] is held", m, i, j)
					}
				}
			}
		}
		slices.Reverse(in.Live)
		if again, err := NewPlan(in); err != nil || cmp.Diff(p.Reads, again.Reads) != "" {
			t.Fatalf("the order of the input matters: %v, %v", err, cmp.Diff(p.Reads, again.Reads))
		}
	})
}

// swapReplicas turns the order of a mesh around along one axis, as when the
// replicas of a job change places.
func swapReplicas(m Mesh, axis int) Mesh {
	out := m
	out.Devices = slices.Clone(m.Devices)
	for i := range m.Devices {
		at := m.coord(i)
		at[axis] = m.Shape[axis] - 1 - at[axis]
		j := 0
		for k, x := range at {
			j = j*m.Shape[k] + x
		}
		out.Devices[j] = m.Devices[i]
	}
	return out
}

func TestSwapReplicas(t *testing.T) {
	lab.Clause(t, "TC-RMP-07")
	tests := []struct {
		shape []int
		axis  int
		want  string
	}{
		{[]int{1, 2}, 0, "[0 1]"}, {[]int{2, 2}, 0, "[2 3 0 1]"}, {[]int{3, 2}, 0, "[4 5 2 3 0 1]"},
		{[]int{4, 2}, 0, "[6 7 4 5 2 3 0 1]"}, {[]int{2, 1}, 1, "[0 1]"}, {[]int{2, 2}, 1, "[1 0 3 2]"},
		{[]int{2, 3}, 1, "[2 1 0 5 4 3]"}, {[]int{2, 4}, 1, "[3 2 1 0 7 6 5 4]"},
	}
	for _, test := range tests {
		if got := fmt.Sprint(swapReplicas(flat(test.shape...), test.axis).Devices); got != test.want {
			t.Errorf("swap of %v along axis %d = %s; want %s", test.shape, test.axis, got, test.want)
		}
	}
}

// After a swap every task has data of another place in the mesh. With leave to
// read into the saved mesh all of it is read where it is.
func TestPlanPermutes(t *testing.T) {
	lab.Clause(t, "P-RMP-4", "C-RMP-10", "TC-RMP-07")
	target := swapReplicas(flat(4, 2), 0) // position k is now device 7-k, by rows
	in := Input{Step: 100, Saved: savedJob()}
	for i, r := range hosts("a", "b", "c", "d") {
		in.Live = append(in.Live, Live{Record: r, Held: holds(serry.TaskIndex(i), 2*i, 2*i+1)})
	}
	w := Array{Name: "W", Shape: []int{8, 4}, Type: "float32"}
	for k, id := range target.Devices {
		w.Parts = append(w.Parts, Part{Device: id, Index: blockOf(k)})
	}
	in.Arrays = []Array{w}
	if p := plan(t, in); p.Restore != nil || p.cost().Peer != 8 {
		t.Errorf("without a target = %v, mesh %v; want all eight blocks from peers", p.cost(), p.Restore)
	}
	in.Target = &target
	p := plan(t, in)
	if p.Restore == nil || !slices.Equal(p.Restore.Devices, numbers(8)) || p.cost() != (cost{Local: 8}) {
		t.Fatalf("with a target = %v, mesh %v; want all local in the saved mesh", p.cost(), p.Restore)
	}
	if got := moves(t, p); got != "" { // every device reads the block it wrote
		t.Errorf("with a target, moves %s; want none", got)
	}

	in.Live[2].Held = holds(2, 4) // c has lost a block: no permutation makes that local
	in.Store = holds(0, 5)
	if p := plan(t, in); p.Restore != nil || len(p.Missing) != 0 || p.cost().Store != 1 {
		t.Errorf("with a block lost = %v, mesh %v; want reads in place", p.cost(), p.Restore)
	}
	for i := range 4 {
		in.Live[i].Held = holds(serry.TaskIndex(i), 2*i, 2*i+1)
	}
	as, still := flat(4, 2), in
	still.Target, still.Arrays = &as, wants(8)
	if p := plan(t, still); p.Restore != nil || p.cost() != (cost{Local: 8}) {
		t.Errorf("with nothing moved = %v, mesh %v; want reads in place", p.cost(), p.Restore)
	}
	other := flat(4, 2) // as many devices, but two of them newcomers
	other.Devices[6], other.Devices[7] = 8, 9
	grown := in
	grown.Target, grown.Arrays = &other, wants(6)
	grown.Live = append(slices.Clone(in.Live), Live{Record: host(4, "e")})
	if p := plan(t, grown); p.Restore != nil {
		t.Errorf("onto other devices the mesh is %v; want reads in place", p.Restore)
	}
	same := flat(4, 2)
	in = Input{Step: 100, Saved: savedJob(), Live: in.Live[:2], Target: &same, Arrays: []Array{{Name: "W", Shape: []int{8, 4}, Type: "float32"}}}
	if p := plan(t, in); p.Restore != nil {
		t.Errorf("with two hosts of four the mesh is %v; want none", p.Restore)
	}
}

func TestPlanBalances(t *testing.T) {
	lab.Clause(t, "P-RMP-4")
	zero, one := 0, 1
	in := Input{Step: 100, Arrays: wants(8)}
	for i, r := range hosts("a", "b", "c", "e") {
		l := Live{Record: r, Held: holds(0, 0, 1, 2, 3, 4, 5, 6, 7)}
		if i == 3 {
			l.Held = nil
		}
		l.Record.Partition = &zero
		if i >= 2 {
			l.Record.Partition = &one
		}
		in.Live = append(in.Live, l)
	}
	// All copies are equal: the first block comes from the same partition, the
	// second from the lowest that has given nothing yet.
	if got, want := moves(t, plan(t, in)), "6<2:W.6 7<0:W.7"; got != want {
		t.Errorf("plan moves %s; want %s", got, want)
	}
}

// A peer that holds just what is asked for is preferred to one that holds more.
func TestPlanPrefersExactShards(t *testing.T) {
	lab.Clause(t, "P-RMP-4")
	whole := holds(0, 0)
	whole.Arrays[0].Shards[0].Index = block(0, 8, 0, 4)
	in := Input{Step: 100, Arrays: wants(2), Live: []Live{{Record: host(0, "a")}, {Record: host(1, "b"), Held: whole}, {Record: host(2, "c"), Held: holds(2, 0, 1)}}}
	if got, want := moves(t, plan(t, in)), "0<2:W.0 1<2:W.1"; got != want {
		t.Errorf("plan moves %s; want %s", got, want)
	}
	in.Live = in.Live[:2]
	if p := plan(t, in); len(p.Missing) != 0 || p.Reads[0].From != 1 || p.Reads[0].Bytes != 16*4/32 {
		t.Errorf("plan = %+v; want both blocks cut out of the one shard", p.Reads)
	}
}

func TestPlanWithoutCorruptCopies(t *testing.T) {
	lab.Clause(t, "P-RMP-7", "P-RMP-11")
	in := replacedHost(holds(0, 2, 3, 4))
	in.Corrupt = []Holding{{Task: 1, Array: "W", Index: blockOf(4)}}
	if got, want := moves(t, plan(t, in)), "2<-1:W.2 3<-1:W.3 4<-1:W.4 5<1:W.5 6<2:W.6 7<2:W.7"; got != want {
		t.Errorf("plan moves %s; want block 4 from the store: %s", got, want)
	}
	in.Corrupt = append(in.Corrupt, Holding{Task: FromStore, Array: "W", Index: blockOf(4)})
	if p := plan(t, in); len(p.Missing) != 1 || p.Missing[0].String() != "nobody holds W[4:6, 0:2], which device 4 needs" {
		t.Errorf("plan without any good copy misses %v; want block 4", p.Missing)
	}
}

func TestPlanRefuses(t *testing.T) {
	lab.Clause(t, "P-RMP-11")
	tests := []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"index of another step", func(in *Input) { in.Live[0].Held.Step = 99 }, "index of task 0: it is of step 99, not of 100"},
		{"index of another writer", func(in *Input) { in.Live[1].Held.Task = 1 }, "index of task 1: it was written as task 1"},
		{"shapes that differ", func(in *Input) { in.Live[2].Held.Arrays[0].Shape = []int{8, 8} }, "index of task 2: W: float32[8 8], but float32[8 4] at task 0"},
		{"another type is asked for", func(in *Input) { in.Arrays[0].Type = "int8" }, "float32[8 4] is held, int8[8 4] is asked for"},
		{"replicas that differ", func(in *Input) {
			in.Store = holds(0, 0)
			in.Store.Arrays[0].Shards[0].Digest = "sha256:ff"
		}, "index of task 0: W[0:2, 0:2]: digest sha256:0, but sha256:ff at the store"},
		{"a shard outside its array", func(in *Input) { in.Live[0].Held.Arrays[0].Shards[0].Index = block(0, 9, 0, 1) }, "W[0:9, 0:1]: not within [8 4]"},
		{"device of nobody", func(in *Input) { in.Arrays[0].Parts[0].Device = 77 }, "device 77, which no live task owns"},
		{"part outside its array", func(in *Input) { in.Arrays[0].Parts[0].Index = block(7, 9, 0, 1) }, "W[7:9, 0:1] is asked for"},
		{"array twice", func(in *Input) { in.Arrays = append(in.Arrays, in.Arrays[0]) }, `"W" is asked for twice`},
		{"task twice", func(in *Input) { in.Live = append(in.Live, Live{Record: topo.TaskRecord{Task: 3}}) }, "two live tasks with number 3"},
		{"device twice", func(in *Input) { in.Live[3].Record.Devices[0].ID = 0 }, "device 0 belongs to task 0 and to task 3"},
		{"uuid twice", func(in *Input) { in.Live[3].Record.Devices[0].UUID = "GPU-a-0" }, "tasks 0 and 3 both claim"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := replacedHost(nil)
			test.change(&in)
			if _, err := NewPlan(in); !containsText(err, test.want) {
				t.Errorf("NewPlan() = %v; want %q", err, test.want)
			}
		})
	}
}

func TestPlanOfScalars(t *testing.T) {
	lab.Clause(t, "P-RMP-2")
	in := Input{Step: 100, Live: []Live{{Record: host(0, "a"), Held: &Inventory{Step: 100, Arrays: []StoredArray{
		{Name: "step", Type: "int64", Shards: []StoredShard{{File: "s", Bytes: 8, Digest: "d"}}},
		{Name: "empty", Type: "int64", Shape: []int{0, 4}},
	}}}, {Record: host(1, "b")}}, Arrays: []Array{
		{Name: "step", Type: "int64", Parts: []Part{{Device: 0}, {Device: 2}}},
		{Name: "empty", Type: "int64", Shape: []int{0, 4}, Parts: []Part{{0, block(0, 0, 0, 4)}}},
	}}
	if p := plan(t, in); len(p.Missing) != 0 || p.cost() != (cost{Local: 1, Peer: 1, PeerBytes: 8}) {
		t.Errorf("plan of a scalar and an empty array = %v, missing %v; want one local and one from the peer", p.cost(), p.Missing)
	}
}

func TestShare(t *testing.T) {
	lab.Clause(t, "P-RMP-4")
	tests := []struct {
		bytes       int64
		part, whole int
		want        int64
	}{
		{16, 1, 4, 4}, {16, 4, 4, 16}, {1 << 62, 1 << 61, 1 << 62, 1 << 61}, {7, 0, 0, 7}, {0, 1, 2, 0},
	}
	for _, test := range tests {
		if got := share(test.bytes, test.part, test.whole); got != test.want {
			t.Errorf("share(%d, %d, %d) = %d; want %d", test.bytes, test.part, test.whole, got, test.want)
		}
	}
}

func ExampleNewPlan() {
	record := func(t serry.TaskIndex, machine string, d serry.DeviceID) topo.TaskRecord {
		return topo.TaskRecord{Task: t, MachineID: machine, Devices: []topo.DeviceRecord{{ID: d, Platform: "cuda", UUID: "GPU-" + machine}}}
	}
	half := func(i int) mesh.Index { return block(4*i, 4*i+4) }
	index := func(t serry.TaskIndex, i int) *Inventory {
		return &Inventory{Step: 7, Task: t, Arrays: []StoredArray{{Name: "w", Shape: []int{8}, Type: "float32",
			Shards: []StoredShard{{Index: half(i), File: "w", Bytes: 16, Digest: fmt.Sprint("crc32c:", i)}}}}}
	}
	plan, err := NewPlan(Input{
		Step:  7,
		Saved: &Manifest{Mesh: Mesh{Shape: []int{2}, AxisNames: []string{"x"}, Devices: []serry.DeviceID{0, 1}}, Tasks: []topo.TaskRecord{record(0, "a", 0), record(1, "b", 1)}},
		Live: []Live{ // the ranks have changed places
			{Record: record(0, "b", 0), Held: index(1, 1)},
			{Record: record(1, "a", 1), Held: index(0, 0)},
		},
		Arrays: []Array{{Name: "w", Shape: []int{8}, Type: "float32", Parts: []Part{{0, half(0)}, {1, half(1)}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(plan.Explain())
	// Output:
	// step 7 can be restored
	//   task 0 was task 1 (same device), on machine b
	//   task 1 was task 0 (same device), on machine a
	//   0 reads local, 2 from peers (32 bytes), 0 from the store (0 bytes)
}
