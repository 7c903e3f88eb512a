package topo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// Unassigned is the Task of an [Assignment] that got no number.
const Unassigned serry.TaskIndex = -1

// An Assignment is the task number that one present machine or process got, and
// why.
type Assignment struct {
	Task   serry.TaskIndex // or Unassigned
	Former bool            // it had that number before
	Reason string
}

// AssignOptions say how [Assign] gives out numbers.
type AssignOptions struct {
	Tasks int // numbers go from 0 to Tasks-1
	// Final gives away the numbers of machines that have not come.
	// It is for after the wait, so that a slow survivor does not lose its number
	// to a fast newcomer.
	Final bool
}

// Assign gives every one of present a task number (P-RMP-8): the one it had, if
// its machine is known from previous; else, with Final, one whose machine has not
// come, in the same partition if there is one; else the lowest that no machine had. What
// is left when no number is free waits. Assignment i is that of present[i], whose
// Task is only the number it was launched with. The order of present does not
// matter.
func Assign(previous, present []TaskRecord, o AssignOptions) ([]Assignment, error) {
	if o.Tasks < 1 {
		return nil, fmt.Errorf("numbers for a job of %d tasks", o.Tasks)
	}
	a := &assigner{AssignOptions: o, previous: map[serry.TaskIndex]*TaskRecord{}, present: present,
		placed: make([]Assignment, len(present)), filled: map[serry.TaskIndex]bool{}}
	for i := range a.placed {
		a.placed[i].Task = Unassigned
	}
	for i := range previous {
		r := &previous[i]
		if _, twice := a.previous[r.Task]; twice {
			return nil, fmt.Errorf("two former records for task %d", r.Task)
		}
		a.previous[r.Task] = r
		a.former = append(a.former, r.Task)
	}
	slices.Sort(a.former)
	matching, err := Match(previous, launchNumbered(present), ByOrdinal)
	if err != nil {
		return nil, err
	}
	a.keepByDevices(matching)
	a.keepByMachine()
	a.fillPartition()
	a.fill()
	a.explainWaiting()
	return a.placed, nil
}

// launchNumbered makes the Task of each record its index in the list, so that
// a matching speaks of indexes.
func launchNumbered(present []TaskRecord) []TaskRecord {
	numbered := slices.Clone(present)
	for i := range numbered {
		numbered[i].Task = serry.TaskIndex(i)
	}
	return numbered
}

type assigner struct {
	AssignOptions
	previous map[serry.TaskIndex]*TaskRecord
	former   []serry.TaskIndex // the keys of previous, sorted
	present  []TaskRecord
	placed   []Assignment // by index in present
	filled   map[serry.TaskIndex]bool
}

func (a *assigner) give(i int, t serry.TaskIndex, former bool, reason string) {
	a.placed[i] = Assignment{Task: t, Former: former, Reason: reason}
	a.filled[t] = true
}

// free says whether number t can be given to present[i].
func (a *assigner) free(i int, t serry.TaskIndex) bool {
	return a.placed[i].Task == Unassigned && !a.filled[t] && a.inJob(t)
}

// keepByDevices gives former numbers back where devices are known again. With
// several tasks on one machine this tells them apart.
func (a *assigner) keepByDevices(m *Matching) {
	type vote struct {
		was   serry.TaskIndex
		index int
	}
	count := map[vote]int{}
	for _, p := range m.Pairs {
		was, now := a.previous[p.Was.Task], &a.present[p.Now.Task]
		if was.MachineID == now.MachineID { // a device that wandered does not take its data along
			count[vote{p.Was.Task, int(p.Now.Task)}]++
		}
	}
	votes := make([]vote, 0, len(count))
	for v := range count {
		votes = append(votes, v)
	}
	slices.SortFunc(votes, func(x, y vote) int {
		return cmp.Or(cmp.Compare(count[y], count[x]), cmp.Compare(x.was, y.was), a.order(x.index, y.index))
	})
	for _, v := range votes {
		if a.free(v.index, v.was) {
			a.give(v.index, v.was, true, fmt.Sprintf("keeps its number: %d of its devices are known again", count[v]))
		}
	}
}

