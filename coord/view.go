package coord

import "github.com/serry-dev/serry"

// A View is a picture of the whole machine for people: status, page, progress lines, metrics. It
// is a copy. The owner may hand it to other goroutines while the machine goes on.
//
// Programs use the answers of calls instead: a View says more than any client may rely on, and
// costs a walk through all tasks.
type View struct {
	Epoch   int
	Service serry.Incarnation
	Earlier serry.Incarnation // of the service in the epoch before, 0 in the first
	Version int64
	Now     Time
	Stopped bool
	Failure error // the first error that was told to all tasks, or nil

	// A picture of ten thousand tasks has ten thousand entries here.
	Tasks    []TaskView    // sorted by task
	Barriers []BarrierView // open ones, in the order they were opened

	Keys       int
	StoreBytes int64
	Waiters    int // waiting calls of every kind
	Watchers   int
	Polls      int
}

// A TaskView is a task in a [View]: what any watcher hears of it, and what an operator wants to
// know besides.
type TaskView struct {
	TaskInfo
	Since       Time // when it took this state
	Registering bool // it waits for the others to register
	Departed    bool // no call of its incarnation can come any more
}

// A BarrierView is an open barrier in a [View]. Missing is the answer to the question that an
// operator asks most: for whom do all the others wait?
type BarrierView struct {
	ID       string
	Counter  int64
	Members  int
	Arrived  int
	First    serry.TaskID
	Missing  []serry.TaskID // sorted
	Since    Time
	Deadline Time // negative: none
}

// StoreBytes is the size of all keys and values together. The owner asks it after every batch, to
// decide when a snapshot is worth its cost.
func (m *Machine) StoreBytes() int64 { return m.ep.keys.bytes }

// Failed says whether the job has failed: then the next epoch may open when all have departed
// (C-EPOCH-2b).
func (m *Machine) Failed() bool { return m.ep.failed }

// View draws a picture of the machine. It changes nothing, so it needs no record.
func (m *Machine) View() View {
	v := View{
		Epoch: m.number, Service: m.ep.service, Earlier: m.formerService, Version: m.version, Now: m.now,
		Stopped: m.stopped, Failure: m.ep.failure,
		Keys: m.ep.keys.tree.Len(), StoreBytes: m.ep.keys.bytes,
		Waiters: len(m.waiting), Watchers: m.ep.watchers.live(),
	}
	register := m.ep.register
	for _, t := range m.ep.tasks {
		if t.poll != nil {
			v.Polls++
		}
		v.Tasks = append(v.Tasks, TaskView{
			TaskInfo: t.info(), Since: t.since, Departed: t.departed,
			Registering: register.open && register.slots[t.at].arrived,
		})
	}
	for _, b := range m.allOpen() {
		bv := BarrierView{
			ID: b.id, Counter: b.counter, Members: len(b.slots), Arrived: b.arrived,
			First: b.first, Since: b.since, Deadline: b.deadline,
		}
		for _, t := range m.missing(b.barrier) {
			bv.Missing = append(bv.Missing, t.id)
		}
		v.Barriers = append(v.Barriers, bv)
	}
	return v
}
