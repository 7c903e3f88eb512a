package mesh

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"pgregory.net/rapid"
)

// TestPlanMovesTheArray is a property: whatever the two meshes, specs, shape
// and element size, and whatever replicas are lost, applying the plan gives
// every destination device exactly the bytes of its slice, each written once,
// and asks no device for what it does not hold.
func TestPlanMovesTheArray(t *testing.T) {
	lab.Clause(t, "TC-ARR-15", "P-ARR-7")
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawMesh(t, "from"), drawMesh(t, "to")
		if rapid.Bool().Draw(t, "same mesh") {
			to = from
		}
		rank := rapid.IntRange(0, 3).Draw(t, "rank")
		r := Reshard{From: must(from.Shard(drawSpec(t, from, rank, "from"))), To: must(to.Shard(drawSpec(t, to, rank, "to"))),
			ElementBytes: rapid.SampledFrom([]int{1, 2, 3, 4, 8}).Draw(t, "bytes")}
		r.Shape = drawShape(t, r.From, r.To)
		r.Lost = drawLost(t, r)
		plan, err := r.Plan()
		if err != nil {
			t.Fatalf("Plan() = %v", err)
		}
		checkPlan(t, r, plan)
	})
}

// drawLost picks replicas to remove, but never all of a block.
func drawLost(t *rapid.T, r Reshard) []serry.DeviceID {
	var lost []serry.DeviceID
	left := map[string]int{}
	shards := must(r.From.Shards(r.Shape))
	for _, sh := range shards {
		left[sh.Index.String()]++
	}
	for _, sh := range shards {
		if key := sh.Index.String(); left[key] > 1 && rapid.Bool().Draw(t, "lose") {
			left[key]--
			lost = append(lost, sh.Device)
		}
	}
	return lost
}

type fataler interface{ Fatalf(string, ...any) }

func checkPlan(t fataler, r Reshard, plan *Plan) {
	whole := Block{Shape: r.Shape, Element: Element{"e", r.ElementBytes}, Data: make([]byte, product(r.Shape)*r.ElementBytes)}
	for i := range whole.Data {
		whole.Data[i] = byte(i*7 + i>>8)
	}
	source, target, written := map[serry.DeviceID][]byte{}, map[serry.DeviceID][]byte{}, map[serry.DeviceID][]byte{}
	for _, sh := range must(r.From.Shards(r.Shape)) {
		if !slices.Contains(r.Lost, sh.Device) {
			source[sh.Device] = whole.Slice(sh.Index).Data
		}
	}
	size := product(must(r.To.ShardShape(r.Shape))) * r.ElementBytes
	for _, id := range r.To.mesh.ids {
		target[id], written[id] = make([]byte, size), make([]byte, size)
	}
	ones := bytes.Repeat([]byte{1}, len(whole.Data))
	for _, m := range plan.Moves {
		if err := m.Apply(target[m.To], source[m.From]); err != nil {
			t.Fatalf("Apply(%+v) = %v", m, err)
		}
		once := make([]byte, size)
		if err := m.Apply(once, ones[:len(source[m.From])]); err != nil {
			t.Fatalf("Apply(%+v) = %v", m, err)
		}
		for i, n := range once {
			written[m.To][i] += n
		}
		if !slices.Contains(plan.Holders(m), m.From) {
			t.Fatalf("move %+v: the source is not among the holders", m)
		}
		if slices.Contains(plan.Holders(m), m.To) && m.From != m.To {
			t.Fatalf("move %+v: the destination holds the bytes itself", m)
		}
	}
	for _, sh := range must(r.To.Shards(r.Shape)) {
		if want := whole.Slice(sh.Index).Data; !bytes.Equal(target[sh.Device], want) {
			t.Fatalf("device %d has %v; want %v", sh.Device, target[sh.Device], want)
		}
		if i := slices.IndexFunc(written[sh.Device], func(n byte) bool { return n != 1 }); i >= 0 {
			t.Fatalf("byte %d of device %d is written %d times", i, sh.Device, written[sh.Device][i])
		}
	}
}

