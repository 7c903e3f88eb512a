package topo

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/serry-dev/serry"
)

// A Level says what makes one believe that a device now is a device then. The
// lower the stronger (P-RMP-3).
type Level int

const (
	ByDevice  Level = iota + 1 // the same uuid or serial number
	BySlot                     // the same machine and bus address, or place in its torus
	ByOrdinal                  // the same machine, ordinal and kind
	ByTask                     // the same task number and ordinal: what Orbax believes by default
	ByID                       // the same global id
)

// String names the evidence.
func (l Level) String() string {
	names := []string{"", "same device", "same slot", "same ordinal on the machine", "same task number", "same device id"}
	if l > 0 && int(l) < len(names) {
		return names[l]
	}
	return "level " + strconv.Itoa(int(l))
}

// A DeviceRef names a device at one time: its id and the task that owns it.
type DeviceRef struct {
	Task   serry.TaskIndex
	Device serry.DeviceID
}

// A Pair is one device at two times.
type Pair struct {
	Was, Now DeviceRef
	Level    Level
}

// A Matching says what became of every device.
type Matching struct {
	Pairs []Pair      // by the id the device had
	Lost  []DeviceRef // were there and are not, by id
	New   []DeviceRef // are there and were not, by id
}

// Now returns the id that a device of then has now.
func (m *Matching) Now(was serry.DeviceID) (serry.DeviceID, bool) {
	i, ok := slices.BinarySearchFunc(m.Pairs, was, func(p Pair, id serry.DeviceID) int { return cmp.Compare(p.Was.Device, id) })
	if !ok {
		return 0, false
	}
	return m.Pairs[i].Now.Device, true
}

// Evidence returns for each task of now the weakest evidence that was used for
// one of its devices. Tasks without a matched device are not in it.
func (m *Matching) Evidence() map[serry.TaskIndex]Level {
	levels := map[serry.TaskIndex]Level{}
	for _, p := range m.Pairs {
		levels[p.Now.Task] = max(levels[p.Now.Task], p.Level)
	}
	return levels
}

// A DuplicateError says that two tasks claim to own one device.
type DuplicateError struct {
	A, B     serry.TaskIndex
	Evidence string
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("tasks %d and %d both claim the device with %s", e.A, e.B, e.Evidence)
}

// A candidate is a device with the task it belongs to.
type candidate struct {
	task   *TaskRecord
	device *DeviceRecord
	taken  bool
}

func (c *candidate) ref() DeviceRef { return DeviceRef{c.task.Task, c.device.ID} }

// evidence is one way to know a device again: what makes its key, or an empty
// text for a device that this way cannot tell.
type evidence struct {
	level Level
	key   func(c *candidate) string
}

func ways() []evidence {
	return []evidence{
		{ByDevice, func(c *candidate) string { return named("uuid ", c.device.UUID) }},
		{ByDevice, func(c *candidate) string { return named("serial number ", c.device.Serial) }},
		{BySlot, func(c *candidate) string { return onMachine(c, named("bus address ", c.device.PCI)) }},
		{BySlot, func(c *candidate) string { return onMachine(c, torusPlace(c.device)) }},
		{ByOrdinal, func(c *candidate) string {
			return onMachine(c, fmt.Sprintf("ordinal %d of %s %s", c.device.Ordinal, c.device.Platform, c.device.Kind))
		}},
		{ByTask, func(c *candidate) string { return fmt.Sprintf("task %d, ordinal %d", c.task.Task, c.device.Ordinal) }},
		{ByID, func(c *candidate) string { return fmt.Sprintf("id %d", c.device.ID) }},
	}
}

func named(what, value string) string {
	if value == "" {
		return ""
	}
	return what + strconv.Quote(value)
}

func onMachine(c *candidate, what string) string {
	if c.task.MachineID == "" || what == "" {
		return ""
	}
	return what + " on machine " + strconv.Quote(c.task.MachineID)
}

func torusPlace(d *DeviceRecord) string {
	if d.Coords == nil {
		return ""
	}
	core := 0
	if d.Core != nil {
		core = *d.Core
	}
	return fmt.Sprintf("coordinates %v core %d", d.Coords, core)
}

// Match finds the devices of was among those of now, strongest evidence first,
// with nothing weaker than weakest. Evidence that fits more than one device
// proves nothing and is passed over; evidence that speaks against a pair (two
// uuids, two machines) rules it out on every level. Two tasks of now that claim
// one device are a [DuplicateError].
func Match(was, now []TaskRecord, weakest Level) (*Matching, error) {
	before, present := candidates(was), candidates(now)
	m := &Matching{}
	for _, way := range ways() {
		if way.level > weakest {
			break
		}
		if way.level <= BySlot {
			if err := checkClaims(present, way); err != nil {
				return nil, err
			}
		}
		m.Pairs = append(m.Pairs, pairUp(before, present, way)...)
	}
	slices.SortFunc(m.Pairs, func(a, b Pair) int { return cmp.Compare(a.Was.Device, b.Was.Device) })
	m.Lost, m.New = unmatched(before), unmatched(present)
	return m, nil
}

func candidates(tasks []TaskRecord) []*candidate {
	var all []*candidate
	for i := range tasks {
		for j := range tasks[i].Devices {
			all = append(all, &candidate{task: &tasks[i], device: &tasks[i].Devices[j]})
		}
	}
	return all
}

func checkClaims(present []*candidate, way evidence) error {
	owner := map[string]serry.TaskIndex{}
	for _, c := range present {
		key := way.key(c)
		if key == "" {
			continue
		}
		if other, ok := owner[key]; ok && other != c.task.Task {
			return &DuplicateError{A: min(other, c.task.Task), B: max(other, c.task.Task), Evidence: key}
		}
		owner[key] = c.task.Task
	}
	return nil
}

// pairUp takes every device that one way of telling leaves no doubt about.
func pairUp(before, present []*candidate, way evidence) []Pair {
	then, now := byKey(before, way), byKey(present, way)
	var pairs []Pair
	for _, c := range before {
		key := way.key(c)
		if c.taken || key == "" || len(then[key]) != 1 || len(now[key]) != 1 {
			continue
		}
		d := now[key][0]
		if contradict(c, d) {
			continue
		}
		c.taken, d.taken = true, true
		pairs = append(pairs, Pair{Was: c.ref(), Now: d.ref(), Level: way.level})
	}
	return pairs
}

func byKey(all []*candidate, way evidence) map[string][]*candidate {
	keys := map[string][]*candidate{}
	for _, c := range all {
		if key := way.key(c); !c.taken && key != "" {
			keys[key] = append(keys[key], c)
		}
	}
	return keys
}

// contradict says whether something known of both rules out that they are one.
// A device may wander from machine to machine with its uuid; without one, two
// machines are two devices.
func contradict(a, b *candidate) bool {
	differ := func(x, y string) bool { return x != "" && y != "" && x != y }
	sameDevice := a.device.UUID != "" && a.device.UUID == b.device.UUID || a.device.Serial != "" && a.device.Serial == b.device.Serial
	return differ(a.device.UUID, b.device.UUID) || differ(a.device.Serial, b.device.Serial) ||
		differ(a.device.Platform, b.device.Platform) || !sameDevice && differ(a.task.MachineID, b.task.MachineID)
}

func unmatched(all []*candidate) []DeviceRef {
	var refs []DeviceRef
	for _, c := range all {
		if !c.taken {
			refs = append(refs, c.ref())
		}
	}
	slices.SortFunc(refs, func(a, b DeviceRef) int { return cmp.Compare(a.Device, b.Device) })
	return refs
}
