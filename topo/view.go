package topo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

// A Device is one device of the job, as its topology has it.
type Device struct {
	ID        serry.DeviceID
	Task      serry.TaskIndex
	Ordinal   Ordinal
	Partition int
	Kind      string // "cpu", or the name of the GPU
	Fabric    string // "<cluster uuid>/<clique id>", or empty
	BootID    string // of its host, or empty
}

// A Topology answers questions about a global topology. It is made by [Read] and
// never changes.
type Topology struct {
	tasks   []serry.TaskIndex            // in the order of the message
	devices []Device                     // by id
	byTask  map[serry.TaskIndex][]Device // by ordinal, then id
}

// Read makes a topology out of its message. Two entries for one task (C-TOP-40)
// and two devices with one id are errors, since nothing tells them apart.
func Read(g *topopb.GlobalTopologyProto) (*Topology, error) {
	t := &Topology{byTask: map[serry.TaskIndex][]Device{}}
	owner := map[serry.DeviceID]serry.TaskIndex{}
	for _, p := range g.GetProcesses() {
		task := serry.TaskIndex(p.GetProcessId())
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
			Task:      serry.TaskIndex(p.GetProcessId()),
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
func (t *Topology) Tasks() []serry.TaskIndex { return slices.Sorted(slices.Values(t.tasks)) }

// Devices lists all devices by id.
func (t *Topology) Devices() []Device { return slices.Clone(t.devices) }

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
func (t *Topology) Local(task serry.TaskIndex) ([]Device, bool) {
	devices, ok := t.byTask[task]
	return slices.Clone(devices), ok
}