// TestPlanOfTasks is a property: what the tasks plan for themselves is the plan.
func TestPlanOfTasks(t *testing.T) {
	lab.Clause(t, "P-ARR-7")
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawMesh(t, "from"), drawMesh(t, "to")
		rank := rapid.IntRange(0, 3).Draw(t, "rank")
		r := Reshard{From: must(from.Shard(drawSpec(t, from, rank, "from"))), To: must(to.Shard(drawSpec(t, to, rank, "to"))), ElementBytes: 2}
		r.Shape = drawShape(t, r.From, r.To)
		r.Lost = drawLost(t, r)
		whole := must(r.Plan())
		owner := func(m *Mesh, id serry.DeviceID) serry.TaskIndex { return m.tasks[slices.Index(m.ids, id)] }
		for task := range serry.TaskIndex(5) {
			var want []string
			for _, m := range whole.Moves {
				if owner(from, m.From) == task || owner(to, m.To) == task {
					want = append(want, moveText(whole, m))
				}
			}
			var got []string
			own := must(r.PlanFor(task))
			for _, m := range own.Moves {
				got = append(got, moveText(own, m))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("PlanFor(%d) = %v; want %v", task, got, want)
			}
		}
	})
}

func moveText(p *Plan, m Move) string {
	return fmt.Sprint(m.From, m.FromOffset, m.To, m.ToOffset, *m.Pattern, p.Holders(m))
}

func TestReshardExamples(t *testing.T) {
	lab.Clause(t, "TC-ARR-15", "TC-ARR-16")
	line := must(New(Hosts(8, 4), axes("x", 8)...))
	back := must(New(host(2, 7, 6, 5, 4, 3, 2, 1, 0), axes("xy", 4, 2)...))
	mixed := must(New(host(2, 0, 7, 6, 2, 4, 3, 5, 1), axes("xyz", 2, 2, 2)...))
	even := must(New(host(2, 0, 2, 4, 6), axes("x", 4)...))
	next := must(New(host(2, 8, 9), axes("x", 2)...))
	first := must(New(host(2, 0, 1), axes("x", 2)...))
	half := must(New(host(2, 1, 8), axes("x", 2)...))
	for _, c := range []struct {
		name     string
		from, to *Mesh
		a, b     Spec
		remote   int // ranges that leave their device
	}{
		{"P(x) to P(x, y)", line, back, spec("x"), spec("x", "y"), 16},
		{"P() to P(x, y)", line, back, spec(), spec("x", "y"), 0},
		{"P(x) to P()", line, back, spec("x"), spec(), 56},
		{"P() to P()", line, back, spec(), spec(), 0},
		{"P(x) to P(x, y) mixed", line, mixed, spec("x"), spec("x", "y"), 28},
		{"four devices to eight", even, line, spec("x"), spec("x"), 4},
		{"task to task", first, next, spec("x"), spec("x"), 2},
		{"replicated task to task", first, next, spec(), spec(), 2},
		{"half local, half remote", first, half, spec("x"), spec("x"), 2},
	} {
		r := Reshard{Shape: []int{8, 8}, ElementBytes: 4, From: must(c.from.Shard(c.a)), To: must(c.to.Shard(c.b))}
		plan := must(r.Plan())
		checkPlan(t, r, plan)
		remote := 0
		for _, m := range plan.Moves {
			if m.From != m.To {
				remote++
			}
		}
		if remote != c.remote {
			t.Errorf("%s: %d ranges leave their device; want %d", c.name, remote, c.remote)
		}
	}
}

func TestPlanIsBalanced(t *testing.T) {
	lab.Clause(t, "P-RMP-4")
	// Eight holders of everything, twenty devices elsewhere that want it.
	from := must(must(New(Hosts(8, 8), axes("x", 8)...)).Shard(spec()))
	far := make([]int, 20)
	for i := range far {
		far[i] = 100 + i
	}
	to := must(must(New(host(1, far...), axes("x", 20)...)).Shard(spec()))
	plan := must(Reshard{Shape: []int{10}, ElementBytes: 1, From: from, To: to, Lost: []serry.DeviceID{3}}.Plan())
	sent := map[serry.DeviceID]int{}
	for _, m := range plan.Moves {
		sent[m.From] += m.Pattern.Bytes()
	}
	if sent[3] != 0 || len(sent) != 7 {
		t.Fatalf("bytes sent %v; want them from the seven devices left", sent)
	}
	for id, n := range sent {
		if n != 20 && n != 30 {
			t.Errorf("device %d sends %d bytes; want 20 or 30 of 200", id, n)
		}
	}
	// A destination reads from its own task where it can.
	near := must(must(New([]Device{{ID: 20, Task: 5}, {ID: 21, Task: 5}, {ID: 22, Task: 5}}, axes("x", 3)...)).Shard(spec()))
	for _, m := range must(Reshard{Shape: []int{10}, ElementBytes: 1, From: from, To: near}.Plan()).Moves {
		if m.From != 5 {
			t.Errorf("device %d of task 5 reads from device %d; want device 5 of its own task", m.To, m.From)
		}
	}
}

