package topo

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
)

// ErrTaskList means that a list of task states is not about the same tasks as
// the one before it (C-DINC-7).
var ErrTaskList = errors.New("list of task states is not about the same tasks as before")

// ErrNoIncarnation means that it is not known which life of its task a device
// belongs to (C-DINC-5).
var ErrNoIncarnation = errors.New("incarnation not known")

// A TaskInfo is one line of the list of task states that the service hands out.
type TaskInfo struct {
	Task        serry.TaskID
	State       serry.TaskState
	Incarnation serry.Incarnation
}

// An Ended is one life of a task that is over. Every communicator that counted
// on it must be aborted: see [Clique.Holds].
type Ended struct {
	Task        serry.TaskID
	Incarnation serry.Incarnation
	State       serry.TaskState   // what the task is in now
	Successor   serry.Incarnation // the life that took its place, or 0
}

func (e Ended) String() string {
	if e.Successor != 0 {
		return fmt.Sprintf("task %v restarted: incarnation %d took the place of %d", e.Task, e.Successor, e.Incarnation)
	}
	return fmt.Sprintf("task %v is %v: incarnation %d has ended", e.Task, e.State, e.Incarnation)
}

// Lives follows the lives of the tasks through the lists of states that the
// service hands out, and says which have ended. The zero value knows nothing
// yet; it is not for use by several goroutines at a time.
type Lives struct {
	list []TaskInfo // sorted by task, or nil before the first list
}

// Update takes the newest list, in any order, and returns the lives that have
// ended since the one before, by task. The first list ends none. A list of other
// tasks than before changes nothing and is an error.
func (l *Lives) Update(list []TaskInfo) ([]Ended, error) {
	next := slices.Clone(list)
	slices.SortFunc(next, func(a, b TaskInfo) int { return a.Task.Compare(b.Task) })
	if l.list == nil {
		if i := firstTwice(next); i >= 0 {
			return nil, fmt.Errorf("%w: task %v is there twice", ErrTaskList, next[i].Task)
		}
		l.list = next
		return nil, nil
	}
	if len(next) != len(l.list) {
		return nil, fmt.Errorf("%w: %d tasks, %d before", ErrTaskList, len(next), len(l.list))
	}
	var ended []Ended
	for i, now := range next {
		was := l.list[i]
		if now.Task != was.Task {
			return nil, fmt.Errorf("%w: task %v, before %v", ErrTaskList, now.Task, was.Task)
		}
		if was.State != serry.Connected || now.State == serry.Connected && now.Incarnation == was.Incarnation {
			continue
		}
		e := Ended{Task: was.Task, Incarnation: was.Incarnation, State: now.State}
		if now.Incarnation != was.Incarnation {
			e.Successor = now.Incarnation
		}
		ended = append(ended, e)
	}
	l.list = next
	return ended, nil
}

func firstTwice(sorted []TaskInfo) int {
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Task == sorted[i-1].Task {
			return i
		}
	}
	return -1
}

// Fail takes a report that a task has failed, ahead of the next list. Before the
// first list there is nothing to end; a task that no list had is
// serry.ErrUnknownTask (C-DINC-8).
func (l *Lives) Fail(task serry.TaskID) ([]Ended, error) {
	if l.list == nil {
		return nil, nil
	}
	i, ok := slices.BinarySearchFunc(l.list, task, func(t TaskInfo, id serry.TaskID) int { return t.Task.Compare(id) })
	if !ok {
		return nil, fmt.Errorf("task %v: %w", task, serry.ErrUnknownTask)
	}
	was := l.list[i]
	l.list[i].State = serry.Failed
	if was.State != serry.Connected {
		return nil, nil
	}
	return []Ended{{Task: task, Incarnation: was.Incarnation, State: serry.Failed}}, nil
}

// Check reports whether a collective may start among these lives: all must be
// connected, as far as a list has come (C-DINC-9).
func (l *Lives) Check(incarnations []serry.Incarnation) error {
	if l.list == nil {
		return nil
	}
	connected := map[serry.Incarnation]bool{}
	for _, t := range l.list {
		if t.State == serry.Connected {
			connected[t.Incarnation] = true
		}
	}
	for _, inc := range incarnations {
		if !connected[inc] {
			return fmt.Errorf("incarnation %d: %w", inc, serry.ErrNotConnected)
		}
	}
	return nil
}

// DeviceLives says for each device which life of its task it belongs to.
// Missing lists the tasks of the topology that tasks does not have (C-DINC-3).
func DeviceLives(t *Topology, tasks map[Task]serry.Incarnation) (lives map[serry.DeviceID]serry.Incarnation, missing []Task) {
	lives = map[serry.DeviceID]serry.Incarnation{}
	for _, task := range t.Tasks() {
		inc, ok := tasks[task]
		if !ok {
			missing = append(missing, task)
			continue
		}
		for _, d := range t.byTask[task] {
			lives[d.ID] = inc
		}
	}
	return lives, missing
}

// A Clique names a group of devices in given lives. Two groups of the same
// devices are different cliques when one of the tasks has restarted in between.
type Clique struct {
	devices      []serry.DeviceID
	incarnations []serry.Incarnation // sorted, each once; empty when lives are not known
}

// NewClique makes the name of a group. With no lives at all it names devices
// only; with some, every device must have one (C-DINC-4, C-DINC-5).
func NewClique(devices []serry.DeviceID, lives map[serry.DeviceID]serry.Incarnation) (Clique, error) {
	c := Clique{devices: slices.Clone(devices)}
	if len(lives) == 0 {
		return c, nil
	}
	for _, d := range devices {
		inc, ok := lives[d]
		if !ok {
			return Clique{}, fmt.Errorf("device %d: %w", d, ErrNoIncarnation)
		}
		c.incarnations = append(c.incarnations, inc)
	}
	slices.Sort(c.incarnations)
	c.incarnations = slices.Compact(c.incarnations)
	return c, nil
}

// Devices are the members in their order.
func (c Clique) Devices() []serry.DeviceID { return slices.Clone(c.devices) }

// Incarnations are the lives it counts on, sorted, each once.
func (c Clique) Incarnations() []serry.Incarnation { return slices.Clone(c.incarnations) }

// Holds says whether the clique counts on a life, and so must go when it ends.
func (c Clique) Holds(inc serry.Incarnation) bool {
	_, ok := slices.BinarySearch(c.incarnations, inc)
	return ok
}

// String names the clique; two cliques are the same if their names are.
func (c Clique) String() string {
	var b strings.Builder
	b.WriteString("devices=")
	writeList(&b, c.devices)
	if len(c.incarnations) > 0 {
		b.WriteString(" incarnations=")
		writeList(&b, c.incarnations)
	}
	return b.String()
}

func writeList[T cmp.Ordered](b *strings.Builder, items []T) {
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(b, item)
	}
}
