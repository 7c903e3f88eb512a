package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/wire"
)

// A stacksCommand is serry stacks.
type stacksCommand struct {
	query
	full, threads, native, signal bool
}

func newStacks() *cobra.Command {
	c := &stacksCommand{}
	cmd := c.command(&cobra.Command{
		Use:   "stacks [rank]...",
		Short: "Show where in its Python code each rank is",
		Long: `Show the Python stacks of the ranks: function, file and line, and what the
thread does there. Ranks with equal stacks are shown together, the
smallest group first: the rank that is alone is the one to look at. Calls inside
jax, numpy and the standard library are one line, unless they are the innermost.

The ranks need no change and get no signal, and those that sleep do not notice.
Stacks can be read of Python 3.11, 3.12 and 3.13. Of other programs it is shown
what their main thread does, and of Go programs where their main goroutine is. If
a rank is a script that starts Python, the first Python below it is shown.

With --signal ranks of this host are asked by a signal, which serry run has
prepared them for (but with --no-shim): that needs no right to read memory, and
works with every version of Python. But it changes the patient: a call that waits
may return early. A process that would not answer gets no signal.

Ranks of this host are found among its processes, also while the service does not
answer. The service asks the launchers of other hosts, which have 2 s to answer.`,
		Example: `  serry stacks
  serry stacks 3 --full
  serry stacks 3 --threads -o json
  serry stacks 3 --native`,
		ValidArgsFunction: c.completeTasks,
	})
	cmd.Flags().BoolVar(&c.full, "full", false, "show all frames, with whole paths")
	cmd.Flags().BoolVar(&c.threads, "threads", false, "show all Python threads of each rank, not the main thread alone")
	cmd.Flags().BoolVar(&c.signal, "signal", false, "ask ranks in Python on this host by a signal, where their memory cannot be read; a rank that waits may go on by it")
	cmd.Flags().BoolVar(&c.native, "native", false, "have eu-stack, gdb or py-spy read the native stacks, of ranks on this host; each stands still meanwhile")
	return cmd
}