// keepByMachine does the same for machines whose devices tell nothing, as after
// all of them were exchanged.
func (a *assigner) keepByMachine() {
	had := map[string][]serry.TaskIndex{}
	for _, t := range a.former {
		if machine := a.previous[t].MachineID; machine != "" {
			had[machine] = append(had[machine], t)
		}
	}
	for _, i := range a.waiting() {
		machine := a.present[i].MachineID
		for _, t := range had[machine] {
			if a.free(i, t) {
				a.give(i, t, true, fmt.Sprintf("keeps its number: machine %q had it", machine))
				break
			}
		}
	}
}

// fillPartition gives numbers to newcomers of the partition that the number was
// in.
func (a *assigner) fillPartition() {
	open := map[int][]serry.TaskIndex{} // by partition, lowest number first
	for _, t := range a.open() {
		if p := a.previous[t].Partition; p != nil {
			open[*p] = append(open[*p], t)
		}
	}
	for _, i := range a.waiting() {
		if p := a.present[i].Partition; p != nil && len(open[*p]) > 0 {
			a.replace(i, open[*p][0])
			open[*p] = open[*p][1:]
		}
	}
}

// fill gives the rest of the numbers to the rest of the newcomers: first those
// that a machine had before.
func (a *assigner) fill() {
	open, lowest := a.open(), serry.TaskIndex(0)
	for _, i := range a.waiting() {
		if len(open) > 0 {
			a.replace(i, open[0])
			open = open[1:]
			continue
		}
		for ; a.placed[i].Task == Unassigned && int(lowest) < a.Tasks; lowest++ {
			if _, had := a.previous[lowest]; !had && a.free(i, lowest) {
				a.give(i, lowest, false, "takes a number that nobody had")
			}
		}
	}
}

func (a *assigner) replace(i int, t serry.TaskIndex) {
	a.give(i, t, false, fmt.Sprintf("takes the place of machine %q", a.previous[t].MachineID))
}

// open lists the numbers that a machine had before and that are not kept for it.
func (a *assigner) open() []serry.TaskIndex {
	var open []serry.TaskIndex
	for _, t := range a.former {
		if a.inJob(t) && !a.filled[t] && a.Final {
			open = append(open, t)
		}
	}
	return open
}

func (a *assigner) inJob(t serry.TaskIndex) bool { return t >= 0 && int(t) < a.Tasks }

func (a *assigner) explainWaiting() {
	var held []serry.TaskIndex
	for _, t := range a.former {
		if a.inJob(t) && !a.filled[t] {
			held = append(held, t)
		}
	}
	for _, i := range a.waiting() {
		if len(held) > 0 {
			a.placed[i].Reason = fmt.Sprintf("waits: %d numbers are kept for machines that may still come, first %d for %q",
				len(held), held[0], a.previous[held[0]].MachineID)
		} else {
			a.placed[i].Reason = fmt.Sprintf("waits: all %d numbers are taken", a.Tasks)
		}
	}
}

// waiting lists the indexes without a number, in an order that does not depend
// on the list they came in.
func (a *assigner) waiting() []int {
	var indexes []int
	for i, p := range a.placed {
		if p.Task == Unassigned {
			indexes = append(indexes, i)
		}
	}
	slices.SortFunc(indexes, a.order)
	return indexes
}

func (a *assigner) order(i, j int) int {
	x, y := &a.present[i], &a.present[j]
	return cmp.Or(cmp.Compare(x.Task, y.Task), cmp.Compare(x.MachineID, y.MachineID),
		cmp.Compare(x.Hostname, y.Hostname), cmp.Compare(x.Incarnation, y.Incarnation))
}
