package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire"
)

// This file is serry why about what is over (D-EV-7): a job whose service has ended with it, and a service of which there is a
// journal.

// A lastReport is what serry why says of a job that has ended. serry run keeps it beside the entry of the job in the list of jobs.
type lastReport struct {
	Version int              `json:"version"`
	Jobs    []wire.JobStatus `json:"jobs"` // for the names of ranks
	Report  diagnose.Report  `json:"report"`
}

const (
	lastSuffix     = ".why"
	maxLast        = 1 << 20         // bytes that such a file may have
	closesPatience = 2 * time.Second // for the service to say what it knows, when the job is over
)

// lastOf is where the last report is kept that belongs to an entry.
func lastOf(path string) string { return strings.TrimSuffix(path, entrySuffix) + lastSuffix }

// Closes asks the service what it knows of the job, while it still answers ([launch.Directory]).
func (r *registration) Closes() {
	if r.path == "" || r.Address == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closesPatience)
	defer cancel()
	a := access{address: r.Address, timeout: closesPatience, tls: r.TLS.files()}
	line, err := a.open(ctx)
	if err != nil {
		return // nothing can be said of the job but how its processes ended
	}
	defer line.Close()
	if e, err := line.wholeEvidence(ctx); err == nil {
		r.known = &e
	}
}

// keep writes down what serry why is to say of the job from now on, and returns it; nil: that is not known.
func (r *registration) keep(report *launch.Report) *diagnose.Report {
	if r.path == "" || r.known == nil {
		return nil
	}
	e := *r.known
	e.Ending = &diagnose.Ending{At: r.Ended, Well: report.Well(), Signal: int(report.Interrupted)}
	if _, err := closing(report); err != nil {
		e.Ending.Text = err.Error()
	}
	if f := report.First; f != nil {
		e.Ending.Task = serry.TaskID{Job: wire.DefaultJob, Index: f.Task}.String()
		e.Ending.Failed, e.Ending.Evidence, e.Ending.Followed = f.At, f.Evidence(), len(report.Later)
		e.Ending.Seen, e.Ending.Aftermath = f.Verdict, report.Aftermath
	}
	why := diagnose.Judge(e)
	why.Older = diagnose.Older(e, why)
	text, err := json.Marshal(lastReport{Version: outputVersion, Jobs: e.Status.Jobs, Report: why})
	if err == nil && len(text) <= maxLast {
		_ = os.WriteFile(lastOf(r.path), text, 0o600) // the job does not depend on it
	}
	why.Older = nil // a report file has what serry why says
	return &why
}

// errNoneEnded says that serry why --ended has nothing to tell.
var errNoneEnded = errors.New("no job of this user has ended on this host, or not so that it could say why")

// lastEnded finds the job of this host that ended last and left a report.
func lastEnded() (entry, lastReport, error) {
	dir, err := registryDir()
	if err != nil {
		return entry{}, lastReport{}, err
	}
	var found filed
	var last lastReport
	for _, f := range readEntries(dir) {
		if f.err != nil || f.Ended.IsZero() || f.Ended.Before(found.Ended) {
			continue
		}
		if l, err := readLast(lastOf(f.path)); err == nil {
			found, last = f, l
		}
	}
	if found.Ended.IsZero() {
		return entry{}, lastReport{}, errNoneEnded
	}
	return found.entry, last, nil
}

func readLast(path string) (lastReport, error) {
	var l lastReport
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return l, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxLast+1))
	switch {
	case err != nil:
		return l, err
	case len(text) > maxLast:
		return l, fmt.Errorf("more than %d bytes", maxLast)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, err
	}
	if l.Version != outputVersion || l.Report.Version != diagnose.ReportVersion {
		return l, fmt.Errorf("of version %d", l.Report.Version)
	}
	return l, nil
}

// ended answers about the job that ended last on this host.
func (q *query) ended(now time.Time, all bool) error {
	e, last, err := lastEnded()
	if err != nil {
		return runError{err}
	}
	if last.Report.Older = orEmpty(last.Report.Older); !all {
		last.Report.Older = nil
	}
	last.Report.AsOf = fmt.Sprintf("the end of the job at %s (%s ago), %s; its command was %s", e.Ended.Format(time.TimeOnly),
		diagnose.Ago(now.Sub(e.Ended).Seconds()), e.state(), commandText(e.Command))
	return q.answer(wire.Status{Jobs: last.Jobs}, last.Report)
}

// journal answers about a service as its journal leaves it.
func (q *query) journal(ctx context.Context, name string, all bool) error {
	h, err := (&storeSettings{prefix: defaultPrefix}).openHistory(ctx, name)
	if err != nil {
		return runError{err}
	}
	defer h.Close()
	end, err := server.Recall(ctx, h, topo.Republished)
	if err != nil {
		return runError{fmt.Errorf("%s: %w", name, err)}
	}
	e, err := recalled(ctx, end)
	if err != nil {
		return runError{err}
	}
	report := diagnose.Judge(e)
	if all {
		report.Older = diagnose.Older(e, report)
	}
	report.AsOf = fmt.Sprintf("the end of the journal, %s after the service began", diagnose.Ago(e.Status.UpSeconds))
	if !e.Status.Clock.IsZero() {
		report.AsOf = "the end of the journal, at " + e.Status.Clock.Format(time.TimeOnly)
	}
	return q.answer(e.Status, report)
}

// answer prints a report, and returns its exit status.
func (q *query) answer(s wire.Status, report diagnose.Report) error {
	done, err := q.object(report)
	if err != nil {
		return runError{err}
	}
	if !done {
		q.explain(s, report)
	}
	if status := report.ExitStatus(); status != exitDone {
		return unsaid{exitError{errors.New(report.Verdict), status}} // stdout has it
	}
	return nil
}

// A pastWhy is how serry why answers about what is over.
type pastWhy struct {
	journal string
	ended   bool
	all     *bool // --all
}

func (p *pastWhy) define(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.ended, "ended", false, "answer about the job that ended last on this host, even if another runs")
	cmd.Flags().StringVar(&p.journal, "journal", "", "answer from the `journal` of a service, as serry replay takes it, up to its end")
}

// instead makes a command answer about what is over: where that is asked for, and where no service was named, no job runs,
// and no service answers.
func (p *pastWhy) instead(cmd *cobra.Command, q *query) {
	present := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !p.ended && p.journal == "" {
			q.unreached = func() (bool, error) {
				if _, _, err := lastEnded(); err != nil || cmd.Flags().Changed("collectives") || cmd.Flags().Changed("svg") || cmd.Flags().Changed("transfers") || cmd.Flags().Changed("watch") {
					return false, nil // of these only a running job can tell
				}
				return true, q.ended(time.Now(), *p.all)
			}
			return present(cmd, args)
		}
		if err := q.printer.open(cmd); err != nil {
			return seeHelp(cmd, err)
		}
		if cmd.Flags().Changed("watch") {
			return seeHelp(cmd, errors.New("--watch is about a job that runs: leave out --ended and --journal"))
		}
		if p.ended && p.journal != "" {
			return seeHelp(cmd, errors.New("--ended and --journal exclude each other"))
		}
		if p.ended {
			return q.ended(time.Now(), *p.all)
		}
		return q.journal(cmd.Context(), p.journal, *p.all)
	}
}
