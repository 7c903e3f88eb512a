package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// A query is a command that asks a running service something and prints the answer.
type query struct {
	access
	printer
}

// command makes a command of a query. A mistake in its flags or arguments is one in the command
// line, whatever ask returns is a failure.
func (q *query) command(cmd *cobra.Command, ask func(ctx context.Context, r *remote, args []string) error) *cobra.Command {
	q.access.define(cmd)
	q.printer.define(cmd)
	arguments := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if arguments == nil {
			return nil
		}
		return q.usage(cmd, arguments(cmd, args))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := q.resolve(cmd); err != nil {
			return q.usage(cmd, err)
		}
		if err := q.printer.open(cmd); err != nil {
			return q.usage(cmd, err)
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		ctx := cmd.Context()
		r, err := q.access.open(ctx)
		if err != nil {
			return q.usage(cmd, err)
		}
		defer r.Close()
		return failed(ask(ctx, r, args))
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return q.usage(cmd, err) })
	return cmd
}

// usage adds a hint to a mistake in the command line that has none.
func (q *query) usage(cmd *cobra.Command, err error) error {
	_, has := errors.AsType[hinted](err)
	_, ran := errors.AsType[runError](err)
	if err == nil || has || ran {
		return err
	}
	return hinted{err, fmt.Sprintf("see %s --help", cmd.CommandPath())}
}

func newStatus() *cobra.Command {
	q := &query{}
	var watch bool
	var every time.Duration
	cmd := q.command(&cobra.Command{
		Use:   "status",
		Short: "Show how the job is: who is there, who waits for whom",
		Example: `  serry status
  serry status --watch
  serry status -o json --address coord.example.org`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, r *remote, _ []string) error {
		if watch {
			return q.watchStatus(ctx, r, every)
		}
		s, err := r.status(ctx, wire.StatusQuery{})
		if err != nil {
			return err
		}
		if done, err := q.object(s); done {
			return err
		}
		return q.showStatus(r.address, s)
	})
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often, with --watch")
	return cmd
}

// leastPause bounds how often a service is asked.
const leastPause = 100 * time.Millisecond

