package topo

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// An Alive is one line of the answer to the question who is alive: a task, its
// life, and the word it brought to the round, which is how its block ended;
// empty when it ended well, or when the task sends none, as jaxlib does.
type Alive struct {
	Task        Task
	Incarnation serry.Incarnation
	Word        string
}

// A Member is a device that is there, in a given life of its task.
type Member struct {
	Device
	Incarnation serry.Incarnation
	Fresh       bool // was not there in this life the round before
}

// A LiveGroup is the memory of a task that works in blocks with whichever of a
// list of devices are alive. All tasks of the group make one round of questions
// after each block, and one before the first; the group says what a round's
// answer means (C-LIVE-1 to 5). Each list of devices has a group of its own. It
// is not for use by several goroutines at a time.
//
//	members, ok := group.Members()
//	if !ok {
//		members, err = group.Admit(round(group.Tasks(), ""))
//	}
//	err = work(members)
//	err = group.Exit(round(group.Tasks(), word(err)), err)
type LiveGroup struct {
	devices []Device // sorted by id; set in NewLiveGroup, then constant
	self    Task
	members []Member // of the last round
	round   bool     // there was one
}

// NewLiveGroup makes the group of a list of devices, of which the task's own
// must have one.
func NewLiveGroup(devices []Device, self Task) (*LiveGroup, error) {
	if len(devices) == 0 {
		return nil, &serry.InvalidError{What: "live devices of an empty list"}
	}
	g := &LiveGroup{devices: slices.Clone(devices), self: self}
	slices.SortFunc(g.devices, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(g.devices); i++ {
		if g.devices[i].ID == g.devices[i-1].ID {
			return nil, &serry.InvalidError{What: fmt.Sprintf("device %d is listed twice", g.devices[i].ID)}
		}
	}
	if !slices.ContainsFunc(devices, func(d Device) bool { return d.Task == self }) {
		return nil, &serry.InvalidError{What: fmt.Sprintf("none of the %d devices belongs to task %d", len(devices), self)}
	}
	return g, nil
}

// Tasks lists whom to ask about: the owners of the devices.
func (g *LiveGroup) Tasks() []Task {
	var tasks []Task
	for _, d := range g.devices {
		tasks = append(tasks, d.Task)
	}
	slices.Sort(tasks)
	return slices.Compact(tasks)
}

// Members lists the devices to work with, by id, as the last round left them. It
// is false before the first round; then the answer of one goes to Admit.
func (g *LiveGroup) Members() ([]Member, bool) {
	return slices.Clone(g.members), g.round
}

// Admit takes the answer of the first round, which no block came before.
func (g *LiveGroup) Admit(alive []Alive) ([]Member, error) {
	if err := g.take(alive); err != nil {
		return nil, err
	}
	return slices.Clone(g.members), nil
}

// Exit takes the answer of the round after a block and how the block ended on
// this task. It returns a [LiveError] if a device of the block has failed since:
// its task is gone, or is in another life. Otherwise it returns body, and
// otherwise, if the block ended badly elsewhere, a LiveError that says so. The
// members are those of the answer from now on, whatever it returns.
func (g *LiveGroup) Exit(alive []Alive, body error) error {
	before := g.members
	if err := g.take(alive); err != nil {
		return err
	}
	now := map[serry.DeviceID]serry.Incarnation{}
	for _, m := range g.members {
		now[m.ID] = m.Incarnation
	}
	failure := &LiveError{Err: body}
	for _, m := range before {
		if inc, ok := now[m.ID]; !ok || inc != m.Incarnation {
			failure.Failed = append(failure.Failed, m.Device)
		}
	}
	for _, a := range alive {
		if a.Word != "" && a.Task != g.self {
			failure.Words = append(failure.Words, a)
		}
	}
	slices.SortFunc(failure.Words, func(a, b Alive) int { return cmp.Compare(a.Task, b.Task) })
	if len(failure.Failed) > 0 || body == nil && len(failure.Words) > 0 {
		return failure
	}
	return body
}

// take makes the answer of a round the present membership.
func (g *LiveGroup) take(alive []Alive) error {
	lives := map[Task]serry.Incarnation{}
	for _, a := range alive {
		if _, ok := lives[a.Task]; ok {
			return &serry.InvalidError{What: fmt.Sprintf("task %d is twice in the answer of a round", a.Task)}
		}
		lives[a.Task] = a.Incarnation
	}
	if _, ok := lives[g.self]; !ok {
		return &serry.InvalidError{What: fmt.Sprintf("task %d is not in the answer to its own question", g.self)}
	}
	before := map[serry.DeviceID]serry.Incarnation{}
	for _, m := range g.members {
		before[m.ID] = m.Incarnation
	}
	var members []Member
	for _, d := range g.devices {
		if inc, ok := lives[d.Task]; ok {
			was, there := before[d.ID]
			members = append(members, Member{Device: d, Incarnation: inc, Fresh: !there || was != inc})
		}
	}
	g.members, g.round = members, true
	return nil
}

// A LiveError says which devices failed during a block, and how the block ended
// on tasks that are alive.
type LiveError struct {
	Failed []Device // by id
	Words  []Alive  // of other tasks whose block ended badly, by task
	Err    error    // how it ended on this task, or nil
}

func (e *LiveError) Error() string {
	var text string
	if len(e.Failed) > 0 {
		var ids []serry.DeviceID
		for _, d := range e.Failed {
			ids = append(ids, d.ID)
		}
		text = fmt.Sprintf("%d devices failed: %s", len(ids), listed(ids))
	}
	for i, w := range e.Words {
		if i == maxListed {
			text += fmt.Sprintf("; and %d more", len(e.Words)-i)
			break
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("task %d: %s", w.Task, w.Word)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap makes how the block ended on this task visible to errors.Is.
func (e *LiveError) Unwrap() error { return e.Err }

// A Quorum says how many must be there for work to make sense (P-LIVE-3).
type Quorum struct {
	Tasks           int  // at least so many tasks
	WholePartitions bool // no partition of the group may lack a device
}

// Lacking says what the members of a group lack for the quorum, or nothing.
func (g *LiveGroup) Lacking(q Quorum) string {
	tasks, have := map[Task]bool{}, map[int]int{}
	for _, m := range g.members {
		tasks[m.Task] = true
		have[m.Partition]++
	}
	if len(tasks) < q.Tasks {
		return fmt.Sprintf("%d tasks are there; %d are needed", len(tasks), q.Tasks)
	}
	if !q.WholePartitions {
		return ""
	}
	want := map[int]int{}
	for _, d := range g.devices {
		want[d.Partition]++
	}
	for _, d := range g.devices {
		if n := have[d.Partition]; n > 0 && n < want[d.Partition] {
			return fmt.Sprintf("partition %d has %d of %d devices", d.Partition, n, want[d.Partition])
		}
	}
	return ""
}
