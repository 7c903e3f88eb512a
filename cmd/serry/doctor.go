package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
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
	name string
	run  func(context.Context, *site) finding
}

// checks are in the order in which a start meets the traps.
func checks() []check {
	return []check{
		{"host name", checkHostName},
		{"proxy variables", checkProxies},
		{"jax variables", checkJaxVariables},
		{"service", checkService},
		{"port", checkPort},
		{"interfaces", checkInterfaces},
		{"ipv6", checkIPv6},
		{"certificate", checkCertificate},
		{"clock", checkClock},
		{"rank count", checkTaskCount},
		{"rank numbers", checkTaskNumbers},
		{"earlier attempt", checkEarlierRun},
		{"jax backend", checkBackend},
		{"open files", checkOpenFiles},
		{"huge pages", checkMachine("huge-pages")},
		{"shared memory", checkMachine("shared-memory")},
		{"boot id", checkMachine("boot-id")},
	}
}

func newDoctor() *cobra.Command {
	a, p := &access{}, &printer{}
	var tasks int
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps a job from starting, and say how to fix it",
		Long: `Look for what keeps a job from starting, on this host and between it and the
service, and say how to fix it. Run it where a rank is to run, with the
variables that the rank has. It changes nothing. Exit status 1: it found a problem.`,
		Example: `  serry doctor --address coord.example.org
  srun -N 4 --ntasks-per-node 1 serry doctor --address coord.example.org`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			return examine(cmd.Context(), newSite(a, tasks), p)
		},
	}
	a.define(cmd)
	p.define(cmd)
	cmd.Flags().IntVar(&tasks, "tasks", 0, "`number` of ranks that the job is to have (default what variables of the launcher say)")
	return cmd
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

// examine runs all checks. A problem is an error, already told.
func examine(ctx context.Context, s *site, p *printer) error {
	var found []finding
	for _, c := range checks() {
		f := c.run(ctx, s)
		f.Check = c.name
		found = append(found, f)
	}
	problems := 0
	for _, f := range found {
		if f.Level == levelProblem {
			problems++
		}
	}
	sick := problems > 0
	done, err := p.object(struct {
		Version  int       `json:"version"`
		Address  string    `json:"address"`
		Healthy  bool      `json:"healthy"`
		Findings []finding `json:"findings"`
	}{outputVersion, s.address, !sick, found})
	if err != nil {
		return runError{err}
	}
	if !done {
		p.findings(found)
	}
	if sick {
		return runError{hinted{fmt.Errorf("%s found", counted(problems, "problem")), "see the lines marked problem"}}
	}
	return nil
}

// findings prints a line for each, and the fix below it.
func (p *printer) findings(found []finding) {
	colours := map[level]colour{levelOK: green, levelWarning: yellow, levelProblem: red}
	for _, f := range found {
		mark := fmt.Sprintf("%-7s  %-15s  ", f.Level, f.Check)
		p.wrap(cell{mark, colours[f.Level]}, cell{text: f.Observed})
		if f.Fix != "" {
			p.wrap(cell{text: strings.Repeat(" ", len(mark))}, cell{text: "fix: " + f.Fix})
		}
	}
}

// doctorPatience is how long one connection of a check may take.
const doctorPatience = 2 * time.Second