// TestHoldersShareTheLoad is a property: where all requests come from other
// tasks, the holders of a block differ by at most one range.
func TestHoldersShareTheLoad(t *testing.T) {
	lab.Clause(t, "P-RMP-4")
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawMesh(t, "from"), drawMesh(t, "to")
		for i := range to.ids { // elsewhere
			to.ids[i] += 1000
			to.tasks[i] += 1000
		}
		rank := rapid.IntRange(0, 3).Draw(t, "rank")
		r := Reshard{From: must(from.Shard(drawSpec(t, from, rank, "from"))), To: must(to.Shard(drawSpec(t, to, rank, "to"))), ElementBytes: 1}
		r.Shape = drawShape(t, r.From, r.To)
		r.Lost = drawLost(t, r)
		plan := must(r.Plan())
		sent, largest := map[serry.DeviceID]int{}, 0
		for _, m := range plan.Moves {
			sent[m.From] += m.Pattern.Bytes()
			largest = max(largest, m.Pattern.Bytes())
		}
		for _, m := range plan.Moves {
			for _, other := range plan.Holders(m) {
				if sent[m.From]-sent[other] > largest {
					t.Fatalf("device %d sends %d bytes, device %d with the same slice %d; ranges have at most %d",
						m.From, sent[m.From], other, sent[other], largest)
				}
			}
		}
	})
}

func TestPlanRefuses(t *testing.T) {
	lab.Clause(t, "P-ARR-7", "P-RMP-11")
	m := must(Make(Hosts(8, 1), axes("xy", 4, 2)...))
	s := must(m.Shard(spec("x")))
	good := Reshard{Shape: []int{8, 2}, ElementBytes: 4, From: s, To: s}
	for name, c := range map[string]struct {
		change func(*Reshard)
		kind   error
		words  []string
	}{
		"no sharding":     {func(r *Reshard) { r.To = nil }, ErrInvalid, nil},
		"no element size": {func(r *Reshard) { r.ElementBytes = 0 }, ErrInvalid, []string{"0 bytes"}},
		"indivisible":     {func(r *Reshard) { r.Shape = []int{6, 2} }, ErrIndivisible, []string{"dimension 0"}},
		"abstract":        {func(r *Reshard) { r.To = must(must(Abstract(nil, m.Axes()...)).Shard(spec("x"))) }, ErrAbstract, nil},
		"unreduced":       {func(r *Reshard) { r.From = must(m.Shard(Spec{Unreduced: []string{"x"}})) }, ErrUnsupported, []string{"'x'"}},
		"lost":            {func(r *Reshard) { r.Lost = []serry.DeviceID{2, 3} }, ErrNoHolder, []string{"[2:4, 0:2]", "device 2"}},
	} {
		r := good
		c.change(&r)
		_, err := r.Plan()
		wantError(t, name, err, c.kind, c.words...)
		_, err = r.PlanFor(0)
		wantError(t, name+" for a task", err, c.kind)
	}
	good.Lost, good.Partial = []serry.DeviceID{2, 3}, true
	plan := must(good.Plan())
	want := []string{"{2 [2:4, 0:2]}", "{3 [2:4, 0:2]}"}
	if got := []string{fmt.Sprint(plan.Missing[0]), fmt.Sprint(plan.Missing[1])}; !slices.Equal(got, want) || len(plan.Moves) != 6 {
		t.Errorf("partial plan has %d moves, misses %v; want 6 and %v", len(plan.Moves), got, want)
	}
	big := must(New(Hosts(4096, 512), axes("x", 4096)...))
	wide := Reshard{Shape: []int{4096, 4096}, ElementBytes: 1, From: must(big.Shard(spec("x"))), To: must(big.Shard(spec("", "x")))}
	_, err := wide.Plan()
	wantError(t, "a plan of 16 million ranges", err, ErrInvalid, "16777216", "PlanFor")
	if plan := must(wide.PlanFor(7)); len(plan.Moves) != 2*8*4096-64 {
		t.Errorf("one task has %d of them; want %d", len(plan.Moves), 2*8*4096-64)
	}
	if err := (Move{Pattern: &Pattern{Run: 9}}).Apply(make([]byte, 8), make([]byte, 9)); err == nil {
		t.Errorf("Apply beyond the buffer = nil; want an error")
	}
}

