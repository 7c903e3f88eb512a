package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/diagnose"
)

func newJobs() *cobra.Command {
	p := &printer{}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List what runs on this host, and what ended lately",
		Long: `List the jobs (serry run) and servers (serry serve) of this user on this host:
those that run, where their service is, and the last few that have ended. Other
commands use the only one that runs, unless they are told of another address.`,
		Example: `  serry jobs
  serry jobs -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.open(cmd); err != nil {
				return seeHelp(cmd, err)
			}
			dir, err := registryDir()
			if err != nil {
				return runError{err}
			}
			return failed(p.showJobs(readEntries(dir), time.Now()))
		},
	}
	p.define(cmd)
	return cmd
}

// States of entries.
const (
	jobRuns   = "running"
	jobKilled = "killed" // it could not write down its end
)

// state says what is known of an entry.
func (e *entry) state() string {
	switch {
	case e.running():
		return jobRuns
	case e.Ended.IsZero():
		return jobKilled
	}
	return cmp.Or(e.End, "ended")
}

// A jobStatus is an entry in the answer of serry jobs.
type jobStatus struct {
	entry
	State string `json:"state"`
}

func (p *printer) showJobs(all []filed, now time.Time) error {
	jobs := []jobStatus{}
	for _, f := range all {
		if f.err == nil && !f.elsewhere() {
			jobs = append(jobs, jobStatus{f.entry, f.state()})
		}
	}
	// Those that run are first; readEntries has sorted them by their start.
	slices.SortStableFunc(jobs, func(a, b jobStatus) int { return cmp.Compare(order(a), order(b)) })
	if done, err := p.object(struct {
		Version int         `json:"version"`
		Jobs    []jobStatus `json:"jobs"`
	}{outputVersion, jobs}); done {
		return err
	}
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(p.errors, "serry: no job of this user runs on this host, or has lately")
		return err
	}
	return p.table(jobTable(jobs, now))
}

func order(j jobStatus) int {
	if j.State == jobRuns {
		return 0
	}
	return 1
}

func jobTable(jobs []jobStatus, now time.Time) *table {
	t := &table{columns: []column{
		{title: "PID"}, {title: "KIND"}, {title: "STATE", most: 17}, {title: "STARTED", right: true}, {title: "RANKS", right: true},
		{title: "ADDRESS", most: 24}, {title: "COMMAND"},
	}}
	for _, j := range jobs {
		c := red
		switch j.State {
		case jobRuns:
			c = green
		case endedWell, endedByUser:
			c = plain
		}
		state := j.State
		if j.State == jobRuns && j.Attempt > 1 {
			state += fmt.Sprintf(", attempt %d", j.Attempt)
		}
		t.add(cell{text: fmt.Sprint(j.PID)}, cell{text: j.Kind}, cell{state, c},
			cell{text: diagnose.Ago(now.Sub(j.Since).Seconds()) + " ago"}, cell{text: fmt.Sprint(j.Tasks)},
			cell{text: cmp.Or(j.Address, "-")}, cell{text: commandText(j.Command)})
	}
	return t
}

// commandText is a command as people know it: the folder of its program says little.
func commandText(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return strings.Join(append([]string{filepath.Base(command[0])}, command[1:]...), " ")
}

// errSeveralJobs says that a command must be told which of several jobs it is to look at.
var errSeveralJobs = errors.New("several jobs run on this host")

// theJob finds the only job that runs on this host; nil if there is none.
func theJob() (*entry, error) {
	dir, err := registryDir()
	if err != nil {
		return nil, nil // this user has no list
	}
	var found []entry
	for _, f := range readEntries(dir) {
		if f.err == nil && f.Address != "" && f.running() {
			found = merge(found, f.entry)
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	var lines []string
	for _, e := range found {
		lines = append(lines, fmt.Sprintf("\n    --address %s   %s (pid %d)", e.Address, strings.Join(e.Command, " "), e.PID))
	}
	return nil, hinted{fmt.Errorf("%w:%s", errSeveralJobs, strings.Join(lines, "")), "choose one by --address, SERRY_ADDRESS or --context; serry jobs shows more"}
}

// merge adds an entry to a list, unless one there is of the same service: servers of one service count as
// one, and so does a job beside the service that it uses.
func merge(found []entry, e entry) []entry {
	for i := range found {
		f := &found[i]
		switch same := f.Group != "" && f.Group == e.Group; {
		case same:
			f.Address += "," + e.Address
			return found
		case overlap(f.Address, e.Address):
			if len(e.Address) > len(f.Address) {
				*f = e // it names more servers
			}
			return found
		}
	}
	return append(found, e)
}

// overlap says whether two lists of addresses have one in common. This host has several names.
func overlap(a, b string) bool {
	others := strings.Split(b, ",")
	for one := range strings.SplitSeq(a, ",") {
		if slices.ContainsFunc(others, func(other string) bool { return plainAddress(one) == plainAddress(other) }) {
			return true
		}
	}
	return false
}

// plainAddress has one name for this host.
func plainAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
