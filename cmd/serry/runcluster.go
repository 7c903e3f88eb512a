package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/launch/cluster"
	"github.com/serry-dev/serry/wire"
)

// locate finds out which host of which job this is: by flags, else by variables, else by the cluster
// that has started us.
func (s *runSettings) locate(cmd *cobra.Command) (cluster.Place, []cluster.Finding, error) {
	var p cluster.Place
	changed := cmd.Flags().Changed
	if changed("nnodes") {
		p.Processes = cluster.Value[int]{Is: s.nodes, From: "--nnodes"}
	}
	if changed("node-rank") {
		p.ID = cluster.Value[int]{Is: s.node, From: "--node-rank"}
	}
	if s.coordinator != "" {
		p.Address = cluster.Value[string]{Is: s.coordinator, From: "--coordinator"}
	}
	if s.jobID != "" {
		p.Job = cluster.Value[string]{Is: s.jobID, From: "--job-id"}
	}
	if s.nodes == 1 && p.Processes.Known() || os.Getenv(launch.EnvRun) != "" {
		return p, nil, nil // one host, or a task of another run, whose variables are not for us
	}
	told, err := cluster.FromEnvironment(cluster.System{})
	if err != nil {
		return p, nil, err
	}
	// An address alone says nothing: jax programs have one in their environment for many reasons.
	if p.Processes.Known() || told.Processes.Known() {
		p = fill(p, told)
	}
	p, findings, err := cluster.Detect(cmd.Context(), cluster.System{}, p, s.cluster)
	if nodes, forgotten := cluster.ForgottenStep(cluster.System{}); err == nil && forgotten && s.cluster != cluster.None && !p.Processes.Known() {
		err = hinted{
			fmt.Errorf("this Slurm job has %d nodes, and serry run was started on one of them only", nodes),
			"srun --ntasks-per-node=1 serry run ..., or --nnodes 1 for a job on this node alone",
		}
	}
	return p, findings, err
}

// scheduler is what keeps the deadline after SIGTERM, if that is known and the user has not given a grace (DLV-26).
func (s *runSettings) scheduler(cmd *cobra.Command) cluster.Value[string] {
	if cmd.Flags().Changed("grace") || s.cluster == cluster.None || os.Getenv(launch.EnvRun) != "" {
		return cluster.Value[string]{}
	}
	return cluster.Scheduler(cluster.System{})
}

// fill takes from another place what is not known.
func fill(p, other cluster.Place) cluster.Place {
	if !p.Processes.Known() {
		p.Processes = other.Processes
	}
	if !p.ID.Known() {
		p.ID = other.ID
	}
	if !p.Address.Known() {
		p.Address = other.Address
	}
	return p
}

// settle puts the job where the place says.
func settle(c *launch.Config, p cluster.Place) error {
	if !p.Processes.Known() && !p.ID.Known() && !p.Address.Known() || p.Processes.Known() && p.Processes.Is == 1 && c.Spares == 0 {
		return nil
	}
	// Spares have numbers beyond the last node.
	q := p
	q.Processes.Is += c.Spares
	if err := q.Validate(); err != nil {
		return hinted{err, "give --nnodes, --node-rank and --coordinator, or --cluster none for a job on this host alone"}
	}
	c.Nodes, c.Node, c.Coordinator, c.Job = p.Processes.Is, p.ID.Is, p.Address.Is, p.Job.Is
	if c.Tasks == 1 {
		c.Devices = p.Devices.Is
	}
	return nil
}

// explainPlace prints what was looked for, what was found, and where each value comes from.
func explainPlace(w io.Writer, c launch.Config, p cluster.Place, findings []cluster.Finding, scheduler cluster.Value[string]) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLUSTER\tPRESENT\tWHY")
	for _, f := range findings {
		word := "no"
		if f.Used {
			word = "used"
		} else if f.Present {
			word = "yes"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", f.Name, word, f.Why)
	}
	if findings == nil {
		fmt.Fprintln(t, "-\t-\tnot looked for")
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nVALUE\tIS\tFROM")
	row := func(name string, value any, from string) {
		if from == "" {
			from = "default"
		}
		fmt.Fprintf(t, "%s\t%v\t%s\n", name, value, from)
	}
	row("ranks on this host", c.Tasks, "--procs")
	row("hosts", max(1, c.Nodes), p.Processes.From)
	row("this host", c.Node, p.ID.From)
	if c.Coordinator != "" {
		row("coordinator", c.Coordinator, p.Address.From)
		row("job", cmp.Or(c.Job, "that of the command"), p.Job.From)
	}
	if c.Devices != nil {
		row("devices", strings.Trim(fmt.Sprint(c.Devices), "[]"), p.Devices.From)
	}
	if scheduler.Known() {
		row("end after SIGTERM", "when "+scheduler.Is+" kills", scheduler.From)
	}
	return t.Flush()
}

// warnOfHost says what about this machine may hurt a job.
func warnOfHost(screen *screen, cfg *launch.Config) {
	var first []check
	for _, c := range checks() {
		if c.first {
			first = append(first, c)
		}
	}
	for _, f := range diagnosis(context.Background(), runSite(cfg), first) {
		if f.Level == levelWarning || f.Level == levelProblem {
			screen.Note(launch.Note{Warning: true, Text: strings.TrimSuffix(f.Observed+"; fix: "+f.Fix, "; fix: ")})
		}
	}
}

// runSite is this host before a job begins: it has no service yet, and no disk is made to wait.
func runSite(cfg *launch.Config) *site {
	s := newSite(&access{address: cfg.Coordinator}, cfg.Tasks*max(1, cfg.Nodes))
	s.locals, s.command, s.write = cfg.Tasks, cfg.Command, nil
	s.ask = func(context.Context) (wire.Status, error) { return wire.Status{}, errNotYet }
	for _, dir := range []string{cfg.LogDir, cfg.StateDir} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			s.dirs = append(s.dirs, dir)
		}
	}
	return s
}

// errNotYet says that a service is yet to be started.
var errNotYet = errors.New("the job has not begun")

// errNoCommand says that there is nothing to run.
var errNoCommand = hinted{errors.New("no command to run"), "serry run -n 4 -- python train.py"}
