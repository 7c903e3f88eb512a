package restore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
	"github.com/serry-dev/serry/topo"
)

// A cost sums up the reads of a plan: how many stay where they are, come from a
// peer, come from the store, and how many bytes travel for them.
type cost struct {
	Local, Peer, Store    int
	PeerBytes, StoreBytes int64
}

// String prints the cost in one line.
func (c cost) String() string {
	return fmt.Sprintf("%d reads local, %d from peers (%d bytes), %d from the store (%d bytes)",
		c.Local, c.Peer, c.PeerBytes, c.Store, c.StoreBytes)
}

// cost sums the plan up.
func (p *Plan) cost() cost {
	var c cost
	for _, r := range p.Reads {
		switch {
		case r.Local():
			c.Local++
		case r.From == FromStore:
			c.Store++
			c.StoreBytes += r.Bytes
		default:
			c.Peer++
			c.PeerBytes += r.Bytes
		}
	}
	return c
}

// For returns the part of one task: what it reads, and what it must serve to
// its peers.
func (p *Plan) For(task serry.TaskIndex) (reads, serves []Read) {
	for _, r := range p.Reads {
		if r.Task == task {
			reads = append(reads, r)
		} else if r.From == task {
			serves = append(serves, r)
		}
	}
	return reads, serves
}

// maxLines bounds each list in an explanation.
const maxLines = 16

// Explain says in a few lines what has become of the job and what the plan
// makes of it.
func (p *Plan) Explain() string {
	var lines []string
	if p.Matching != nil {
		lines = append(lines, p.explainTasks()...)
	}
	if p.Restore != nil {
		lines = append(lines, fmt.Sprintf("read into the saved mesh, devices %v, then permute to the target", p.Restore.Devices))
	}
	lines = append(lines, p.cost().String())
	for i, m := range p.Missing {
		if i == maxLines {
			lines = append(lines, fmt.Sprintf("and %d more parts that nobody holds", len(p.Missing)-i))
			break
		}
		lines = append(lines, m.String())
	}
	verdict := "can be restored"
	if len(p.Missing) > 0 {
		verdict = "cannot be restored"
	}
	return fmt.Sprintf("step %d %s\n", p.Step, verdict) + indented(lines)
}

func indented(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("  " + l + "\n")
	}
	return b.String()
}

// explainTasks tells which task was which: shuffled ranks, new and lost tasks, another
// number of them.
func (p *Plan) explainTasks() []string {
	var lines []string
	if len(p.then) != len(p.now) {
		lines = append(lines, fmt.Sprintf("%d tasks then, %d now", len(p.then), len(p.now)))
	}
	then, now := map[serry.TaskIndex][]serry.TaskIndex{}, map[serry.TaskIndex]bool{} // task now -> tasks then; task then -> found
	for _, pair := range p.Matching.Pairs {
		if !slices.Contains(then[pair.Now.Task], pair.Was.Task) {
			then[pair.Now.Task] = append(then[pair.Now.Task], pair.Was.Task)
		}
		now[pair.Was.Task] = true
	}
	levels := p.Matching.Evidence()
	var moved, fresh, lost []string
	for _, l := range p.now {
		t := l.Record.Task
		switch was := then[t]; {
		case len(was) == 0:
			fresh = append(fresh, fmt.Sprintf("task %d is new%s", t, onHost(l.Record)))
		case len(was) > 1 || was[0] != t:
			moved = append(moved, fmt.Sprintf("task %d was task %s (%v)%s", t, notation.Join(was, " and "), levels[t], onHost(l.Record)))
		}
	}
	for _, r := range p.then {
		if !now[r.Task] {
			lost = append(lost, fmt.Sprintf("task %d of then is gone%s", r.Task, onHost(r)))
		}
	}
	for _, list := range [][]string{moved, fresh, lost} {
		if more := len(list) - maxLines; more > 0 {
			list = append(list[:maxLines:maxLines], fmt.Sprintf("and %d more like that", more))
		}
		lines = append(lines, list...)
	}
	return lines
}

func onHost(r topo.TaskRecord) string {
	switch {
	case r.Hostname != "":
		return ", on host " + r.Hostname
	case r.MachineID != "":
		return ", on machine " + r.MachineID
	}
	return ""
}
