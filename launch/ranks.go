package launch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// ranks gives hosts back the nodes that they stood for in the last run, and their tasks the same
// numbers with them, whatever numbers their launchers have this time (P-RMP-8). It is a plain value:
// who uses it says who is here and what time it is.
type ranks struct {
	nodes, tasks int                     // of the job, and on each host
	hosts        int                     // that can come, with spares
	previous     []topo.TaskRecord       // of the last run, one for each node
	present      map[int]topo.TaskRecord // by number of the host
	enough       time.Time               // when the last host came that was needed; zero: one is needed
	told         map[int]bool            // hosts that wait, and were told why
	before       []byte                  // text of the state of the last run, until it is kept
}

// hostWait is how long places of the last run are kept for hosts that have not come, when there are
// enough others.
const hostWait = 10 * time.Second

// newRanks makes the ranks of a job from the tasks of the last one. Those of a job of another size
// say nothing.
func newRanks(cfg Config, last []topo.TaskRecord) *ranks {
	r := &ranks{
		nodes: cfg.nodes(), tasks: cfg.Tasks, hosts: cfg.nodes() + cfg.Spares,
		present: make(map[int]topo.TaskRecord), told: make(map[int]bool),
	}
	if len(last) != cfg.total() {
		return r
	}
	last = slices.SortedFunc(slices.Values(last), func(a, b topo.TaskRecord) int { return cmp.Compare(a.Task, b.Task) })
	for node := range r.nodes {
		of := last[node*cfg.Tasks : (node+1)*cfg.Tasks]
		host := of[0]
		host.Task, host.Devices = serry.TaskIndex(node), nil
		for _, task := range of {
			host.Devices = append(host.Devices, task.Devices...)
		}
		for i := range host.Devices {
			host.Devices[i].Ordinal = topo.Ordinal(i) // on the host, not in its task
		}
		r.previous = append(r.previous, host)
	}
	return r
}

// arrive takes note of a host and what it is.
func (r *ranks) arrive(host int, is topo.TaskRecord, now time.Time) {
	is.Task = serry.TaskIndex(host)
	for i := range is.Devices { // any numbers will do, as long as no two are the same
		is.Devices[i].ID = serry.DeviceID(host<<12 + i)
	}
	r.present[host] = is
	if len(r.present) >= r.nodes && r.enough.IsZero() {
		r.enough = now
	}
}

// leave takes note that a host is gone.
func (r *ranks) leave(host int) { delete(r.present, host) }

// settled says whether the job waits for no further host.
func (r *ranks) settled(now time.Time) bool {
	return len(r.present) >= r.hosts || !r.enough.IsZero() && now.Sub(r.enough) >= hostWait
}

// A sitting is a host that got a node, and what is to be said about it.
type sitting struct {
	host, node int
	notes      []string
}

// assign gives the nodes that are free to the hosts that stand for none: first to those that had them.
// The rest waits until no other host is expected.
func (r *ranks) assign(free, idle []int, now time.Time) ([]sitting, error) {
	if len(free) == 0 || len(idle) == 0 {
		return nil, nil
	}
	if len(r.previous) == 0 {
		return r.first(free, idle), nil
	}
	var previous, present []topo.TaskRecord
	for i, node := range free { // free nodes are numbered anew, so that no other is given away
		if node < len(r.previous) {
			p := r.previous[node]
			p.Task = serry.TaskIndex(i)
			previous = append(previous, p)
		}
	}
	for _, host := range idle {
		present = append(present, r.present[host])
	}
	placed, err := topo.Assign(previous, present, topo.AssignOptions{Tasks: len(free), Final: r.settled(now)})
	if err != nil {
		return nil, err
	}
	var seated []sitting
	for i, p := range placed {
		if p.Task == topo.Unassigned {
			if host := idle[i]; !r.told[host] {
				r.told[host] = true
				seated = append(seated, sitting{host: host, node: notYet, notes: []string{fmt.Sprintf("%s %s", r.name(host), p.Reason)}})
			}
			continue
		}
		seated = append(seated, r.sitting(idle[i], free[p.Task], p.Reason))
	}
	return seated, nil
}

// first seats the hosts of a first run: each has the node of its number.
func (r *ranks) first(free, idle []int) []sitting {
	var seated []sitting
	for _, host := range idle {
		if slices.Contains(free, host) {
			seated = append(seated, r.sitting(host, host, "is there for the first time"))
		}
	}
	return seated
}

func (r *ranks) name(host int) string {
	is := r.present[host]
	return fmt.Sprintf("host %q", cmp.Or(is.Hostname, is.MachineID, fmt.Sprint(host)))
}

// sitting says who a host is, and what changed about its node.
func (r *ranks) sitting(host, node int, reason string) sitting {
	s := sitting{host: host, node: node}
	numbers := fmt.Sprintf("rank %d", node*r.tasks)
	if r.tasks > 1 {
		numbers = fmt.Sprintf("ranks %d to %d", node*r.tasks, (node+1)*r.tasks-1)
	}
	s.notes = append(s.notes, fmt.Sprintf("%s has %s: it %s", r.name(host), numbers, reason))
	if node < len(r.previous) {
		was, is := publication(r.previous[node], node), publication(r.present[host], node)
		for _, e := range topo.Changes(was, is) {
			s.notes = append(s.notes, fmt.Sprintf("node %d %v: %s was %q, is %q", node, e.Change, e.Field, e.Was, e.Now))
		}
	}
	return s
}

// publication is a host in the words of topologies: what they compare.
func publication(r topo.TaskRecord, node int) topo.Publication {
	r.Task = serry.TaskIndex(node)
	return topo.Publication{Local: &topopb.LocalTopologyProto{ProcessId: int32(node), BootId: r.BootID}, Record: &r}
}

// settle takes note of the hosts that stand for the nodes now. A host that is lost and comes back
// finds its place by that.
func (r *ranks) settle(hostOf []int) {
	if len(r.previous) == 0 {
		r.previous = make([]topo.TaskRecord, r.nodes)
	}
	for node, host := range hostOf {
		if is, ok := r.present[host]; ok {
			r.previous[node] = is
		}
	}
}

// records says what every task of the job runs on, by number. The devices of a host are dealt to its
// tasks in equal parts, as the tasks are told to use them, and numbered in that order.
func (r *ranks) records() []topo.TaskRecord {
	var all []topo.TaskRecord
	next := serry.DeviceID(0)
	for node, is := range r.previous {
		for local := range r.tasks {
			t := is
			t.Task, t.Tasks, t.Devices = serry.TaskIndex(node*r.tasks+local), r.nodes*r.tasks, nil
			for i, d := range dealt(is.Devices, local, r.tasks) {
				d.ID, d.Ordinal = next, topo.Ordinal(i)
				t.Devices = append(t.Devices, d)
				next++
			}
			all = append(all, t)
		}
	}
	return all
}

// dealt is the part of one task; nothing where devices cannot be dealt evenly.
func dealt(devices []topo.DeviceRecord, local, locals int) []topo.DeviceRecord {
	n := len(devices) / locals
	if len(devices)%locals != 0 {
		return nil
	}
	return devices[local*n : (local+1)*n]
}
