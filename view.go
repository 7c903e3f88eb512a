package serry

import "time"

// An Entry is a key with its value.
type Entry struct {
	Key   string
	Value []byte
}

// A KeyEvent is a change of a key.
type KeyEvent struct {
	Entry
	Deleted  bool
	Revision int64
}

// A TaskInfo is what others may know of a task.
type TaskInfo struct {
	Task        TaskID
	State       TaskState
	Incarnation Incarnation // 0 if it never registered
	Err         error       // why it failed, or nil
}

// A Snapshot is every task of the job at one version. Versions rise with every change, so of two
// Snapshots the one with the higher version is the later one.
type Snapshot struct {
	Version int64
	Tasks   []TaskInfo // sorted
}

// BarrierOptions say who meets at a barrier and how long the first waits for the last. The zero
// value means all tasks, and as long as the caller's context lets it.
type BarrierOptions struct {
	Among   []TaskID
	Timeout time.Duration
}

// An Agreement is one outcome for all living callers of a set: every one of them gets the same.
type Agreement struct {
	Alive map[TaskID]Incarnation
	Words map[TaskID][]byte // what each of them handed in, where it did
}

// Evidence is what a task saw of another. It is hard where the process of the other is known to
// have ended: its exit was seen, or its port refuses connections.
type Evidence struct {
	Hard   bool
	Detail string // "process exited: signal 9"
}
