package topo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

// noFabric is how a device without a fabric spells it, if it does not leave the
// field empty. The same uuid with another clique counts as a fabric (C-TOP-27).
const noFabric = "00000000-0000-0000-0000-000000000000/0"

// build makes the topology of the job out of what each task published. It puts
// the tasks in the order of their switches, gives every device its partition,
// and, if assign is set, its global id: dense, by partition, then by that order
// (C-TOP-24 to 30). Locals are not changed.
//
// The result depends on nothing but the locals and their order, so that a task 0
// that comes back builds what it built before. build does not judge them.
func build(locals []*topopb.LocalTopologyProto, assign bool) (*topopb.GlobalTopologyProto, error) {
	if len(locals) == 0 {
		return nil, &serry.InvalidError{What: "no local topologies to build a global one of"}
	}
	explicit, err := explicitPartitions(locals)
	if err != nil {
		return nil, err
	}
	tasks := make([]*topopb.LocalTopologyProto, len(locals))
	for i, l := range locals {
		tasks[i] = proto.CloneOf(l)
	}
	if explicit {
		for _, t := range tasks {
			for _, d := range t.Devices {
				d.PartitionIndex = t.GetPartitionIndex()
			}
		}
	} else {
		slices.SortStableFunc(tasks, func(a, b *topopb.LocalTopologyProto) int {
			return slices.Compare(a.NetworkNodes, b.NetworkNodes)
		})
		partition(tasks)
	}
	if assign {
		assignIDs(tasks)
	}
	return &topopb.GlobalTopologyProto{Processes: tasks}, nil
}

// explicitPartitions reports whether the tasks say themselves which partition
// they are in. All do or none does (C-TOP-25).
func explicitPartitions(locals []*topopb.LocalTopologyProto) (bool, error) {
	var with, without []int32
	for _, l := range locals {
		if l.PartitionIndex != nil {
			with = append(with, l.ProcessId)
		} else {
			without = append(without, l.ProcessId)
		}
	}
	if len(with) > 0 && len(without) > 0 {
		return false, &serry.InvalidError{What: fmt.Sprintf(
			"a partition index is set by %d tasks (first %d) and not by %d (first %d); all must set one or none",
			len(with), with[0], len(without), without[0])}
	}
	return len(with) > 0, nil
}

// partition puts the devices that share a fast network into one partition: by
// fabric where every device of the job has one, and by boot of the host
// otherwise. Partitions are numbered in the order in which a walk over tasks and
// devices meets them.
func partition(tasks []*topopb.LocalTopologyProto) {
	byFabric := allOnFabric(tasks)
	seen := map[string]int32{}
	for _, t := range tasks {
		for _, d := range t.Devices {
			network := t.BootId
			if byFabric {
				network = d.FabricUuid
			}
			index, ok := seen[network]
			if !ok {
				index = int32(len(seen))
				seen[network] = index
			}
			d.PartitionIndex = index
		}
	}
}

func allOnFabric(tasks []*topopb.LocalTopologyProto) bool {
	for _, t := range tasks {
		for _, d := range t.Devices {
			if !onFabric(d) {
				return false
			}
		}
	}
	return true
}

func onFabric(d *topopb.DeviceProto) bool { return d.FabricUuid != "" && d.FabricUuid != noFabric }

func assignIDs(tasks []*topopb.LocalTopologyProto) {
	var all []*topopb.DeviceProto
	for _, t := range tasks {
		all = append(all, t.Devices...)
	}
	slices.SortStableFunc(all, func(a, b *topopb.DeviceProto) int {
		return cmp.Compare(a.PartitionIndex, b.PartitionIndex)
	})
	for i, d := range all {
		d.GlobalDeviceId = int32(i)
	}
}

// validate judges a topology before it is published (P-TOP-7). Two tasks of one
// number are an error, and so are two devices of one task with one ordinal
// unless duplicateOrdinals allows what some clients publish.
func validate(g *topopb.GlobalTopologyProto, duplicateOrdinals bool) error {
	tasks := map[int32]bool{}
	for _, t := range g.GetProcesses() {
		if tasks[t.GetProcessId()] {
			return &serry.InvalidError{What: fmt.Sprintf("two entries for task %d in one topology", t.GetProcessId())}
		}
		tasks[t.GetProcessId()] = true
		ordinals := map[int32]bool{}
		for _, d := range t.GetDevices() {
			if ordinals[d.GetLocalDeviceOrdinal()] && !duplicateOrdinals {
				return &serry.InvalidError{What: fmt.Sprintf("task %d has two devices with ordinal %d",
					t.GetProcessId(), d.GetLocalDeviceOrdinal())}
			}
			ordinals[d.GetLocalDeviceOrdinal()] = true
		}
	}
	return nil
}

// maxListed is how many numbers a text names before it only counts the rest.
const maxListed = 16

// listed prints the first numbers of a list and how many more there are.
func listed[T any](items []T) string {
	var texts []string
	for _, item := range items[:min(len(items), maxListed)] {
		texts = append(texts, fmt.Sprint(item))
	}
	text := strings.Join(texts, ", ")
	if more := len(items) - len(texts); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
