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

// A Policy says what makes two devices members of one partition, the set that
// shares the fast network.
type Policy int

const (
	// PolicyXLA goes by fabric where every device of the job has one, and by
	// boot of the host otherwise. It is the only policy for keys that jaxlib
	// reads, since all must come to the same partitions.
	PolicyXLA Policy = iota
	// PolicyPerDevice goes by fabric for each device that has one and by boot
	// for each that has none, so that one device without does not throw the
	// whole job back.
	PolicyPerDevice
)

// noFabric is how a device without a fabric spells it, if it does not leave the
// field empty. The same uuid with another clique counts as a fabric (C-TOP-27).
const noFabric = "00000000-0000-0000-0000-000000000000/0"

// Build makes the topology of the job out of what each task published. It puts
// the tasks in the order of their switches, gives every device its partition,
// and, if assign is set, its global id: dense, by partition, then by that order
// (C-TOP-24 to 30). Locals are not changed.
//
// The result depends on nothing but the locals and their order, so that a task 0
// that comes back builds what it built before. Build does not judge them: see
// [Check].
func Build(locals []*topopb.LocalTopologyProto, assign bool, policy Policy) (*topopb.GlobalTopologyProto, error) {
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
		partition(tasks, policy)
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

// partition numbers partitions in the order in which a walk over tasks and
// devices meets them.
func partition(tasks []*topopb.LocalTopologyProto, policy Policy) {
	type network struct{ fabric, boot string }
	byFabric := allOnFabric(tasks)
	seen := map[network]int32{}
	for _, t := range tasks {
		for _, d := range t.Devices {
			key := network{boot: t.BootId}
			if byFabric || policy == PolicyPerDevice && onFabric(d) {
				key = network{fabric: d.FabricUuid}
			}
			index, ok := seen[key]
			if !ok {
				index = int32(len(seen))
				seen[key] = index
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

// Check judges a topology before it is published (P-TOP-7). Two tasks of one
// number are an error, and so are two devices of one task with one ordinal
// unless duplicateOrdinals allows what some clients publish. Partitions that
// are not numbered 0, 1, 2 and so on are only worth a warning.
func Check(g *topopb.GlobalTopologyProto, duplicateOrdinals bool) (warnings []string, err error) {
	tasks := map[int32]bool{}
	var partitions []int32
	for _, t := range g.GetProcesses() {
		if tasks[t.GetProcessId()] {
			return nil, &serry.InvalidError{What: fmt.Sprintf("two entries for task %d in one topology", t.GetProcessId())}
		}
		tasks[t.GetProcessId()] = true
		ordinals := map[int32]bool{}
		for _, d := range t.GetDevices() {
			if ordinals[d.GetLocalDeviceOrdinal()] && !duplicateOrdinals {
				return nil, &serry.InvalidError{What: fmt.Sprintf("task %d has two devices with ordinal %d",
					t.GetProcessId(), d.GetLocalDeviceOrdinal())}
			}
			ordinals[d.GetLocalDeviceOrdinal()] = true
			partitions = append(partitions, d.GetPartitionIndex())
		}
	}
	slices.Sort(partitions)
	partitions = slices.Compact(partitions)
	if n := len(partitions); n > 0 && (partitions[0] != 0 || partitions[n-1] != int32(n-1)) {
		warnings = append(warnings, "partitions are not numbered from 0 without a gap: "+listed(partitions))
	}
	return warnings, nil
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