// command is that of a query which can do without its service: a coordinator that does not answer is a time at which
// stacks are wanted.
func (c *stacksCommand) command(cmd *cobra.Command) *cobra.Command {
	c.access.define(cmd)
	c.printer.define(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.resolve(cmd); err != nil {
			return seeHelp(cmd, err)
		}
		if err := c.printer.open(cmd); err != nil {
			return seeHelp(cmd, err)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		show := c.show
		if c.native && c.signal {
			return seeHelp(cmd, errors.New("--native and --signal exclude each other"))
		}
		if c.native {
			show = c.showNative
		}
		err := show(ctx, args)
		if ctx.Err() != nil {
			return unsaid{exitError{errInterrupted, exitInterrupted}}
		}
		return failed(err)
	}
	return cmd
}

// show reads the stacks of the ranks that are here and prints them.
func (c *stacksCommand) show(ctx context.Context, args []string) error {
	here := ranksHere(c.address)
	s, r, err := c.status(ctx, here)
	if err != nil {
		return err
	}
	if r != nil {
		defer r.Close()
	}
	chosen, elsewhere, err := choose(s, here, args)
	if err != nil {
		return err
	}
	readings, silent := []rankReading(nil), ""
	if c.signal {
		readings = c.readBySignal(ctx, s, chosen)
	} else {
		readings = readRanks(chosen)
		askLaunchers(chosen, readings)
		var far []rankReading
		far, silent = c.readFar(ctx, r, readings, elsewhere)
		readings, elsewhere = joinFar(readings, elsewhere, far)
	}
	if len(readings) == 0 {
		return hinted{errors.New("none of these ranks runs on this host, and no launcher answers for them" + silent), "serry tasks -o wide shows where they are: run serry stacks there"}
	}
	page := stacksPage{Version: outputVersion, Groups: fold(readings), Ranks: readings, Elsewhere: orEmpty(elsewhere), silent: silent}
	done, err := c.object(page)
	if err != nil {
		return err
	}
	if !done {
		c.print(&page, s)
	}
	return page.verdict()
}

// someJob stands for the name of the job where the service does not tell it.
const someJob = "rank"

// status asks the service which ranks there are. Where it does not answer, those of this host are all that are known.
// The service, if it answers, is for the caller to close.
func (c *stacksCommand) status(ctx context.Context, here []rankHere) (wire.Status, *remote, error) {
	s, r, err := c.ask(ctx)
	if err == nil || len(here) == 0 {
		return s, r, err
	}
	fmt.Fprintf(c.errors, "serry: %s\n", printable(err.Error()))
	s = wire.Status{Jobs: []wire.JobStatus{{Name: someJob, Tasks: len(here)}}}
	for _, r := range here {
		s.Tasks = append(s.Tasks, wire.TaskStatus{Task: someJob + "/" + r.rank})
	}
	return s, nil, nil
}

func (c *stacksCommand) ask(ctx context.Context) (wire.Status, *remote, error) {
	r, err := c.access.open(ctx)
	if err != nil {
		return wire.Status{}, nil, err
	}
	s, err := r.status(ctx, wire.StatusQuery{Tasks: true})
	if err != nil {
		r.Close()
		return s, nil, err
	}
	return s, r, nil
}

// choose finds the ranks that a user asked for: those of this host, and the names of the others. With several jobs the
// number of a process does not say which task it is.
func choose(s wire.Status, here []rankHere, args []string) (chosen []rankHere, elsewhere []string, err error) {
	names, err := findTasks(s.Tasks, args)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range s.Tasks {
		if len(names) > 0 && !slices.Contains(names, t.Task) {
			continue
		}
		i := slices.IndexFunc(here, func(r rankHere) bool { return len(s.Jobs) == 1 && diagnose.RankOf(t.Task, true) == r.rank })
		if i < 0 {
			elsewhere = append(elsewhere, t.Task)
			continue
		}
		here[i].task = t.Task
		chosen = append(chosen, here[i])
	}
	return chosen, elsewhere, nil
}

// A stacksPage is the answer of serry stacks.
type stacksPage struct {
	Version   int                   `json:"version"`
	Groups    []diagnose.StackGroup `json:"groups"`    // by their main threads, the smallest first
	Ranks     []rankReading         `json:"ranks"`     // by number
	Elsewhere []string              `json:"elsewhere"` // ranks that are not on this host, and no launcher answers for
	silent    string                // launchers that have not answered
}

// verdict is an error if no stack could be read at all, and says what may help.
func (p *stacksPage) verdict() error {
	var refused error
	for _, r := range p.Ranks {
		if r.err == nil {
			return nil
		}
		if refused == nil || errors.Is(r.err, pystack.ErrPermission) {
			refused = r.err
		}
	}
	err := fmt.Errorf("no stack could be read: %w", refused)
	if errors.Is(refused, pystack.ErrPermission) {
		err = hinted{err, "be the user who started the job, or root; containers need the right to ptrace, and so do ranks that serry run did not start where /proc/sys/kernel/yama/ptrace_scope is not 0"}
	}
	return err
}

// stacksHere reads the ranks of this host, for commands that explain what a job does.
func stacksHere(s wire.Status, address string) []diagnose.Stack {
	chosen, _, err := choose(s, ranksHere(address), nil)
	if err != nil {
		return nil // there is no such rank
	}
	readings := readRanks(chosen)
	askLaunchers(chosen, readings)
	return mainStacks(readings)
}

// fold groups what was read by main threads.
func fold(readings []rankReading) []diagnose.StackGroup {
	return diagnose.FoldStacks(mainStacks(readings))
}

func mainStacks(readings []rankReading) []diagnose.Stack {
	var stacks []diagnose.Stack
	for _, r := range readings {
		s := diagnose.Stack{Task: r.Task, Error: r.Error}
		if main := r.Main(); main != nil {
			s.Frames, s.Deeper, s.Doing = framesOf(*main), main.Deeper, main.Doing()
			s.Error = cmp.Or(s.Error, main.Unread)
		}
		stacks = append(stacks, s)
	}
	return stacks
}

func framesOf(t pystack.Thread) []diagnose.Frame {
	frames := make([]diagnose.Frame, len(t.Frames))
	for i, f := range t.Frames {
		frames[i] = diagnose.Frame(f)
	}
	return frames
}

// print prints groups, or every thread of every rank.
func (c *stacksCommand) print(page *stacksPage, s wire.Status) {
	if c.threads {
		for i, r := range page.Ranks {
			if i > 0 {
				fmt.Fprintln(c.out)
			}
			c.printThreads(r, diagnose.RankText(s, r.Task))
		}
	} else {
		fmt.Fprintln(c.out, c.paint(bold, counted(len(page.Groups), "group")+", "+counted(len(page.Ranks), "rank")))
		for _, g := range page.Groups {
			fmt.Fprintln(c.out)
			c.printGroup(g, diagnose.RanksText(s, g.Tasks))
		}
	}
	if len(page.Elsewhere) > 0 {
		fmt.Fprintln(c.out)
		text := fmt.Sprintf("not on this host, and no launcher answers for them: %s%s; serry tasks -o wide shows where to run serry stacks for them", diagnose.RanksText(s, page.Elsewhere), page.silent)
		c.wrap(cell{}, cell{text, yellow})
	}
}

func (c *stacksCommand) printGroup(g diagnose.StackGroup, ranks string) {
	size := "alone"
	if n := len(g.Tasks); n > 1 {
		size = fmt.Sprintf("%d ranks, equal", n)
	}
	lines := c.lines(g.Frames, g.Deeper)
	if g.Error != "" {
		lines = []diagnose.StackLine{{Place: g.Error}}
	} else if len(lines) == 0 {
		lines = []diagnose.StackLine{{Place: "in no Python function"}}
	}
	c.printStack(ranks, size, lines, strings.Join(g.Doing, " or "))
}

func (c *stacksCommand) printThreads(r rankReading, rank string) {
	if r.Error != "" {
		c.printStack(rank, "", []diagnose.StackLine{{Place: r.Error}}, "")
	}
	for i, t := range r.Threads {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		lines := c.lines(framesOf(t), t.Deeper)
		switch {
		case t.Unread != "":
			lines = []diagnose.StackLine{{Place: t.Unread}}
		case len(lines) == 0 && r.Python != "":
			lines = []diagnose.StackLine{{Place: "in no Python function"}}
		}
		kind := "thread"
		if t.ID == r.PID {
			kind = "main thread"
		}
		title := fmt.Sprintf("%s, %s %d %s", rank, kind, t.ID, t.Name)
		if r.far {
			title = rank + ", " + t.Name // its launcher has named the thread
		}
		c.printStack(title, "", lines, t.Doing())
	}
}

func (c *stacksCommand) lines(frames []diagnose.Frame, deeper bool) []diagnose.StackLine {
	if c.full || c.format == asWide {
		return diagnose.AllLines(frames, deeper)
	}
	return diagnose.Lines(frames, deeper)
}

// printStack prints a title, and below it the lines of a stack: function, place, and what the thread does there.
func (c *stacksCommand) printStack(title, right string, lines []diagnose.StackLine, doing string) {
	names, places := 0, 0
	for _, l := range lines {
		names = max(names, utf8.RuneCountInString(oneLine(l.Function)))
		if l.Function != "" {
			places = max(places, utf8.RuneCountInString(oneLine(l.Place)))
		}
	}
	title = "  " + oneLine(title)
	if right != "" {
		title = padded(title, 48) + gap + right
	}
	fmt.Fprintln(c.out, c.paint(bold, strings.TrimRight(title, " ")))
	for i, l := range lines {
		text := oneLine(l.Place)
		if l.Function != "" {
			text = padded(oneLine(l.Function), names) + gap + text
		}
		if i == 0 && doing != "" {
			text = padded(text, names+len(gap)+places) + gap + c.paint(yellow, oneLine(doing))
		}
		fmt.Fprintln(c.out, "    "+text)
	}
}

// padded adds spaces up to a number of characters.
func padded(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}
