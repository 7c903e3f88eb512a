// Arrays shows an array that spans tasks: how each task loads its part, how copies are checked,
// and what must move when the sharding changes. All four tasks run here, one after the other;
// in a job each would be a process of its own.
//
// usage: go run ./examples/arrays
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/mesh/form"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "arrays: error:", err)
		os.Exit(1)
	}
}

const tasks = 4

func run(out io.Writer) error {
	// Eight devices, two a task: "data" across tasks, "model" within each.
	m, err := mesh.Make(mesh.Hosts(8, tasks), mesh.Axis{Name: "data", Size: 4}, mesh.Axis{Name: "model", Size: 2})
	if err != nil {
		return err
	}
	rows, err := m.Shard(mesh.P(mesh.Dim{"data"}))
	if err != nil {
		return err
	}
	arrays, err := load(out, rows)
	if err != nil {
		return err
	}
	if err := checkCopies(out, arrays); err != nil {
		return err
	}
	blocks, err := m.Shard(mesh.P(mesh.Dim{"model"}, mesh.Dim{"data"}))
	if err != nil {
		return err
	}
	return reshard(out, arrays, blocks)
}

// load lets each task bring the rows it is responsible for. No task says how
// large the whole is: it follows from the sharding.
func load(out io.Writer, rows *mesh.Sharding) ([]*mesh.Array, error) {
	arrays := make([]*mesh.Array, tasks)
	for task := range serry.TaskIndex(tasks) {
		view, err := rows.View(task, 0, 2)
		if err != nil {
			return nil, err
		}
		local := mesh.Block{Shape: []int{2, 4}, Element: mesh.Element{Name: "uint8", Bytes: 1}}
		for i := range 8 {
			local.Data = append(local.Data, byte(8*view.Index+i))
		}
		if arrays[task], err = mesh.FromLocal(mesh.Layout{Sharding: rows, Task: task}, local); err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "task %d loads part %d of %d: %v -> %v\n", task, view.Index, view.Count, local.Data, arrays[task])
	}
	text, err := form.Draw(rows, arrays[0].Layout().Shape, form.Look{})
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\n%s\n", text)
	return arrays, nil
}

// checkCopies compares what replicas hold, by digest.
func checkCopies(out io.Writer, arrays []*mesh.Array) error {
	var all []mesh.Digest
	for _, a := range arrays {
		all = append(all, a.Digests()...)
	}
	if err := mesh.CheckReplicas(all); err != nil {
		return err
	}
	fmt.Fprintf(out, "all %d shards agree with their copies\n\n", len(all))
	return nil
}

// reshard plans the way to another sharding and follows the plan.
func reshard(out io.Writer, arrays []*mesh.Array, to *mesh.Sharding) error {
	layout := arrays[0].Layout()
	plan, err := mesh.Reshard{Shape: layout.Shape, ElementBytes: layout.Element.Bytes, From: layout.Sharding, To: to}.Plan()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", form.DrawLinks("task", plan.TaskLinks(), form.Look{}))
	size, err := to.ShardShape(layout.Shape)
	if err != nil {
		return err
	}
	source, target := map[serry.DeviceID][]byte{}, map[serry.DeviceID][]byte{}
	for _, a := range arrays {
		for _, s := range a.Shards() {
			b, err := a.Data(s.Device)
			if err != nil {
				return err
			}
			source[s.Device], target[s.Device] = b.Data, make([]byte, size[0]*size[1])
		}
	}
	for _, move := range plan.Moves {
		if err := move.Apply(target[move.To], source[move.From]); err != nil {
			return err
		}
	}
	text, err := form.Draw(to, layout.Shape, form.Look{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\ndevice 5 now holds %v\n", text, target[5])
	return nil
}
