package topo

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

// A Change is what became of a task's hardware when it came back under its old
// number.
type Change string

const (
	Moved    Change = "moved"    // another machine, or another boot where machines are not known
	Rebooted Change = "rebooted" // the same machine, booted anew
	Replaced Change = "replaced" // another device in the place of one, on the same machine
	Refabric Change = "refabric" // a device on another fabric
	Rewired  Change = "rewired"  // behind other switches, or in another explicit partition
	Resized  Change = "resized"  // another memory limit or NUMA node, other attributes
	Conflict Change = "conflict" // another list of devices: refused (C-TOP-16)
)

// An Event is one change of one task, with what was and what is now (P-TOP-3).
type Event struct {
	Task     serry.TaskIndex
	Change   Change
	Field    string // "boot_id", "devices[1].fabric_uuid"
	Was, Now string
}

func (e Event) String() string {
	return fmt.Sprintf("task %d %v: %s was %q, is %q", e.Task, e.Change, e.Field, e.Was, e.Now)
}

// A Publication is what a task has said about itself: its local topology and,
// if it is a task of serry, its record (else nil).
type Publication struct {
	Local  *topopb.LocalTopologyProto
	Record *TaskRecord
}

// Changes lists how now differs from was, in the order of the fields. Two lists
// of devices that could not take each other's place give only Conflicts.
func Changes(was, now Publication) []Event {
	events := hardChanges(was.Local, now.Local)
	if len(events) > 0 {
		return events
	}
	events = append(events, hostChanges(was, now)...)
	events = append(events, deviceChanges(was.Local, now.Local)...)
	return append(events, partChanges(was.Record, now.Record)...)
}

// maxEvents is how many differences of one kind of comparison are told; after
// so many, more would tell a reader nothing new.
const maxEvents = 64

// A differ collects the differences between two publications of one task.
type differ struct {
	task   serry.TaskIndex
	events []Event
}

func (d *differ) add(c Change, field string, was, now any) {
	if a, b := fmt.Sprint(was), fmt.Sprint(now); a != b && len(d.events) < maxEvents {
		d.events = append(d.events, Event{d.task, c, field, a, b})
	}
}

// hardChanges compares the fields that decide whether a task that comes back may
// take its former place, which are those that jaxlib compares (C-TOP-17).
// [Changes] tells what it leaves out.
func hardChanges(was, now *topopb.LocalTopologyProto) []Event {
	d := differ{task: serry.TaskIndex(now.GetProcessId())}
	d.add(Conflict, "process_id", was.GetProcessId(), now.GetProcessId())
	d.add(Conflict, "number of devices", len(was.GetDevices()), len(now.GetDevices()))
	if len(d.events) > 0 {
		return d.events
	}
	for i, a := range was.GetDevices() {
		b := now.GetDevices()[i]
		at := func(field string) string { return fmt.Sprintf("devices[%d].%s", i, field) }
		d.add(Conflict, at("name"), a.GetName(), b.GetName())
		d.add(Conflict, at("vendor"), a.GetVendor(), b.GetVendor())
		d.add(Conflict, at("local_device_ordinal"), a.GetLocalDeviceOrdinal(), b.GetLocalDeviceOrdinal())
		d.add(Conflict, at("core_count"), a.GetCoreCount(), b.GetCoreCount())
		d.add(Conflict, at("device_kind"), a.GetDeviceKind(), b.GetDeviceKind())
		d.add(Conflict, at("partition_index"), a.GetPartitionIndex(), b.GetPartitionIndex())
		d.add(Conflict, at("global_device_id"), a.GetGlobalDeviceId(), b.GetGlobalDeviceId())
		d.add(Conflict, at("compute_capability"), a.GetComputeCapability(), b.GetComputeCapability())
	}
	return d.events
}

