package mesh

import (
	"cmp"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
)

// A Link is what a plan sends from one end to another; the ends are tasks or
// devices.
type Link struct {
	From, To int
	Bytes    int
	Ranges   int
}

// DeviceLinks adds up the moves of the plan by device, in the order of the ends.
// What stays on a device is on the link of the device with itself.
func (p *Plan) DeviceLinks() []Link {
	return p.links(func(id serry.DeviceID) int { return int(id) }, func(id serry.DeviceID) int { return int(id) })
}

// TaskLinks adds up the moves of the plan by task. What stays within a task is
// on the link of the task with itself.
func (p *Plan) TaskLinks() []Link {
	return p.links(taskOf(p.from), taskOf(p.to))
}

func taskOf(m *Mesh) func(serry.DeviceID) int {
	tasks := make(map[serry.DeviceID]int, m.size)
	for i, id := range m.ids {
		tasks[id] = int(m.tasks[i])
	}
	return func(id serry.DeviceID) int { return tasks[id] }
}

func (p *Plan) links(from, to func(serry.DeviceID) int) []Link {
	sum := make(map[[2]int]Link)
	for _, m := range p.Moves {
		ends := [2]int{from(m.From), to(m.To)}
		l := sum[ends]
		sum[ends] = Link{ends[0], ends[1], l.Bytes + m.Pattern.Bytes(), l.Ranges + 1}
	}
	out := slices.Collect(maps.Values(sum))
	slices.SortFunc(out, func(a, b Link) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return out
}