func TestPatternsAreMerged(t *testing.T) {
	lab.Clause(t, "P-ARR-7")
	for _, c := range []struct {
		extent, from, to []int
		want             Pattern
	}{
		{[]int{4, 6}, []int{4, 6}, []int{4, 6}, Pattern{Run: 48}},
		{[]int{4, 6}, []int{8, 6}, []int{4, 6}, Pattern{Run: 48}},
		{[]int{4, 3}, []int{4, 6}, []int{4, 3}, Pattern{6, []int{4}, []int{12}, []int{6}}},
		{[]int{2, 4, 3}, []int{2, 4, 6}, []int{2, 4, 3}, Pattern{6, []int{8}, []int{12}, []int{6}}},
		{[]int{2, 4, 3}, []int{2, 5, 6}, []int{2, 4, 3}, Pattern{6, []int{2, 4}, []int{60, 12}, []int{24, 6}}},
		{nil, nil, nil, Pattern{Run: 2}},
	} {
		got := newPattern(c.extent, c.from, c.to, 2)
		if got.Run != c.want.Run || !slices.Equal(got.Counts, c.want.Counts) ||
			!slices.Equal(got.FromStrides, c.want.FromStrides) || !slices.Equal(got.ToStrides, c.want.ToStrides) {
			t.Errorf("newPattern(%v, %v, %v) = %+v; want %+v", c.extent, c.from, c.to, *got, c.want)
		}
	}
}

func ExampleReshard_Plan() {
	m, _ := New(Hosts(4, 2), Axis{Name: "x", Size: 4})
	rows, _ := m.Shard(P(Dim{"x"}))
	columns, _ := m.Shard(P(nil, Dim{"x"}))
	plan, _ := Reshard{Shape: []int{4, 4}, ElementBytes: 4, From: rows, To: columns}.Plan()
	slices.SortFunc(plan.Moves, func(a, b Move) int { return cmp.Or(cmp.Compare(a.To, b.To), cmp.Compare(a.From, b.From)) })
	for _, m := range plan.Moves[:4] {
		fmt.Printf("%d@%d -> %d@%d: %d bytes\n", m.From, m.FromOffset, m.To, m.ToOffset, m.Pattern.Bytes())
	}
	// Output:
	// 0@0 -> 0@0: 4 bytes
	// 1@0 -> 0@4: 4 bytes
	// 2@0 -> 0@8: 4 bytes
	// 3@0 -> 0@12: 4 bytes
}

func BenchmarkPlan(b *testing.B) {
	from := must(New(Hosts(4096, 512), axes("xyz", 16, 16, 16)...))
	to := must(New(host(8, reversed(count(4096))...), axes("xyz", 16, 16, 16)...))
	for _, c := range []struct {
		name string
		a, b Spec
	}{
		{"moves=4k", spec("x", "y", "z"), spec("z", "x", "y")},
		{"moves=64k", spec("xy", "z"), spec("x", "yz")},
		{"moves=1M", spec("xy", "z", ""), spec("", "z", "xy")},
	} {
		r := Reshard{Shape: []int{4096, 4096, 4096}, ElementBytes: 2, From: must(from.Shard(c.a)), To: must(to.Shard(c.b))}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = len(must(r.Plan()).Moves)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/range")
		})
	}
}

func BenchmarkIndexMap(b *testing.B) {
	m := must(New(Hosts(65536, 8192), axes("xyz", 64, 32, 32)...))
	s := must(m.Shard(spec("x", "yz")))
	b.Run("shards", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(s.Shards([]int{8192, 8192, 128}))
		}
	})
	b.Run("map", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			must(s.IndexMap([]int{8192, 8192, 128}))
		}
	})
}
