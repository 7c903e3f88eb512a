package topo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/topopb"
)

// A KV is what an exchange needs of the key-value store.
type KV interface {
	// Insert stores value under key, or answers serry.ErrExists.
	Insert(ctx context.Context, key string, value []byte) error
	// Get waits until at least need of the keys are there, but no longer than
	// wait (then it answers serry.ErrTimeout), and returns all that are. With
	// need 0 it does not wait. When it fails it still returns those it has
	// seen, so that a caller can say which were missing.
	Get(ctx context.Context, keys []string, need int, wait time.Duration) (map[string][]byte, error)
	// Delete removes key, whether it is there or not.
	Delete(ctx context.Context, key string) error
}

// How long a task waits for the others unless told otherwise. That of task 0 is
// the shorter, so that it can tell the others why there is no topology before
// they give up (C-TOP-21).
const (
	LeaderWait   = 2 * time.Minute
	FollowerWait = 5 * time.Minute
)

// ErrConflict means that a task has come back with other devices than it
// published before, or that a published topology is another than the one that
// follows from the tasks' own.
var ErrConflict = errors.New("a different topology was published before, possibly before a restart")

// ErrDamaged means that a stored value cannot be read; facts in a [FileError].
var ErrDamaged = errors.New("stored value cannot be read")

// A MissingError names the tasks that had not published when the wait ended.
type MissingError struct {
	Missing []serry.TaskIndex // sorted, never empty
	Tasks   int               // how many there should be
	Err     error             // why the wait ended
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%d of %d local topologies missing, from tasks %s: %v", len(e.Missing), e.Tasks, listed(e.Missing), e.Err)
}

// Unwrap makes the end of the wait visible to errors.Is.
func (e *MissingError) Unwrap() error { return e.Err }

// A LeaderError is what task 0 left for the others when it could not build the
// topology.
type LeaderError struct {
	Text string
}

func (e *LeaderError) Error() string { return "task 0 could not build the topology: " + e.Text }

// Exchange says how one task takes part in finding out the topology of its job.
// All tasks of the job run it, Go and jaxlib alike (P-TOP-8).
type Exchange struct {
	Keys   Keys
	Self   serry.TaskIndex
	Tasks  int
	Assign bool // give out global ids; false on CPU, where they are packed
	// Wait is for the local topologies of all on task 0, for the global one on
	// others; zero means LeaderWait or FollowerWait.
	Wait time.Duration
	// AllowDuplicateOrdinals lets a task publish two devices with one ordinal.
	AllowDuplicateOrdinals bool
	// Record is published next to the local topology, or nil (P-TOP-4).
	Record *TaskRecord
}

// A Result is what an exchange found: the topology, and what has changed about
// the own task since it published before.
type Result struct {
	Global *topopb.GlobalTopologyProto
	Events []Event
}

// Run publishes local, waits for the others, and returns the topology of the
// job, the same for all. Task 0 builds it. A job of one task touches no store
// and numbers its devices by ordinal (C-TOP-14).
func (e *Exchange) Run(ctx context.Context, kv KV, local *topopb.LocalTopologyProto) (*Result, error) {
	if err := e.check(local); err != nil {
		return nil, err
	}
	if e.Tasks == 1 {
		only := proto.CloneOf(local)
		for _, d := range only.Devices {
			d.GlobalDeviceId = d.LocalDeviceOrdinal
		}
		return &Result{Global: &topopb.GlobalTopologyProto{Processes: []*topopb.LocalTopologyProto{only}}}, nil
	}
	events, err := e.publish(ctx, kv, local)
	if err != nil {
		return nil, err
	}
	var global *topopb.GlobalTopologyProto
	if e.Self == 0 {
		global, err = e.lead(ctx, kv)
	} else {
		global, err = e.follow(ctx, kv)
	}
	if err != nil {
		return nil, err
	}
	return &Result{Global: global, Events: events}, nil
}

