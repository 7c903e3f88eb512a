package client_test

import (
	"context"
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
)

// Every task holds blocks of an array; gathered and put in their places they are the whole array,
// whatever the order of the devices in the mesh.
func TestCircleGathersAnArray(t *testing.T) {
	lab.Clause(t, "TC-MH-03", "TC-MH-08")
	const tasks, rows, columns = 4, 8, 2
	devices := mesh.Hosts(2*tasks, tasks)
	for name, order := range map[string][]mesh.Device{
		"usual order":   devices,
		"rotated order": slices.Concat(devices[3:], devices[:3]),
	} {
		t.Run(name, func(t *testing.T) {
			m, err := mesh.New(order, mesh.Axis{Name: "x", Size: 4}, mesh.Axis{Name: "y", Size: 2})
			if err != nil {
				t.Fatal(err)
			}
			sharding, err := m.Shard(mesh.P(mesh.Dim{"x"}, mesh.Dim{"y"}))
			if err != nil {
				t.Fatal(err)
			}
			shape := []int{rows, columns}
			together(t, tasks, func(ctx context.Context, m *client.Member, i int) {
				all, err := circle(ctx, t, m).Gather(ctx, blocks(t, sharding, shape, i))
				if err != nil {
					t.Errorf("Gather() = %v", err)
					return
				}
				whole := make([]byte, rows*columns)
				for task, theirs := range all {
					place(t, whole, theirs, sharding, shape, task)
				}
				for at, b := range whole {
					if int(b) != at {
						t.Errorf("the gathered array is %v; want 0, 1, 2, ...", whole)
						return
					}
				}
			})
		})
	}
}

// blocks are the elements that a task holds, one block after the other. Each element is its place in
// the array.
func blocks(t *testing.T, s *mesh.Sharding, shape []int, task int) []byte {
	t.Helper()
	var held []byte
	eachElement(t, s, shape, task, func(at int) { held = append(held, byte(at)) })
	return held
}

// place puts what a task held into the whole array.
func place(t *testing.T, whole, held []byte, s *mesh.Sharding, shape []int, task int) {
	t.Helper()
	eachElement(t, s, shape, task, func(at int) {
		whole[at] = held[0]
		held = held[1:]
	})
}

func eachElement(t *testing.T, s *mesh.Sharding, shape []int, task int, visit func(at int)) {
	t.Helper()
	shards, err := s.LocalShards(shape, serry.TaskIndex(task))
	if err != nil {
		t.Errorf("LocalShards() = %v", err)
		return
	}
	for _, shard := range shards {
		for row := shard.Index[0].Start; row < shard.Index[0].Stop; row++ {
			for column := shard.Index[1].Start; column < shard.Index[1].Stop; column++ {
				visit(row*shape[1] + column)
			}
		}
	}
}
