// Train is a worker of a data-parallel training that closes ranks: it goes on when members are lost,
// and takes them back when they return.
//
//	serry run -n 4 --restart failed -- train
//
// Each step every worker computes the gradient of its share of the data and calls Agree with it. Agree
// returns the same to all that are alive: which they are, and the gradient of each. So all survivors
// make the same update, whichever task was lost on the way. A worker that comes back says that it is new, and
// the first of the others hands it the model.
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
)

func main() {
	var w worker
	cfg, tasks, notStarted := client.ConfigFromEnv()
	flag.StringVar(&cfg.Address, "address", cfg.Address, "where the service is")
	flag.IntVar(&cfg.Task.Index, "task", cfg.Task.Index, "our number")
	flag.IntVar(&w.tasks, "tasks", tasks, "how many workers there are")
	flag.IntVar(&w.steps, "steps", 200, "how many steps to train")
	flag.DurationVar(&w.pace, "pace", 50*time.Millisecond, "how long a step takes at least")
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
	pace         time.Duration

	member *client.Member
	all    []serry.TaskID
	model  model
	step   int            // the next one to make; -1: we are new and have no model yet
	ranks  []serry.TaskID // that made the last step

	made    time.Time     // when the last step was made
	slowest time.Duration // of the steps since the last report
}

func (w *worker) run(ctx context.Context, cfg client.Config) error {
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	w.member, w.step, w.model = m, -1, newModel()
	for i := range w.tasks {
		w.all = append(w.all, serry.TaskID{Job: "worker", Index: i})
	}
	for w.step < w.steps {
		if err := w.makeStep(ctx); err != nil {
			return err
		}
	}
	return m.Leave(ctx)
}

// makeStep computes, agrees, and updates.
func (w *worker) makeStep(ctx context.Context) error {
	mine := handedIn{Step: int32(w.step)}
	if w.step >= 0 {
		tick := time.NewTimer(w.pace)
		mine.Loss, mine.Gradient = w.model.gradient(share(w.member.Task().Index, w.tasks))
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	agreed, err := w.member.Agree(ctx, mine.bytes(), w.all...)
	if err != nil {
		return err
	}
	made, newcomers := sortOut(agreed)
	if len(made) == 0 { // all are new: this is the beginning, and all have the same model
		w.step = 0
		return nil
	}
	at := int(made[0].Step)
	if len(newcomers) > 0 {
		if err := w.handOver(ctx, at, made[0].from, slices.Contains(newcomers, w.member.Task())); err != nil {
			return err
		}
	}
	loss := w.model.update(made)
	w.step = at + 1
	w.tell(ctx, at, loss, made)
	return nil
}

// handOver gives the model of a step to newcomers: the first task that has it stores it, they wait for it.
func (w *worker) handOver(ctx context.Context, step int, holder serry.TaskID, weAreNew bool) error {
	keys := w.member.KV().Sub("train/model")
	switch key := fmt.Sprint(step); {
	case weAreNew:
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		b, err := keys.Wait(ctx, key)
		if err != nil {
			return fmt.Errorf("wait for the model of step %d: %w", step, err)
		}
		return w.model.read(b)
	case holder == w.member.Task():
		return keys.Put(ctx, key, w.model.bytes())
	}
	return nil
}

// sortOut parts what was handed in from tasks that had nothing to hand in yet.
func sortOut(a serry.Agreement) (made []contribution, newcomers []serry.TaskID) {
	for task, word := range a.Words {
		var c contribution
		if c.read(word) != nil {
			continue // not one of us
		}
		if c.from = task; c.Step < 0 {
			newcomers = append(newcomers, task)
		} else {
			made = append(made, c)
		}
	}
	slices.SortFunc(made, func(a, b contribution) int { return a.from.Compare(b.from) })
	return made, newcomers
}

// tell lets the first rank report how it goes, and which tasks came or went.
func (w *worker) tell(ctx context.Context, step int, loss float64, made []contribution) {
	before := w.ranks
	w.ranks = nil
	if !w.made.IsZero() {
		w.slowest = max(w.slowest, time.Since(w.made))
	}
	w.made = time.Now()
	for _, c := range made {
		w.ranks = append(w.ranks, c.from)
	}
	if w.ranks[0] != w.member.Task() {
		return
	}
	for _, t := range before {
		if !slices.Contains(w.ranks, t) {
			fmt.Printf("step %3d  %v is lost: %s; %d ranks go on\n", step, t, w.whyLost(ctx, t), len(w.ranks))
		}
	}
	for _, t := range w.ranks {
		if before != nil && !slices.Contains(before, t) {
			fmt.Printf("step %3d  %v is back; %d ranks\n", step, t, len(w.ranks))
		}
	}
	if step%20 == 0 || step == w.steps-1 {
		fmt.Printf("step %3d  loss %.4f  ranks %-7s  slowest step %4d ms\n", step, loss, numbers(w.ranks), w.slowest.Milliseconds())
		w.slowest = 0
	}
}

// whyLost asks the service.
func (w *worker) whyLost(ctx context.Context, t serry.TaskID) string {
	snapshot, err := w.member.Tasks(ctx)
	if err != nil {
		return "unknown"
	}
	for _, info := range snapshot.Tasks {
		var dead *serry.TaskError
		if info.Task == t && errors.As(info.Err, &dead) && dead.Evidence != "" {
			return dead.Evidence
		}
	}
	return "it no longer answers"
}

func numbers(tasks []serry.TaskID) string {
	texts := make([]string, len(tasks))
	for i, t := range tasks {
		texts[i] = fmt.Sprint(t.Index)
	}
	return strings.Join(texts, " ")
}