// watchStatus shows the status until the service stops: in place on a terminal, one after the other
// elsewhere. An outage is told and waited out.
func (q *query) watchStatus(ctx context.Context, r *remote, every time.Duration) error {
	for {
		s, err := r.status(ctx, wire.StatusQuery{})
		if q.terminal && q.format != asJSON && q.format != asYAML {
			io.WriteString(q.out, "\x1b[H\x1b[J") // home, and clear what is below
		}
		if err != nil {
			if r.broken.Err() != nil {
				return err
			}
			fmt.Fprintf(q.errors, "serry: %v\n", err)
		} else if done, err := q.line(s); err != nil {
			return err
		} else if !done {
			if err := q.showStatus(r.address, s); err != nil {
				return err
			}
		}
		if s.Stopped {
			return nil
		}
		if err := pause(ctx, max(every, leastPause)); err != nil {
			return err
		}
		if !q.terminal && q.format == asTable {
			fmt.Fprintln(q.out)
		}
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// showStatus prints a status for people.
func (p *printer) showStatus(address string, s wire.Status) error {
	fmt.Fprintf(p.out, "%s  %s, run %d, up %s, %s\n", p.paint(bold, "service"), address, s.Epoch, diagnose.Ago(s.UpSeconds), p.mood(s))
	fmt.Fprintf(p.out, "%s    %s\n", p.paint(bold, "tasks"), p.counts(s))
	fmt.Fprintf(p.out, "%s     %d, %s; %d calls wait\n", p.paint(bold, "keys"), s.Keys, bytesText(s.StoreBytes), s.Waiting)
	if s.First != nil {
		line := fmt.Sprintf("%s ago: %s", diagnose.Ago(s.UpSeconds-s.First.AtSeconds), noteText(*s.First))
		fmt.Fprintf(p.out, "%s   %s\n", p.paint(bold, "failed"), p.paint(red, p.cut(line, len("failed   "))))
		fmt.Fprintln(p.out, "         serry why says more")
	}
	if len(s.Barriers) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	return p.table(barrierTable(s.Barriers, p.format == asWide))
}

// cut shortens a line that begins with some characters of its own to the screen.
func (p *printer) cut(line string, begins int) string {
	line = oneLine(line)
	if p.format == asWide {
		return line
	}
	return fit(line, p.width-begins)
}

// mood is the state of the job in a word.
func (p *printer) mood(s wire.Status) string {
	switch {
	case s.Stopped:
		return p.paint(red, "stopped")
	case s.Failure != "":
		return p.paint(red, "failed")
	case s.Counts[wire.StateConnected] == s.Size:
		return p.paint(green, "all tasks are there")
	case s.Counts[wire.StateFailed] > 0:
		return p.paint(yellow, "some tasks have failed")
	case s.Counts[wire.StateRegistering] > 0:
		return p.paint(yellow, "waiting for tasks")
	case s.Counts[wire.StateAbsent] == s.Size:
		return "no task has come yet"
	case s.Counts[wire.StateLeft] == s.Size:
		return "all tasks have left"
	}
	return "running"
}

// states are in the order in which people want to hear of them.
var states = []string{wire.StateConnected, wire.StateRegistering, wire.StateFailed, wire.StateLeft, wire.StateAbsent}

func stateColour(state string) colour {
	switch state {
	case wire.StateConnected:
		return green
	case wire.StateFailed:
		return red
	case wire.StateRegistering, wire.StateAbsent:
		return yellow
	}
	return plain
}

// counts says how many tasks are in which state.
func (p *printer) counts(s wire.Status) string {
	var parts []string
	for _, state := range states {
		if n := s.Counts[state]; n > 0 {
			parts = append(parts, p.paint(stateColour(state), fmt.Sprintf("%d %s", n, state)))
		}
	}
	return fmt.Sprintf("%d: %s", s.Size, strings.Join(parts, ", "))
}

func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	f, i := float64(n), 0
	for f >= unit && i < 5 {
		f, i = f/unit, i+1
	}
	return fmt.Sprintf("%.1f %ciB", f, " KMGTP"[i])
}

func newTasks() *cobra.Command {
	q := &query{}
	var want []string
	cmd := q.command(&cobra.Command{
		Use:   "tasks [task]...",
		Short: "List the tasks of the job",
		Args:  func(*cobra.Command, []string) error { return checkStates(want) },
		Example: `  serry tasks
  serry tasks --state failed,absent
  serry tasks worker/3 -o json`,
		ValidArgsFunction: q.completeTasks,
	}, func(ctx context.Context, r *remote, args []string) error {
		s, err := r.status(ctx, wire.StatusQuery{Tasks: true})
		if err != nil {
			return err
		}
		s.Tasks = slices.DeleteFunc(s.Tasks, func(t wire.TaskStatus) bool {
			return len(want) > 0 && !slices.Contains(want, t.State) || len(args) > 0 && !slices.Contains(args, t.Task)
		})
		return q.showTasks(s)
	})
	cmd.Flags().StringSliceVar(&want, "state", nil, "only tasks in these `states`: "+strings.Join(states, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func checkStates(want []string) error {
	for _, state := range want {
		if !slices.Contains(states, state) {
			return fmt.Errorf("--state %q: want %s", state, strings.Join(states, ", "))
		}
	}
	return nil
}

func (p *printer) showTasks(s wire.Status) error {
	if done, err := p.object(struct {
		Version int               `json:"version"`
		Epoch   int               `json:"epoch"`
		Tasks   []wire.TaskStatus `json:"tasks"`
	}{outputVersion, s.Epoch, orEmpty(s.Tasks)}); done {
		return err
	}
	wide := p.format == asWide
	t := &table{columns: []column{{title: "TASK", most: 24}, {title: "STATE"}, {title: "FOR", right: true}}}
	if wide {
		t.columns = append(t.columns, column{title: "INCARNATION"})
	}
	t.columns = append(t.columns, column{title: "ERROR"})
	for _, k := range s.Tasks {
		row := []cell{{text: k.Task}, {k.State, stateColour(k.State)}, {text: diagnose.Ago(k.ForSeconds)}}
		if wide {
			row = append(row, cell{text: incarnation(k.Incarnation)})
		}
		t.add(append(row, cell{k.Error, red})...)
	}
	return p.table(t)
}

func incarnation(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%016x", n)
}

func newBarriers() *cobra.Command {
	q := &query{}
	return q.command(&cobra.Command{
		Use:   "barriers",
		Short: "List the barriers at which tasks wait, and for whom",
		Args:  cobra.NoArgs,
	}, func(ctx context.Context, r *remote, _ []string) error {
		s, err := r.status(ctx, wire.StatusQuery{})
		if err != nil {
			return err
		}
		if done, err := q.object(struct {
			Version  int                  `json:"version"`
			Epoch    int                  `json:"epoch"`
			Barriers []wire.BarrierStatus `json:"barriers"`
		}{outputVersion, s.Epoch, s.Barriers}); done {
			return err
		}
		return q.table(barrierTable(s.Barriers, q.format == asWide))
	})
}

func barrierTable(barriers []wire.BarrierStatus, wide bool) *table {
	t := &table{columns: []column{{title: "WAITING AT", most: 28}, {title: "FOR", right: true}, {title: "ARRIVED", right: true}}}
	if wide {
		t.columns = append(t.columns, column{title: "COUNTER", right: true}, column{title: "TIMES OUT IN", right: true}, column{title: "FIRST"})
	}
	t.columns = append(t.columns, column{title: "MISSING"})
	for _, b := range barriers {
		row := texts(strings.TrimPrefix(diagnose.Place(b.ID), "barrier "), diagnose.Ago(b.ForSeconds), fmt.Sprintf("%d/%d", b.Arrived, b.Members))
		if wide {
			left := "-"
			if b.LeftSeconds > 0 {
				left = diagnose.Ago(b.LeftSeconds)
			}
			row = append(row, texts(fmt.Sprint(b.Counter), left, b.First)...)
		}
		t.add(append(row, cell{missing(b), yellow})...)
	}
	return t
}

// missing names who a barrier waits for: the number first, because the names may not fit.
func missing(b wire.BarrierStatus) string {
	n := b.Members - b.Arrived
	names := ranges(b.Missing)
	if n > len(b.Missing) {
		names += " ..."
	}
	if n <= 1 {
		return names
	}
	return fmt.Sprintf("%d: %s", n, names)
}

// ranges writes names of tasks, sorted as they come, with runs of numbers drawn together:
// "worker/0-3 worker/7".
func ranges(names []string) string {
	var parts []string
	for i := 0; i < len(names); {
		job, first, ok := cutTask(names[i])
		j := i + 1
		for last := first; ok && j < len(names); j++ {
			other, n, _ := cutTask(names[j])
			if other != job || n != last+1 {
				break
			}
			last = n
		}
		part := names[i]
		if j-i > 1 {
			_, last, _ := cutTask(names[j-1])
			part = fmt.Sprintf("%s-%d", names[i], last)
		}
		parts = append(parts, part)
		i = j
	}
	return strings.Join(parts, " ")
}
