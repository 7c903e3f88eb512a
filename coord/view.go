package coord

import "github.com/serry-dev/serry"

// A View is a picture of the whole machine for people: status, page, progress lines, metrics.
type View struct {
	Epoch   int
	Service serry.Incarnation
	Version int64
	Now     Time
	Stopped bool
	Failure error // the first error that was told to all tasks, or nil

	Tasks    []TaskView    // sorted by task
	Barriers []BarrierView // open ones, in the order they were opened

	Keys       int
	StoreBytes int64
	Waiters    int // waiting calls of every kind
	Watchers   int
	Polls      int
}

// A TaskView is a task in a [View].
type TaskView struct {
	TaskInfo
	Since       Time // when it took this state
	Registering bool // it waits for the others to register
	Departed    bool // no call of its incarnation can come any more
}

// A BarrierView is an open barrier in a [View].
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
