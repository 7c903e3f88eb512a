// Package serry holds the words that every part of serry shares: who a task is, which life of it is
// meant, what state it is in, and how things fail.
//
// A job is a set of tasks, each named by a [TaskID]. Every process that takes the place of a task
// draws an [Incarnation], so that a restarted process is never taken for the one before it. The
// errors here are what a caller of any package can meet: a sentinel says what happened
// (errors.Is), a type says the facts (errors.As). They cross the wire and come back the same.
package serry

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A TaskID names a task: its job and its number within the job. The zero TaskID names no task. A task
// is a role and not a process: when its process dies and another takes its place, the TaskID stays and
// the [Incarnation] changes.
type TaskID struct {
	Job   string
	Index int
}

// String prints the task as "worker/3".
func (t TaskID) String() string { return t.Job + "/" + strconv.Itoa(t.Index) }

// IsZero says whether t names no task.
func (t TaskID) IsZero() bool { return t == TaskID{} }

// Compare orders tasks by job name, then by number.
func (t TaskID) Compare(u TaskID) int {
	return cmp.Or(strings.Compare(t.Job, u.Job), cmp.Compare(t.Index, u.Index))
}

// ParseTaskID reads what [TaskID.String] prints.
func ParseTaskID(s string) (TaskID, error) {
	job, index, ok := cutLast(s, '/')
	n, err := strconv.Atoi(index)
	if !ok || job == "" || err != nil || n < 0 {
		return TaskID{}, fmt.Errorf("task %q: want job/number, such as worker/3", s)
	}
	return TaskID{Job: job, Index: n}, nil
}

func cutLast(s string, sep byte) (before, after string, found bool) {
	i := strings.LastIndexByte(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// An Incarnation tells one life of a process from the next: a random number, drawn anew by every
// process that takes the place of a task, and by the service for every epoch. Zero means none.
type Incarnation uint64

// A Life is one incarnation of a task: what a process is to the service from its registration until it
// leaves, fails or is replaced.
type Life struct {
	Task        TaskID
	Incarnation Incarnation
}

// Compare orders lives by task, then by incarnation.
func (l Life) Compare(m Life) int {
	return cmp.Or(l.Task.Compare(m.Task), cmp.Compare(l.Incarnation, m.Incarnation))
}

// A StoreID names the store that holds the journal of a service: a random number, drawn once when the
// store is first led. Terms ascend within one store; those of two stores cannot be compared. Zero means
// none.
type StoreID uint64

// NewStoreID draws the number of a new store.
func NewStoreID() StoreID { return StoreID(1 + rand.Uint64N(math.MaxUint64)) }

// A TaskIndex is the number of a task where its job is known: the Index of its [TaskID].
type TaskIndex int

// A DeviceID numbers a device in the whole job, over all tasks.
type DeviceID int

// A TaskState is where a task stands with the service. It is decided by the service alone: a process
// that hangs is Connected until a detector has found it.
type TaskState int

// The states of a task. A task that has not come yet is Disconnected, like one that has left.
const (
	Disconnected TaskState = iota
	Connected
	Failed
)

// String is one lower-case word.
func (s TaskState) String() string {
	switch s {
	case Disconnected:
		return "disconnected"
	case Connected:
		return "connected"
	case Failed:
		return "failed"
	}
	return "state " + strconv.Itoa(int(s))
}
