package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

const (
	connections   = 16
	topologyBytes = 1 << 10
)

// A job is all the tasks, in this process.
type job struct {
	lines  []client.Transport
	cancel context.CancelFunc
	calls  sync.WaitGroup
}

// play registers all tasks, lets each publish a key, and all but the last wait at a barrier.
func play(ctx context.Context, address string, tasks int) (*job, error) {
	ctx, cancel := context.WithCancel(ctx)
	j := &job{cancel: cancel}
	for range connections {
		t, err := client.Dial(address, client.DialOptions{})
		if err != nil {
			return nil, err
		}
		j.lines = append(j.lines, t)
	}
	if err := j.all(ctx, tasks, func(c coord.Call) coord.Event { return coord.RegisterTask{Call: c} }); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	topology := []byte(strings.Repeat("t", topologyBytes))
	if err := j.all(ctx, tasks, func(c coord.Call) coord.Event {
		return coord.InsertKeyValue{Call: c, Key: fmt.Sprintf("topology/%d", c.Task.Index), Value: topology}
	}); err != nil {
		return nil, fmt.Errorf("publish: %w", err)
	}
	for i := range tasks - 1 {
		// They wait until the job is stopped, and their result is not used.
		j.calls.Go(func() {
			_ = j.call(ctx, i, coord.Barrier{Call: caller(i), ID: "step", Timeout: math.MaxInt64})
		})
	}
	return j, j.arrived(ctx, tasks-1)
}

func caller(task int) coord.Call {
	return coord.Call{Task: serry.TaskID{Job: wire.DefaultJob, Index: task}, Incarnation: serry.Incarnation(task + 1)}
}

// all makes a call of every task at once.
func (j *job) all(ctx context.Context, tasks int, event func(coord.Call) coord.Event) error {
	errs := make([]error, tasks)
	var calls sync.WaitGroup
	for i := range tasks {
		calls.Go(func() { errs[i] = j.call(ctx, i, event(caller(i))) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

func (j *job) call(ctx context.Context, task int, ev coord.Event) error {
	path, body, err := wire.Serry.Request(ev)
	if err != nil {
		return err
	}
	reply, st, err := j.lines[task%connections].Call(ctx, path, body)
	if err != nil {
		return err
	}
	if !st.OK() {
		return wire.Serry.Error(st.Code, st.Message, st.Details)
	}
	_, err = wire.Serry.Result(ev, reply)
	return err
}

// arrived waits until so many tasks are at the barrier.
func (j *job) arrived(ctx context.Context, tasks int) error {
	path, body, err := wire.StatusQuery{}.Request()
	if err != nil {
		return err
	}
	for {
		reply, _, err := j.lines[0].Call(ctx, path, body)
		if err != nil {
			return err
		}
		s, err := wire.ReadStatus(reply)
		if err != nil {
			return err
		}
		if len(s.Barriers) == 1 && s.Barriers[0].Arrived == tasks {
			return nil
		}
	}
}

func (j *job) stop() {
	j.cancel()
	j.calls.Wait()
	for _, t := range j.lines {
		_ = t.Close() // nothing is written any more
	}
}