func (e *Exchange) check(local *topopb.LocalTopologyProto) error {
	switch {
	case e.Tasks < 1 || e.Self < 0 || int(e.Self) >= e.Tasks:
		return &serry.InvalidError{What: fmt.Sprintf("task %d in a job of %d", e.Self, e.Tasks)}
	case local.GetProcessId() != int32(e.Self):
		return &serry.InvalidError{What: fmt.Sprintf("task %d publishes the topology of task %d", e.Self, local.GetProcessId())}
	}
	return validate(&topopb.GlobalTopologyProto{Processes: []*topopb.LocalTopologyProto{local}}, e.AllowDuplicateOrdinals)
}

// publish makes local and the record known. A task that comes back finds its
// former ones; they must allow it its place (C-TOP-16), and the stored local
// topology stays, since the others have built on it.
func (e *Exchange) publish(ctx context.Context, kv KV, local *topopb.LocalTopologyProto) ([]Event, error) {
	formerRecord, err := e.publishRecord(ctx, kv)
	if err != nil {
		return nil, err
	}
	value, err := Encode(local)
	if err != nil {
		return nil, err
	}
	key := e.Keys.Local(e.Self)
	err = kv.Insert(ctx, key, value)
	if err != nil && !errors.Is(err, serry.ErrExists) {
		return nil, err
	}
	former := local
	if err != nil {
		text, err := stored(ctx, kv, key)
		if err != nil {
			return nil, err
		}
		if former, err = parseLocal(text); err != nil {
			return nil, damaged(key, err)
		}
	}
	events := Changes(Publication{former, formerRecord}, Publication{local, e.Record})
	if len(hardChanges(former, local)) > 0 {
		return nil, fmt.Errorf("task %d: %w: %v", e.Self, ErrConflict, events[0])
	}
	return events, nil
}

// publishRecord puts the record of this life in the place of the former one,
// which it returns, or nil. A former record that cannot be read is no reason to
// stay away: it is replaced.
func (e *Exchange) publishRecord(ctx context.Context, kv KV) (*TaskRecord, error) {
	if e.Record == nil {
		return nil, nil
	}
	key := e.Keys.Identity(e.Self)
	value, err := e.Record.MarshalJSON()
	if err != nil {
		return nil, err
	}
	found, err := kv.Get(ctx, []string{key}, 0, 0)
	if err != nil {
		return nil, err
	}
	var former *TaskRecord
	if text, ok := found[key]; ok {
		former, _ = ParseRecord(key, text)
		if err := kv.Delete(ctx, key); err != nil {
			return nil, err
		}
	}
	return former, kv.Insert(ctx, key, value)
}

// lead is the part of task 0. What it fails of, it tells the others.
func (e *Exchange) lead(ctx context.Context, kv KV) (*topopb.GlobalTopologyProto, error) {
	if err := kv.Delete(ctx, e.Keys.Error()); err != nil { // of a former life
		return nil, err
	}
	global, err := e.build(ctx, kv)
	if err == nil {
		return global, nil
	}
	if ins := kv.Insert(ctx, e.Keys.Error(), []byte(err.Error())); ins != nil && ctx.Err() == nil {
		return nil, errors.Join(err, fmt.Errorf("telling the others: %w", ins))
	}
	return nil, err
}

func (e *Exchange) build(ctx context.Context, kv KV) (*topopb.GlobalTopologyProto, error) {
	locals, err := e.gather(ctx, kv)
	if err != nil {
		return nil, err
	}
	if err := e.checkCounts(ctx, kv); err != nil {
		return nil, err
	}
	global, err := build(locals, e.Assign)
	if err != nil {
		return nil, err
	}
	if err := validate(global, e.AllowDuplicateOrdinals); err != nil {
		return nil, err
	}
	value, err := Encode(global)
	if err != nil {
		return nil, err
	}
	err = kv.Insert(ctx, e.Keys.Global(), value)
	if err == nil {
		return global, nil
	}
	if !errors.Is(err, serry.ErrExists) {
		return nil, err
	}
	return e.confirm(ctx, kv, global)
}