// hostChanges tells a machine that booted anew from another machine. Without
// records a boot id is all there is, and another one means another machine
// as far as is known (TC-TOP-27).
func hostChanges(was, now Publication) []Event {
	d := differ{task: serry.TaskIndex(now.Local.GetProcessId())}
	machineWas, machineNow := machine(was.Record), machine(now.Record)
	known := machineWas != "" && machineNow != ""
	switch {
	case known && machineWas != machineNow:
		d.add(Moved, "machine_id", machineWas, machineNow)
	case known:
		d.add(Rebooted, "boot_id", was.Local.GetBootId(), now.Local.GetBootId())
	default:
		d.add(Moved, "boot_id", was.Local.GetBootId(), now.Local.GetBootId())
	}
	d.add(Rewired, "network_nodes", strings.Join(was.Local.GetNetworkNodes(), ","), strings.Join(now.Local.GetNetworkNodes(), ","))
	d.add(Rewired, "partition_index", optional(was.Local), optional(now.Local))
	return d.events
}

func machine(r *TaskRecord) string {
	if r == nil {
		return ""
	}
	return r.MachineID
}

func optional(l *topopb.LocalTopologyProto) string {
	if l == nil || l.PartitionIndex == nil {
		return "none"
	}
	return strconv.Itoa(int(*l.PartitionIndex))
}

// deviceChanges compares what jaxlib does not look at, device by device.
func deviceChanges(was, now *topopb.LocalTopologyProto) []Event {
	d := differ{task: serry.TaskIndex(now.GetProcessId())}
	for i, a := range was.GetDevices() {
		b := now.GetDevices()[i]
		at := func(field string) string { return fmt.Sprintf("devices[%d].%s", i, field) }
		d.add(Refabric, at("fabric_uuid"), a.GetFabricUuid(), b.GetFabricUuid())
		d.add(Resized, at("numa_node"), a.GetNumaNode(), b.GetNumaNode())
		d.add(Resized, at("device_memory_bytes_limit"), a.GetDeviceMemoryBytesLimit(), b.GetDeviceMemoryBytesLimit())
		d.add(Resized, at("shared_memory_per_block_optin"), a.GetSharedMemoryPerBlockOptin(), b.GetSharedMemoryPerBlockOptin())
		for _, name := range attributeNames(a, b) {
			d.add(Resized, at("attributes."+name), attributeText(a, name), attributeText(b, name))
		}
	}
	return d.events
}

// attributeNames lists the attributes that either device has, sorted.
func attributeNames(a, b *topopb.DeviceProto) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a.GetAttributes())), maps.Keys(b.GetAttributes()))
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

func attributeText(d *topopb.DeviceProto, name string) string {
	switch v := d.GetAttributes()[name].GetValue().(type) {
	case *topopb.DeviceAttributeProto_StringValue:
		return v.StringValue
	case *topopb.DeviceAttributeProto_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *topopb.DeviceAttributeProto_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *topopb.DeviceAttributeProto_IntValues:
		return fmt.Sprint(v.IntValues.GetValues())
	case *topopb.DeviceAttributeProto_FloatValue:
		return fmt.Sprint(v.FloatValue)
	}
	return "none"
}

// partChanges finds devices that were exchanged on one and the same machine.
func partChanges(was, now *TaskRecord) []Event {
	if m := machine(was); m == "" || m != machine(now) {
		return nil
	}
	d := differ{task: now.Task}
	before := map[Ordinal]DeviceRecord{}
	for _, a := range was.Devices {
		before[a.Ordinal] = a
	}
	for i, b := range now.Devices {
		a := before[b.Ordinal]
		switch {
		case a.UUID != "" && b.UUID != "":
			d.add(Replaced, fmt.Sprintf("devices[%d].uuid", i), a.UUID, b.UUID)
		case a.Serial != "" && b.Serial != "":
			d.add(Replaced, fmt.Sprintf("devices[%d].serial", i), a.Serial, b.Serial)
		}
	}
	return d.events
}
