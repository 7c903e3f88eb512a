package mesh

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
)

// TestShardsTileTheArray is a property: the blocks with replica number 0 cover
// every element once, each other block is a copy of one of them, and what tasks
// see adds up to the whole.
func TestShardsTileTheArray(t *testing.T) {
	lab.Clause(t, "C-SHD-9", "C-SHD-10", "C-SHD-11")
	rapid.Check(t, func(t *rapid.T) {
		m := drawMesh(t, "mesh")
		s := must(m.Shard(drawSpec(t, m, rapid.IntRange(0, 3).Draw(t, "rank"), "spec")))
		shape := drawShape(t, s)
		shards := must(s.Shards(shape))
		covered := make([]int, product(shape))
		firsts := map[string]int{}
		for _, sh := range shards {
			key := sh.Index.String()
			if sh.Replica != firsts[key] {
				t.Fatalf("device %d is replica %d of %s; want %d", sh.Device, sh.Replica, key, firsts[key])
			}
			firsts[key]++
			if sh.Replica > 0 {
				continue
			}
			for _, at := range elements(sh.Index, shape) {
				covered[at]++
			}
			if want := must(s.ShardShape(shape)); !slices.Equal(sh.Index.Shape(), want) {
				t.Fatalf("device %d holds %v; want shape %v", sh.Device, sh.Index, want)
			}
		}
		if at := slices.IndexFunc(covered, func(n int) bool { return n != 1 }); at >= 0 {
			t.Fatalf("%v of %v: element %d is covered %d times", s, shape, at, covered[at])
		}
		for _, task := range m.Tasks() {
			want := slices.DeleteFunc(slices.Clone(shards), func(sh Shard) bool { return sh.Task != task })
			if got := must(s.LocalShards(shape, task)); !slices.Equal(shardsText(got), shardsText(want)) {
				t.Fatalf("LocalShards(%d) = %v; want %v", task, shardsText(got), shardsText(want))
			}
		}
	})
}

// elements lists the row-major numbers of the elements of a block.
func elements(x Index, shape []int) []int {
	out := []int{0}
	for d, r := range x {
		var next []int
		for _, base := range out {
			for i := r.Start; i < r.Stop; i++ {
				next = append(next, base*shape[d]+i)
			}
		}
		out = next
	}
	return out
}

// TestLocalDataIsPlaced is a property: every task loads its part as
// Sharding.inLocal describes, and each device ends up with its slice.
func TestLocalDataIsPlaced(t *testing.T) {
	lab.Clause(t, "C-DATA-6", "C-DATA-7")
	rapid.Check(t, func(t *rapid.T) {
		m := drawMesh(t, "mesh")
		s := must(m.Shard(drawSpec(t, m, rapid.IntRange(0, 3).Draw(t, "rank"), "spec")))
		shape := drawShape(t, s)
		whole := ramp(int32s, shape...)
		for _, task := range m.Tasks() {
			size := must(s.LocalShape(shape, task))
			for d := range size {
				if rapid.Bool().Draw(t, "full") {
					size[d] = shape[d]
				}
			}
			a, err := FromLocal(Layout{Shape: shape, Sharding: s, Task: task}, localPart(whole, s, task, size))
			if err != nil {
				t.Fatalf("FromLocal(%v as %v) = %v", shape, size, err)
			}
			for _, sh := range a.Shards() {
				if got, want := must(a.Data(sh.Device)).Data, whole.Slice(sh.Index).Data; !slices.Equal(got, want) {
					t.Fatalf("device %d holds %v, want %v", sh.Device, got, want)
				}
			}
		}
	})
}

// localPart picks, dimension by dimension, the rows a task needs.
func localPart(whole Block, s *Sharding, task serry.TaskIndex, size []int) Block {
	shards := must(s.LocalShards(whole.Shape, task))
	picked := make([][]int, len(size))
	for d := range size {
		for i := range whole.Shape[d] {
			held := slices.ContainsFunc(shards, func(sh Shard) bool { return sh.Index[d].Start <= i && i < sh.Index[d].Stop })
			if held || size[d] == whole.Shape[d] {
				picked[d] = append(picked[d], i)
			}
		}
	}
	out := Block{Shape: size, Element: whole.Element}
	at := []int{0}
	for d := range size {
		var next []int
		for _, base := range at {
			for _, i := range picked[d] {
				next = append(next, base*whole.Shape[d]+i)
			}
		}
		at = next
	}
	for _, i := range at {
		out.Data = append(out.Data, whole.Data[i*4:i*4+4]...)
	}
	return out
}
