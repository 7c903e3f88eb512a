// Train is a worker of a data-parallel training that closes ranks: it goes on when members are lost,
// and takes them back when they return.
//
//	serry run -n 4 --restart failed -- train
//
// Each step every worker computes the gradient of its share of the data, and an all-reduce sums the gradients of all.
// When a worker dies, the all-reduce of the others fails at once and names it; they form the clique anew without it and
// go on. One that comes back is taken in at the next step. The gradients go from worker to worker: the death of
// the coordinator does not hold them up.
//
// A worker may have made a step that failed on others; they take its model over. With -atomic all make a step or none does, which
// takes one agreement of the service a step ([collective.Step]). -trace prints every step of every worker with a digest of its model, by which
// make soak-train compares them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

func main() {
	var w worker
	cfg, tasks, notStarted := client.ConfigFromEnv()
	flag.StringVar(&cfg.Address, "address", cfg.Address, "where the service is")
	flag.IntVar(&cfg.Task.Index, "task", cfg.Task.Index, "our number")
	flag.IntVar(&w.tasks, "tasks", tasks, "how many workers there are")
	flag.IntVar(&w.steps, "steps", 200, "how many steps to train")
	flag.DurationVar(&w.pace, "pace", 50*time.Millisecond, "how long a step takes at least")
	flag.BoolVar(&w.traces, "trace", false, "print every step, with a digest of the model")
	flag.BoolVar(&w.atomic, "atomic", false, "commit each step on all workers or on none; the service takes part in every step")
	flag.DurationVar(&w.dead, "dead", 0, "how long the link to another worker may be silent (default: as links have it)")
	flag.Parse()
	if cfg.Address == "" {
		fmt.Fprintf(os.Stderr, "train: error: %v\n", notStarted)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := w.run(ctx, cfg); err != nil {
		fmt.Fprintf(os.Stderr, "train: error: %v\n", err)
		os.Exit(1)
	}
}

// A worker is one member of the training.
type worker struct {
	tasks, steps int
	pace, dead   time.Duration
	atomic       bool
	traces       bool

	task   int
	clique *collective.Comm
	model  model
	step   int // the next one to make; -1: this worker is new and has no model yet

	made    time.Time     // when the last step was made
	slowest time.Duration // of the steps since the last report
}

func (w *worker) run(ctx context.Context, cfg client.Config) error {
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	n, err := link.Open(ctx, m, m.KV(), link.Options{Timing: link.Timing{Dead: w.dead}})
	if err != nil {
		return err
	}
	defer n.Close(context.WithoutCancel(ctx))
	g, err := collective.New(m, n, collective.Options{Keys: m.KV()})
	if err != nil {
		return err
	}
	w.task, w.step, w.model = cfg.Task.Index, -1, newModel()
	w.trace("began %d", os.Getpid())
	if err := w.train(ctx, g); err != nil {
		return err
	}
	// The others may still need the last messages of this worker, so it leaves them first, and the job last.
	return errors.Join(g.Close(ctx), m.Leave(ctx))
}

// train makes all steps.
func (w *worker) train(ctx context.Context, g *collective.Group) error {
	devices := make([]serry.DeviceID, w.tasks) // one for each worker
	for i := range devices {
		devices[i] = serry.DeviceID(i)
	}
	clique, err := enter(ctx, g, devices)
	if err != nil {
		return err
	}
	w.clique = clique
	for err = w.share(ctx); w.step < w.steps; {
		again := false
		if err == nil {
			again, err = w.makeStep(ctx)
		}
		if lost, detail, ok := lossIn(err); ok {
			w.tell("%v is lost: %s", lost, detail)
			again, err = true, nil
		}
		if err != nil {
			return err
		}
		if again {
			err = w.reform(ctx)
		}
	}
	return nil
}

// enter forms the clique, with the workers that are there. It tries again when one is lost meanwhile.
func enter(ctx context.Context, g *collective.Group, devices []serry.DeviceID) (*collective.Comm, error) {
	for {
		clique, err := g.Clique(ctx, devices, collective.CliqueOptions{})
		if _, _, lost := lossIn(err); !lost {
			return clique, err
		}
	}
}

// lossIn is the worker whose loss made a step fail, if one did.
func lossIn(err error) (task serry.TaskID, detail string, ok bool) {
	if e, ok := errors.AsType[*collective.Error](err); ok && errors.Is(e, collective.ErrPeerFailed) {
		return e.Life.Task, e.Detail, true
	}
	if e, ok := errors.AsType[*collective.StepError](err); ok && e.Lost {
		return e.Life.Task, e.Detail, true
	}
	return serry.TaskID{}, "", false
}

// reform goes on with the workers that are there now, those that came back among them.
func (w *worker) reform(ctx context.Context) error {
	before := w.clique
	next, err := before.Reform(ctx)
	if err != nil {
		return err
	}
	w.clique = next
	if err := before.Close(ctx); err != nil {
		return err
	}
	w.tell("%d ranks go on: %s", next.Size(), workers(next))
	return w.share(ctx)
}

// share gives all workers the newest model. Some may have made a step that failed on others, and new ones have none.
func (w *worker) share(ctx context.Context) error {
	steps := make([]int32, w.clique.Size())
	err := w.clique.Do(ctx, collective.AllGather{
		Out: memory.OfSlice(steps), In: memory.OfSlice([]int32{int32(w.step)}), Count: 1, Type: memory.S32,
	})
	if err != nil {
		return err
	}
	newest := slices.Max(steps)
	r := memory.OfSlice(w.model.weights[:])
	err = w.clique.Do(ctx, collective.Broadcast{Out: r, In: r, Count: weights, Type: memory.F32, Root: slices.Index(steps, newest)})
	if err != nil {
		return err
	}
	w.step = max(0, int(newest))
	w.trace("has %d %016x", w.step, w.model.digest())
	return nil
}

// makeStep computes, sums and updates. It says whether workers have come back: all know it by the same sum, and so all
// take them in after the same step.
func (w *worker) makeStep(ctx context.Context) (returned bool, err error) {
	tick := time.NewTimer(w.pace)
	sum := w.model.gradient(share(w.task, w.tasks))
	if len(w.clique.Returned()) > 0 {
		sum.returned()
	}
	select {
	case <-tick.C:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	add := func(ctx context.Context, _ collective.Live) error {
		r := memory.OfSlice(sum[:])
		return w.clique.Do(ctx, collective.AllReduce{Out: r, In: r, Count: int64(len(sum)), Type: memory.F32, Reduction: collective.Sum})
	}
	if w.atomic { // the model changes when all have the sum
		err = collective.Step(ctx, w.clique, add)
	} else {
		err = add(ctx, collective.Live{})
	}
	if err != nil {
		return false, err
	}
	loss := w.model.update(sum, w.clique.Size())
	w.report(loss)
	w.step++
	w.trace("made %d %016x", w.step, w.model.digest())
	return sum.hasReturned(), nil
}

// report lets the first rank say how it goes.
func (w *worker) report(loss float32) {
	if !w.made.IsZero() {
		w.slowest = max(w.slowest, time.Since(w.made))
	}
	w.made = time.Now()
	if w.step%20 == 0 || w.step == w.steps-1 {
		w.tell("loss %.4f  ranks %-7s  slowest step %4d ms", loss, workers(w.clique), w.slowest.Milliseconds())
		w.slowest = 0
	}
}

// trace prints a line, on every rank, if it was asked for.
func (w *worker) trace(format string, args ...any) {
	if w.traces {
		fmt.Printf(format+"\n", args...)
	}
}

// tell prints a line, on the first rank.
func (w *worker) tell(format string, args ...any) {
	if w.clique.Rank() == 0 {
		fmt.Printf("step %3d  %s\n", w.step, fmt.Sprintf(format, args...))
	}
}

// workers are the numbers of the tasks of a clique, in the order of their ranks.
func workers(c *collective.Comm) string {
	var texts []string
	for _, r := range c.Key().Ranks {
		texts = append(texts, fmt.Sprint(r.Life.Task.Index))
	}
	return strings.Join(texts, " ")
}
