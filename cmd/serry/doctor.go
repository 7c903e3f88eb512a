package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

// A level says how bad a finding is.
type level string

// The levels.
const (
	levelOK      level = "ok"
	levelSkipped level = "skipped" // it does not apply here, or could not be looked at
	levelWarning level = "warning" // it may hurt
	levelProblem level = "problem" // it will
)

// A finding is what a check found, and what to do about it.
type finding struct {
	Check    string `json:"check"`
	Level    level  `json:"level"`
	Observed string `json:"observed"`
	Fix      string `json:"fix,omitempty"`
}

func fine(format string, args ...any) finding {
	return finding{Level: levelOK, Observed: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) finding {
	return finding{Level: levelSkipped, Observed: fmt.Sprintf(format, args...)}
}

func warning(fix, format string, args ...any) finding {
	return finding{Level: levelWarning, Observed: fmt.Sprintf(format, args...), Fix: fix}
}

func problem(fix, format string, args ...any) finding {
	return finding{Level: levelProblem, Observed: fmt.Sprintf(format, args...), Fix: fix}
}

// A check looks at a site for one trap that jobs have fallen into. It changes nothing.
type check struct {
	name  string
	run   func(context.Context, *site) finding
	first bool // serry run looks for it before it starts the ranks: it is cheap, and needs no service
}

// checks are in the order in which a start meets the traps (D-DOC-2).
func checks() []check {
	return []check{
		{"host name", checkHostName, true},
		{"names", checkNames, false},
		{"proxy variables", checkProxies, false},
		{"scheduler", checkScheduler, false},
		{"jax variables", checkJaxVariables, false},
		{"service", checkService, false},
		{"port", checkPort, false},
		{"interfaces", checkInterfaces, false},
		{"ipv6", checkIPv6, false},
		{"packet size", checkPackets, false},
		{"certificate", checkCertificate, false},
		{"clock", checkClock, false},
		{"rank count", checkTaskCount, false},
		{"rank counts here", checkCounts, false},
		{"rank numbers", checkTaskNumbers, false},
		{"earlier attempt", checkEarlierRun, false},
		{"jax backend", checkBackend, false},
		{"jaxlib", checkJaxlib, false},
		{"gloo addresses", checkGloo, false},
		{"command", checkCommand, true},
		{"output", checkBuffers, false},
		{"stacks", checkStacks, true},
		{"open files", checkOpenFiles, true},
		{"memory", checkMemory, true},
		{"shared memory", checkSharedMemory, true},
		{"disk", checkDisk, true},
		{"huge pages", checkMachine("huge-pages"), true},
		{"boot id", checkMachine("boot-id"), true},
	}
}

func newDoctor() *cobra.Command {
	a, p, d := &access{}, &printer{}, &doctorSettings{}
	cmd := &cobra.Command{
		Use:   "doctor [flags] [-- command [argument]...]",
		Short: "Look for what keeps a job from starting, and say how to fix it",
		Long: `Look for what keeps a job from starting, on this host and between it and the
service, and say how to fix it. Run it where a rank is to run, with the
variables that the rank has, and name the command that the rank is to run.

It prints what is wrong, and below it how to fix it; --verbose prints every
check. It changes nothing, and sends nothing to a host that you have not named.
Exit status 1: it found a problem.`,
		Example: `  serry doctor --address coord.example.org
  serry doctor --verbose --tasks 8 -- python train.py
  serry doctor --host-list node-a,node-b,node-c --directory /scratch/journal
  srun -N 4 --ntasks-per-node 1 serry doctor --address coord.example.org`,
		Args: commandAfterDash,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.likeTask(cmd); err != nil {
				return seeHelp(cmd, err)
			}
			err := a.resolve(cmd)
			if err == nil {
				err = p.open(cmd)
			}
			if err != nil {
				return seeHelp(cmd, err)
			}
			return d.examine(cmd.Context(), d.site(a, args), p)
		},
	}
	a.define(cmd)
	p.define(cmd)
	d.define(cmd)
	return cmd
}

