package collective

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// A GroupMode says what the ids in replica groups stand for.
type GroupMode uint8

// The modes, with the names that XLA gives them.
const (
	CrossReplica             GroupMode = iota // replicas; each partition has groups of its own
	CrossPartition                            // partitions; each replica has groups of its own
	CrossReplicaAndPartition                  // replicas; all their partitions are in the group
	FlattenedID                               // replica times the number of partitions, plus partition
)

var modeNames = [...]string{"cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id"}

// String is the name of the mode.
func (m GroupMode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return fmt.Sprintf("mode %d", m)
}

// ParseGroupMode finds a mode by its name.
func ParseGroupMode(name string) (GroupMode, error) {
	i := slices.Index(modeNames[:], name)
	if i < 0 {
		return 0, invalid("group mode %q", name)
	}
	return GroupMode(i), nil
}

// A Table has the device of each replica (first index) and partition (second index) of a program. Rows are equally long.
type Table [][]serry.DeviceID

// ReplicaGroups says which devices of a program work together in an operation: groups of ids, whose meaning is that
// of the mode. No groups at all are one group of all ids.
type ReplicaGroups struct {
	Mode   GroupMode
	Groups [][]int
}

// partitions is the length of a row.
func (t Table) partitions() int {
	if len(t) == 0 {
		return 0
	}
	return len(t[0])
}

// check says what is wrong with the table.
func (t Table) check() error {
	for _, row := range t {
		if len(row) != t.partitions() {
			return invalid("replicas with %d and %d partitions", t.partitions(), len(row))
		}
	}
	if t.partitions() == 0 {
		return invalid("no devices")
	}
	return nil
}

// ids is how many ids the mode has.
func (g ReplicaGroups) ids(t Table) int {
	switch g.Mode {
	case CrossPartition:
		return t.partitions()
	case FlattenedID:
		return len(t) * t.partitions()
	default:
		return len(t)
	}
}

// Check says what is wrong with the groups: an empty one, an id that is missing, unknown or there twice, or groups of
// different sizes where uneven is false. Only all-reduce and reduce may have uneven groups (CL-GRP-4).
func (g ReplicaGroups) Check(t Table, uneven bool) error {
	if _, err := g.Flatten(t); err != nil {
		return err
	}
	total := 0
	for _, group := range g.Groups {
		total += len(group)
		if !uneven && len(group) != len(g.Groups[0]) {
			return invalid("replica groups of %d and %d ids", len(g.Groups[0]), len(group))
		}
	}
	if n := g.ids(t); total != n && len(g.Groups) > 0 {
		return invalid("replica groups have %d ids, want all of 0 to %d", total, n-1)
	}
	return nil
}

// Flatten is the same groups in the mode FlattenedID: the order is that in which Devices has them.
func (g ReplicaGroups) Flatten(t Table) ([][]int, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	groups, n := g.Groups, g.ids(t)
	switch {
	case int(g.Mode) >= len(modeNames):
		return nil, invalid("group %v", g.Mode)
	case len(groups) == 0 && g.Mode == FlattenedID:
		return nil, invalid("no replica groups, which %v needs", g.Mode)
	case len(groups) == 0:
		groups = [][]int{make([]int, n)}
		for i := range n {
			groups[0][i] = i
		}
	}
	seen := make(map[int]bool)
	for _, group := range groups {
		if len(group) == 0 {
			return nil, invalid("an empty replica group")
		}
		for _, id := range group {
			if id < 0 || id >= n || seen[id] {
				return nil, invalid("id %d in replica groups, want each of 0 to %d once", id, n-1)
			}
			seen[id] = true
		}
	}
	var flat [][]int
	for _, group := range groups {
		flat = append(flat, g.flatten(t, group)...)
	}
	return flat, nil
}

// flatten is one group of ids as groups of flattened ids (CL-GRP-2).
func (g ReplicaGroups) flatten(t Table, group []int) (flat [][]int) {
	replicas, partitions := len(t), t.partitions()
	switch g.Mode {
	case CrossReplica:
		for p := range partitions {
			flat = append(flat, mapped(group, func(r int) int { return r*partitions + p }))
		}
	case CrossPartition:
		for r := range replicas {
			flat = append(flat, mapped(group, func(p int) int { return r*partitions + p }))
		}
	case CrossReplicaAndPartition:
		var all []int
		for _, r := range group {
			for p := range partitions {
				all = append(all, r*partitions+p)
			}
		}
		flat = [][]int{all}
	default:
		flat = [][]int{group}
	}
	return flat
}

func mapped[A, B any](list []A, f func(A) B) []B {
	out := make([]B, len(list))
	for i, v := range list {
		out[i] = f(v)
	}
	return out
}

// Devices are the groups of devices that work together, each in the order of its ranks.
func (g ReplicaGroups) Devices(t Table) ([][]serry.DeviceID, error) {
	flat, err := g.Flatten(t)
	if err != nil {
		return nil, err
	}
	return mapped(flat, func(group []int) []serry.DeviceID {
		return mapped(group, func(id int) serry.DeviceID { return t[id/t.partitions()][id%t.partitions()] })
	}), nil
}

// Of is the group of one device, in the order of ranks: what [Group.Clique] takes. A device that is in no group has no
// part in the operation (CL-GRP-5).
func (g ReplicaGroups) Of(t Table, d serry.DeviceID) ([]serry.DeviceID, error) {
	groups, err := g.Devices(t)
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		if slices.Contains(group, d) {
			return group, nil
		}
	}
	for r, row := range t {
		if p := slices.Index(row, d); p >= 0 {
			return nil, fmt.Errorf("replica ID %d, partition %d (device %d) doesn't appear in replica groups: %w", r, p, d, ErrFault)
		}
	}
	return nil, fmt.Errorf("device %d doesn't appear in replica groups: %w", d, ErrFault)
}

// Degenerate says whether every group has one device. Such an operation is a copy and needs no communication: the clique
// of one device is formed without any other process (CL-GRP-6).
func (g ReplicaGroups) Degenerate(t Table) (bool, error) {
	flat, err := g.Flatten(t)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(flat, func(group []int) bool { return len(group) > 1 }), nil
}
