package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

func newTasks() *cobra.Command {
	q := &query{}
	var want []string
	cmd := q.command(&cobra.Command{
		Use:   "tasks [rank]...",
		Short: "List the ranks of the job",
		Args:  func(*cobra.Command, []string) error { return checkStates(want) },
		Example: `  serry tasks
  serry tasks --state failed,absent
  serry tasks 3 -o json`,
		ValidArgsFunction: q.completeTasks,
	}, func(ctx context.Context, r *remote, args []string) error {
		s, err := r.status(ctx, wire.StatusQuery{Tasks: true, Sight: q.format == asWide})
		if err != nil {
			return err
		}
		names, err := findTasks(s.Tasks, args)
		if err != nil {
			return err
		}
		s.Tasks = slices.DeleteFunc(s.Tasks, func(t wire.TaskStatus) bool {
			return len(want) > 0 && !slices.Contains(want, t.State) || len(names) > 0 && !slices.Contains(names, t.Task)
		})
		return q.showTasks(s, r.address)
	})
	cmd.Flags().StringSliceVar(&want, "state", nil, "only ranks in these `states`: "+strings.Join(states, ", "))
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

// showTasks prints the tasks of the job whose service is at an address.
func (p *printer) showTasks(s wire.Status, address string) error {
	if done, err := p.object(struct {
		Version int               `json:"version"`
		Epoch   int               `json:"epoch"`
		Tasks   []wire.TaskStatus `json:"tasks"`
	}{outputVersion, s.Epoch, orEmpty(s.Tasks)}); done {
		return err
	}
	wide := p.format == asWide
	t := &table{columns: []column{{title: "RANK", most: 24}, {title: "STATE"}, {title: "FOR", right: true}}}
	var pids map[string]int
	if wide {
		t.columns = append(t.columns, column{title: "HOST"}, column{title: "PID", right: true}, column{title: "LAST BEAT", right: true}, column{title: "INCARNATION"})
		pids = localPids(s, address)
	}
	t.columns = append(t.columns, column{title: "ERROR"})
	for i := range s.Tasks {
		k := &s.Tasks[i]
		row := append(make([]cell, 0, len(t.columns)),
			cell{text: diagnose.RankOf(k.Task, len(s.Jobs) == 1)}, cell{k.State, stateColour(k.State)}, cell{text: diagnose.Ago(k.ForSeconds)})
		if wide {
			row = append(row, cell{text: hostOf(k.From)}, cell{text: pidText(pids[k.Task])}, cell{text: beatText(k.HeardSeconds)}, cell{text: incarnation(k.Incarnation)})
		}
		t.add(append(row, cell{diagnose.TaskError(k), red})...)
	}
	return p.table(t)
}

// hostOf is the host that a task was heard from.
func hostOf(from string) string { return cmp.Or(diagnose.HostOf(from), "-") }

func pidText(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}

func beatText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return diagnose.Ago(*seconds) + " ago"
}

// localPids finds the processes of this host that are tasks of the job, by the variables that launchers give them. Of
// processes on other hosts, and of other users, nothing is known.
func localPids(s wire.Status, address string) map[string]int {
	pids := make(map[string]int)
	if len(s.Jobs) != 1 {
		return pids
	}
	here := &site{root: os.DirFS("/")}
	for _, p := range topmost(here.processesWith("_ADDRESS=")) {
		if rank := rankOfProcess(p); rank != "" && plainAddress(jobOfProcess(p)) == plainAddress(address) {
			pids[s.Jobs[0].Name+"/"+rank] = p.pid
		}
	}
	return pids
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
		Short: "List the barriers at which ranks wait, and for whom",
		Args:  noArguments,
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
		return q.table(barrierTable(s, q.format == asWide))
	})
}

func barrierTable(s wire.Status, wide bool) *table {
	t := &table{columns: []column{{title: "WAITING AT", most: 28}, {title: "FOR", right: true}, {title: "ARRIVED", right: true}}}
	if wide {
		t.columns = append(t.columns, column{title: "COUNTER", right: true}, column{title: "TIMES OUT IN", right: true}, column{title: "FIRST"})
	}
	t.columns = append(t.columns, column{title: "MISSING"})
	for _, b := range s.Barriers {
		row := texts(strings.TrimPrefix(diagnose.Place(b.ID), "barrier "), diagnose.Ago(b.ForSeconds), fmt.Sprintf("%d/%d", b.Arrived, b.Members))
		if wide {
			left := "-"
			if b.LeftSeconds > 0 {
				left = diagnose.Ago(b.LeftSeconds)
			}
			row = append(row, texts(fmt.Sprint(b.Counter), left, diagnose.RankOf(b.First, len(s.Jobs) == 1))...)
		}
		t.add(append(row, cell{diagnose.MissingText(s, b), yellow})...)
	}
	return t
}