// doctorSettings are the flags of serry doctor beside those of every query.
type doctorSettings struct {
	tasks    int
	hosts    []string
	dirs     []string
	waitName time.Duration
	verbose  bool
}

func (d *doctorSettings) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&d.tasks, "tasks", 0, "`number` of ranks that the job is to have (default what variables of the launcher say)")
	f.StringSliceVar(&d.hosts, "host-list", nil, "`names` of the other hosts of the job, with commas between them: they must resolve, and take packets of full size")
	f.StringSliceVar(&d.dirs, "directory", []string{os.TempDir()}, "`directories` for journals and logs, with commas between them: space and speed are looked at")
	f.DurationVar(&d.waitName, "wait-dns", time.Second, "how long to look for names that do not resolve")
	f.BoolVarP(&d.verbose, "verbose", "v", false, "print every check, not only what is wrong")
}

// site is where we are, and what the flags say about it.
func (d *doctorSettings) site(a *access, command []string) *site {
	s := newSite(a, d.tasks)
	s.peers, s.dirs, s.command, s.waitName = d.hosts, d.dirs, command, d.waitName
	return s
}

// commandAfterDash takes arguments that are a command to be looked at, and no others.
func commandAfterDash(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return seeHelp(cmd, fmt.Errorf("unexpected argument %q: a command stands behind --", args[0]))
	}
	return nil
}

// likeTask looks for the service where a jax program with these variables would, unless something says otherwise. An
// address of another form is left to the check of that variable.
func (a *access) likeTask(cmd *cobra.Command) error {
	given, err := findContext("")
	if err != nil || a.address != "" || a.context != "" || os.Getenv("SERRY_ADDRESS") != "" || os.Getenv("SERRY_CONTEXT") != "" || given.Address != "" {
		return err
	}
	address := os.Getenv(jaxAddress)
	if _, port, err := net.SplitHostPort(address); err == nil && port != "" {
		return cmd.Flags().Set("address", address)
	}
	return nil
}

// diagnosis runs checks beside each other. One that takes too long is skipped: a check waits for nothing but the network.
func diagnosis(ctx context.Context, s *site, all []check) []finding {
	found := make([]finding, len(all))
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, doctorPatience+s.waitName)
			defer cancel()
			found[i] = c.run(ctx, s)
			found[i].Check = c.name
		})
	}
	running.Wait()
	return found
}

// examine runs all checks. A problem is an error, already told.
func (d *doctorSettings) examine(ctx context.Context, s *site, p *printer) error {
	found := diagnosis(ctx, s, checks())
	count := make(map[level]int)
	for _, f := range found {
		count[f.Level]++
	}
	problems := count[levelProblem]
	done, err := p.object(struct {
		Version  int       `json:"version"`
		Address  string    `json:"address"`
		Healthy  bool      `json:"healthy"`
		Findings []finding `json:"findings"`
	}{outputVersion, s.address, problems == 0, found})
	if err != nil {
		return runError{err}
	}
	if !done {
		p.findings(found, d.verbose)
		if problems == 0 && count[levelWarning] == 0 && !d.verbose {
			fmt.Fprintf(p.out, "nothing is wrong: %d checks, %d do not apply here\n", count[levelOK]+count[levelSkipped], count[levelSkipped])
		}
	}
	if problems > 0 {
		return runError{hinted{fmt.Errorf("%s found", counted(problems, "problem")), "see the lines marked problem"}}
	}
	return nil
}

// findings prints a line for each that matters, or for all, and the fix below it.
func (p *printer) findings(found []finding, all bool) {
	colours := map[level]colour{levelOK: green, levelWarning: yellow, levelProblem: red}
	for _, f := range found {
		if !all && (f.Level == levelOK || f.Level == levelSkipped) {
			continue
		}
		mark := fmt.Sprintf("%-7s  %-16s  ", f.Level, f.Check)
		p.wrap(cell{mark, colours[f.Level]}, cell{text: f.Observed})
		if f.Fix != "" {
			p.wrap(cell{text: strings.Repeat(" ", len(mark))}, cell{text: "fix: " + f.Fix})
		}
	}
}

// doctorPatience is how long one check may take.
const doctorPatience = 2 * time.Second