// gather waits for all local topologies and puts them in order of their tasks.
func (e *Exchange) gather(ctx context.Context, kv KV) ([]*topopb.LocalTopologyProto, error) {
	keys := e.keysOf(e.Keys.Local)
	found, err := kv.Get(ctx, keys, len(keys), cmp.Or(e.Wait, LeaderWait))
	if err != nil {
		missing := &MissingError{Tasks: e.Tasks, Err: err}
		for i, key := range keys {
			if _, ok := found[key]; !ok {
				missing.Missing = append(missing.Missing, serry.TaskIndex(i))
			}
		}
		if len(missing.Missing) == 0 {
			return nil, err
		}
		return nil, missing
	}
	var locals []*topopb.LocalTopologyProto
	for i, key := range keys {
		l, err := parseLocal(found[key])
		if err != nil {
			return nil, damaged(key, err)
		}
		if l.ProcessId != int32(i) { // C-TOP-23
			return nil, &serry.InvalidError{What: fmt.Sprintf("key %q holds the topology of task %d", key, l.ProcessId)}
		}
		locals = append(locals, l)
	}
	return locals, nil
}

// checkCounts finds a task that was started with another number of tasks in
// mind, as far as tasks have published what they believe (C-DINC-12).
func (e *Exchange) checkCounts(ctx context.Context, kv KV) error {
	if e.Record == nil {
		return nil
	}
	keys := e.keysOf(e.Keys.Identity)
	found, err := kv.Get(ctx, keys, 0, 0)
	if err != nil {
		return err
	}
	for i, key := range keys {
		text, ok := found[key]
		if !ok {
			continue
		}
		r, err := ParseRecord(key, text)
		if err != nil {
			return damaged(key, err)
		}
		if r.Tasks != 0 && r.Tasks != e.Tasks {
			return &serry.InvalidError{What: fmt.Sprintf("task %d believes in %d tasks, task %d in %d", i, r.Tasks, e.Self, e.Tasks)}
		}
	}
	return nil
}

// confirm is for a task 0 that comes back and finds the topology it had built:
// it is the same one, since the local ones have stayed.
func (e *Exchange) confirm(ctx context.Context, kv KV, built *topopb.GlobalTopologyProto) (*topopb.GlobalTopologyProto, error) {
	key := e.Keys.Global()
	text, err := stored(ctx, kv, key)
	if err != nil {
		return nil, err
	}
	former, err := parseGlobal(text)
	if err != nil {
		return nil, damaged(key, err)
	}
	if !proto.Equal(former, built) {
		return nil, fmt.Errorf("key %q: %w", key, ErrConflict)
	}
	return former, nil
}

// follow is the part of all others: take what task 0 says, or why it says none.
func (e *Exchange) follow(ctx context.Context, kv KV) (*topopb.GlobalTopologyProto, error) {
	key, reason := e.Keys.Global(), e.Keys.Error()
	found, err := kv.Get(ctx, []string{key, reason}, 1, cmp.Or(e.Wait, FollowerWait))
	value, ok := found[key]
	switch {
	case ok:
	case err != nil:
		return nil, fmt.Errorf("global topology of task 0: %w", err)
	default:
		return nil, &LeaderError{Text: string(found[reason])}
	}
	global, err := parseGlobal(value)
	if err != nil {
		return nil, damaged(key, err)
	}
	if n := len(global.Processes); n != e.Tasks {
		return nil, &serry.InvalidError{What: fmt.Sprintf("task 0 believes in %d tasks, task %d in %d", n, e.Self, e.Tasks)}
	}
	if !slices.ContainsFunc(global.Processes, func(l *topopb.LocalTopologyProto) bool { return l.ProcessId == int32(e.Self) }) {
		return nil, &serry.InvalidError{What: fmt.Sprintf("task %d is not in the topology of task 0", e.Self)}
	}
	return global, nil
}

// stored reads a key that is known to be there.
func stored(ctx context.Context, kv KV, key string) ([]byte, error) {
	found, err := kv.Get(ctx, []string{key}, 0, 0)
	if err != nil {
		return nil, err
	}
	value, ok := found[key]
	if !ok {
		return nil, &serry.KeyError{Key: key, Err: serry.ErrNotFound}
	}
	return value, nil
}

func (e *Exchange) keysOf(key func(serry.TaskIndex) string) []string {
	keys := make([]string, e.Tasks)
	for i := range keys {
		keys[i] = key(serry.TaskIndex(i))
	}
	return keys
}

// damaged names the key of a value that does not parse (C-TOP-22).
func damaged(key string, err error) error {
	return &FileError{File: key, Reason: err.Error(), Err: ErrDamaged}
}
