// Elastic is a job that goes on with the tasks that are left: a heap of work is shared out anew in every step
// among the members that are alive. One of them dies on the way, and comes back later as a new life.
//
//	go run ./examples/elastic
//
// The heart is one call in each step, [client.Member.Agree]: it waits for all tasks that are alive, and tells
// each the same: which they are and what each said. So all share out the work alike, without a leader.
// The service and the members run in one process here; examples/train does it with real ones.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

const (
	members = 4
	steps   = 9
	batch   = 12 // pieces of work in a step

	mortal    = 2 // the task that dies
	dyingStep = 3 // where
	backStep  = 6 // the step before which it is back
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "elastic: error: %v\n", err)
		os.Exit(1)
	}
}

// run starts the service, the members, and the mortal one a second time.
func run(ctx context.Context, out io.Writer) error {
	s, err := server.New(server.Config{Cluster: coord.Config{
		Jobs:            []coord.Job{{Name: "worker", Tasks: members}},
		RegisterBarrier: true, RegisterTimeout: time.Minute, Recoverable: true,
	}})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var service, job errgroup.Group
	service.Go(func() error { return s.Serve(listener) })
	for i := range members {
		w := &worker{out: out, address: listener.Addr().String(), task: serry.TaskID{Job: "worker", Index: i}}
		job.Go(func() error {
			err := w.run(ctx)
			if errors.Is(err, errKilled) { // what a launcher does: start it again
				w.second = true
				err = w.run(ctx)
			}
			return err
		})
	}
	err = job.Wait()
	s.Shutdown(ctx)
	return errors.Join(err, service.Wait())
}

// A worker is a member of the job.
type worker struct {
	out     io.Writer
	address string
	task    serry.TaskID
	second  bool // its second life

	member *client.Member
	step   int // the next one; -1: we are new and do not know
	done   int // pieces of work
}

var errKilled = errors.New("killed")

func (w *worker) run(ctx context.Context) error {
	m, err := client.Join(ctx, client.Config{Address: w.address, Task: w.task})
	if err != nil {
		return err
	}
	defer m.Close()
	w.member, w.step = m, -1
	if w.second {
		if err := m.KV().Put(ctx, "back", nil); err != nil {
			return err
		}
	}
	for w.step < steps {
		if err := w.play(ctx); err != nil {
			return err
		}
		if err := w.makeStep(ctx); err != nil {
			return err
		}
	}
	return m.Leave(ctx)
}

// play is the part of fate: it kills the mortal one, and makes the others wait for its return, so that
// the example goes the same way each time.
func (w *worker) play(ctx context.Context) error {
	switch {
	case w.step == dyingStep && w.task.Index == mortal && !w.second:
		// The host of a real process sees it end, and says so at once. Otherwise the service finds out
		// by itself, seconds later.
		how := serry.Evidence{Hard: true, Detail: "process exited: signal 9"}
		if err := w.member.Suspect(ctx, w.task, w.member.Incarnation(), how); err != nil {
			return err
		}
		return errKilled
	case w.step == backStep:
		_, err := w.member.KV().Wait(ctx, "back")
		return err
	}
	return nil
}

// makeStep agrees on which tasks are there, and does the share of this one.
func (w *worker) makeStep(ctx context.Context) error {
	all := make([]serry.TaskID, members)
	for i := range all {
		all[i] = serry.TaskID{Job: "worker", Index: i}
	}
	agreed, err := w.member.Agree(ctx, []byte(strconv.Itoa(w.step)), all...)
	if err != nil {
		return err
	}
	// A new member learns the step from the others. At the beginning all are new.
	step := 0
	for _, word := range agreed.Words {
		n, err := strconv.Atoi(string(word))
		if err != nil {
			return fmt.Errorf("a member says that it is at step %q: %w", word, err)
		}
		step = max(step, n)
	}
	alive := slices.SortedFunc(maps.Keys(agreed.Alive), serry.TaskID.Compare)
	rank := slices.Index(alive, w.task)
	for piece := rank; piece < batch; piece += len(alive) {
		w.done++ // work goes here
	}
	if rank == 0 {
		fmt.Fprintf(w.out, "step %d: %d members, %d pieces each\n", step, len(alive), batch/len(alive))
	}
	w.step = step + 1
	return nil
}
