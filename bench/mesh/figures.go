package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
)

// A figure is one thing to measure.
type figure struct {
	name      string
	ask       map[string]any // what JAX is asked, or nil
	run       func() (result, error)
	wantRatio float64
	wantTime  time.Duration
}

// A result is how long one run of serry took and what it computed.
type result struct {
	took time.Duration
	sum  int64
	note string
}

func figures() []figure {
	large := []int{64, 32, 32}
	return []figure{
		indexMap("index map, 65,536 devices, split", "map", large, []any{"x", []string{"y", "z"}}),
		indexMap("index map, 65,536 devices, replicas", "map", large, []any{"x", "y"}),
		asList(indexMap("the same as a list of shards", "map", large, []any{"x", []string{"y", "z"}})),
		indexMap("part of one task, 65,536 devices", "local", large, []any{"x", []string{"y", "z"}}),
		deviceOrder([]int{16, 16, 16}, []int{16, 256}),
		reshard("reshard plan, 4,096 to 4,096 devices, blocks", mesh.P(dim("x"), dim("y"), dim("z")), mesh.P(dim("z"), dim("x"), dim("y"))),
		reshard("reshard plan, 4,096 to 4,096 devices, planes", mesh.P(dim("x", "y"), dim("z")), mesh.P(dim("x"), dim("y", "z"))),
		reshard("reshard plan, 4,096 to 4,096 devices, replicas", mesh.P(dim("x"), dim("y")), mesh.P(nil, dim("x"), dim("z"))),
		unclaimed(reshard("reshard plan, 4,096 to 4,096 devices, a million ranges", mesh.P(dim("x", "y"), dim("z")), mesh.P(nil, dim("z"), dim("x", "y")))),
	}
}

// unclaimed shows a figure that nothing is promised about.
func unclaimed(f figure) figure {
	f.wantRatio, f.wantTime = 0, 0
	return f
}

func dim(names ...string) mesh.Dim { return names }

func axes(sizes []int) []mesh.Axis {
	out := make([]mesh.Axis, len(sizes))
	for i, n := range sizes {
		out[i] = mesh.Axis{Name: string(rune('x' + i)), Size: n}
	}
	return out
}

// size multiplies the sizes.
func size(sizes []int) int {
	n := 1
	for _, s := range sizes {
		n *= s
	}
	return n
}

// indexMap measures which slice of a large array each device holds: all devices, or those of one task.
func indexMap(name, what string, sizes []int, entries []any) figure {
	shape := []int{8192, 8192, 128}
	f := figure{name: name, wantRatio: 50,
		ask: map[string]any{"what": what, "sizes": sizes, "names": []string{"x", "y", "z"}, "spec": entries, "shape": shape}}
	f.run = func() (result, error) {
		s, err := f.sharding()
		if err != nil {
			return result{}, err
		}
		runtime.GC()
		start := time.Now()
		if what == "local" {
			shards, err := s.LocalShards(shape, 5)
			return result{took: time.Since(start), sum: total(shards)}, err
		}
		m, err := s.IndexMap(shape)
		took := time.Since(start)
		if err != nil {
			return result{}, err
		}
		var sum int64
		for at := range m.Len() {
			for k := range shape {
				sum += weigh(m.Device(at), k, m.Range(at, k))
			}
		}
		return result{took: took, sum: sum}, nil
	}
	return f
}

// asList measures the map of a figure written out as one shard per device.
func asList(f figure) figure {
	f = unclaimed(f)
	f.run = func() (result, error) {
		s, err := f.sharding()
		if err != nil {
			return result{}, err
		}
		runtime.GC()
		start := time.Now()
		shards, err := s.Shards(f.ask["shape"].([]int))
		return result{took: time.Since(start), sum: total(shards)}, err
	}
	return f
}

// sharding is what an index map figure asks about, on our side.
func (f figure) sharding() (*mesh.Sharding, error) {
	sizes := f.ask["sizes"].([]int)
	var spec mesh.Spec
	for _, e := range f.ask["spec"].([]any) {
		if names, ok := e.([]string); ok {
			spec.Dims = append(spec.Dims, names)
		} else {
			spec.Dims = append(spec.Dims, mesh.Dim{e.(string)})
		}
	}
	n := size(sizes)
	m, err := mesh.New(mesh.Hosts(n, n/8), axes(sizes)...)
	if err != nil {
		return nil, err
	}
	return m.Shard(spec)
}

// total is the sum that peer.py forms over the same map.
func total(shards []mesh.Shard) int64 {
	var n int64
	for _, s := range shards {
		for k, r := range s.Index {
			n += weigh(s.Device, k, r)
		}
	}
	return n
}

func weigh(device serry.DeviceID, dim int, r mesh.Range) int64 {
	return int64(device%1009+1) * int64(r.Start*(2*dim+3)+r.Stop)
}

// deviceOrder measures the assignment of a torus to mesh axes.
func deviceOrder(physical, shape []int) figure {
	return figure{name: "device order, 4,096 chips of a torus",
		ask: map[string]any{"what": "order", "physical": physical, "shape": shape},
		run: func() (result, error) {
			hw := &mesh.Hardware{Platform: "tpu", Kind: "TPU v4"}
			devices := make([]mesh.Device, size(physical))
			for i := range devices {
				x, y, z := i/physical[2]/physical[1], i/physical[2]%physical[1], i%physical[2]
				devices[i] = mesh.Device{ID: serry.DeviceID(i), Coords: [3]int{x, y, z}, Hardware: hw}
			}
			runtime.GC()
			start := time.Now()
			laid, err := mesh.Arrange(devices, shape, mesh.Order{})
			took := time.Since(start)
			var sum int64
			for i, d := range laid {
				sum += int64(i%1009+1) * int64(d.ID)
			}
			return result{took: took, sum: sum}, err
		}}
}

// reshard measures a plan from one mesh of 4,096 devices to another that holds
// them in reverse.
func reshard(name string, from, to mesh.Spec) figure {
	return figure{name: name, wantTime: 100 * time.Millisecond, run: func() (result, error) {
		list := mesh.Hosts(4096, 512)
		a, err := mesh.New(list, axes([]int{16, 16, 16})...)
		if err != nil {
			return result{}, err
		}
		slices.Reverse(list)
		b, err := mesh.New(list, axes([]int{16, 16, 16})...)
		if err != nil {
			return result{}, err
		}
		r := mesh.Reshard{Shape: []int{4096, 4096, 4096}, ElementBytes: 2}
		if r.From, err = a.Shard(from); err != nil {
			return result{}, err
		}
		if r.To, err = b.Shard(to); err != nil {
			return result{}, err
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		plan, err := r.Plan()
		took := time.Since(start)
		if err != nil {
			return result{}, err
		}
		runtime.ReadMemStats(&after)
		n := len(plan.Moves)
		return result{took: took, note: fmt.Sprintf("%d ranges, %d bytes each", n, (after.TotalAlloc-before.TotalAlloc)/uint64(n))}, nil
	}}
}
