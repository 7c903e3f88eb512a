package topo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

// A Device is one device of the job, as its topology has it.
type Device struct {
	ID        serry.DeviceID
	Task      Task
	Ordinal   Ordinal
	Partition int
	Kind      string // "cpu", or the name of the GPU
	Fabric    string // "<cluster uuid>/<clique id>", or empty
	BootID    string // of its host, or empty
}

// A Topology answers questions about a global topology. It is made by [Read] and
// never changes.
type Topology struct {
	tasks     []Task // in the order of the message
	devices   []Device
	byTask    map[Task][]Device // by ordinal, then id
	partition map[Task]int      // of its first device; absent without devices
}

// Read makes a topology out of its message. Two entries for one task (C-TOP-40)
// and two devices with one id are errors, since nobody could tell them apart.
func Read(g *topopb.GlobalTopologyProto) (*Topology, error) {
	t := &Topology{byTask: map[Task][]Device{}, partition: map[Task]int{}}
	owner := map[serry.DeviceID]Task{}
	for _, p := range g.GetProcesses() {
		task := Task(p.GetProcessId())
		if _, ok := t.byTask[task]; ok {
			return nil, &serry.InvalidError{What: fmt.Sprintf("two entries for task %d in one topology", task)}
		}
		devices := readDevices(p)
		for _, d := range devices {
			if other, ok := owner[d.ID]; ok {
				return nil, &serry.InvalidError{What: fmt.Sprintf("device %d belongs to task %d and to task %d", d.ID, other, task)}
			}
			owner[d.ID] = task
		}
		if len(devices) > 0 {
			t.partition[task] = devices[0].Partition
		}
		t.tasks = append(t.tasks, task)
		t.devices = append(t.devices, devices...)
		t.byTask[task] = devices
	}
	slices.SortStableFunc(t.devices, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	return t, nil
}

func readDevices(p *topopb.LocalTopologyProto) []Device {
	var devices []Device
	for _, d := range p.GetDevices() {
		devices = append(devices, Device{
			ID:        serry.DeviceID(d.GetGlobalDeviceId()),
			Task:      Task(p.GetProcessId()),
			Ordinal:   Ordinal(d.GetLocalDeviceOrdinal()),
			Partition: int(d.GetPartitionIndex()),
			Kind:      cmp.Or(d.GetDeviceKind(), d.GetName()),
			Fabric:    d.GetFabricUuid(),
			BootID:    p.GetBootId(),
		})
	}
	slices.SortStableFunc(devices, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.ID, b.ID))
	})
	return devices
}

// Tasks lists all tasks by number, those without devices too.
func (t *Topology) Tasks() []Task { return slices.Sorted(slices.Values(t.tasks)) }

// Position is the place of a task in the message, which some front ends report
// as the process index instead of the task's number (C-TOP-38).
func (t *Topology) Position(task Task) (int, bool) {
	i := slices.Index(t.tasks, task)
	return i, i >= 0
}

// Devices lists all devices by id.
func (t *Topology) Devices() []Device { return slices.Clone(t.devices) }

// DevicesByTask lists all devices by task, then by id: the order in which
// programs see them (C-TOP-41).
func (t *Topology) DevicesByTask() []Device {
	all := slices.Clone(t.devices)
	slices.SortStableFunc(all, func(a, b Device) int { return cmp.Compare(a.Task, b.Task) })
	return all
}

// Device finds a device by its id.
func (t *Topology) Device(id serry.DeviceID) (Device, bool) {
	i, ok := slices.BinarySearchFunc(t.devices, id, func(d Device, id serry.DeviceID) int { return cmp.Compare(d.ID, id) })
	if !ok {
		return Device{}, false
	}
	return t.devices[i], true
}

// Local lists the devices of one task by ordinal. It is false for a task that
// the topology does not have, and true with no devices for one that has none.
func (t *Topology) Local(task Task) ([]Device, bool) {
	devices, ok := t.byTask[task]
	return slices.Clone(devices), ok
}

// IndexInPartition counts the tasks of the same partition with a lower number.
// Unlike the original it does not need them to be neighbours (C-TOP-35). It is
// false for a task without devices.
func (t *Topology) IndexInPartition(task Task) (int, bool) {
	own, ok := t.partition[task]
	if !ok {
		return 0, false
	}
	index := 0
	for _, other := range t.tasks {
		if p, ok := t.partition[other]; ok && p == own && other < task {
			index++
		}
	}
	return index, true
}

// A Shape sums up a topology that is alike everywhere: how many partitions, how
// many tasks in each, how many devices in each task. Where it is not alike all
// three are -1 (C-TOP-33).
type Shape struct {
	Partitions, Tasks, Devices int
}

// String prints the shape as "2x4x8".
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d", s.Partitions, s.Tasks, s.Devices) }

// ParseShape reads what [Shape.String] prints: exactly three positive numbers
// (C-TOP-37).
func ParseShape(text string) (Shape, error) {
	parts := strings.Split(text, "x")
	var n [3]int
	ok := len(parts) == len(n)
	for i := 0; ok && i < len(n); i++ {
		var err error
		n[i], err = strconv.Atoi(parts[i])
		ok = err == nil && n[i] > 0 && n[i] <= maxEntries
	}
	if !ok {
		return Shape{}, &serry.InvalidError{What: fmt.Sprintf("topology shape %q; want partitions x tasks x devices, such as 2x4x8", text)}
	}
	return Shape{n[0], n[1], n[2]}, nil
}

// Shape sums the topology up. Tasks without devices do not count.
func (t *Topology) Shape() Shape {
	uneven := Shape{-1, -1, -1}
	tasksOf := map[int]map[Task]bool{}
	for _, d := range t.devices {
		if tasksOf[d.Partition] == nil {
			tasksOf[d.Partition] = map[Task]bool{}
		}
		tasksOf[d.Partition][d.Task] = true
	}
	shape := Shape{Partitions: len(tasksOf)}
	for _, d := range t.devices {
		tasks, devices := len(tasksOf[d.Partition]), len(t.byTask[d.Task])
		if shape.Tasks == 0 {
			shape.Tasks, shape.Devices = tasks, devices
		}
		if shape.Tasks != tasks || shape.Devices != devices {
			return uneven
		}
	}
	if len(t.devices) == 0 {
		return uneven
	}
	return shape
}

// Mock builds the topology of a job that does not exist, to try out what a
// layout would look like without the hardware (C-TOP-37). Task i is in partition
// i / s.Tasks.
func Mock(s Shape) (*topopb.GlobalTopologyProto, error) {
	if s.Partitions < 1 || s.Tasks < 1 || s.Devices < 1 || s.Partitions > maxEntries ||
		s.Tasks > maxEntries/s.Partitions || s.Devices > maxEntries/(s.Partitions*s.Tasks) {
		return nil, &serry.InvalidError{What: fmt.Sprintf("no mock topology of shape %v", s)}
	}
	var locals []*topopb.LocalTopologyProto
	for i := range s.Partitions * s.Tasks {
		partition := int32(i / s.Tasks)
		l := &topopb.LocalTopologyProto{ProcessId: int32(i), PartitionIndex: &partition}
		for o := range s.Devices {
			l.Devices = append(l.Devices, &topopb.DeviceProto{LocalDeviceOrdinal: int32(o), PartitionIndex: partition})
		}
		locals = append(locals, l)
	}
	return Build(locals, true, PolicyXLA)
}
