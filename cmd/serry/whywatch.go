package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/pause"
)

// This file is serry why --watch (D-CLI-1): the answer again and again.

// watchWhy says why until the service stops, or the user has seen enough. The exit status is that of the last answer.
func (q *query) watchWhy(ctx context.Context, r *remote, all bool, every time.Duration) error {
	every = max(every, leastPause)
	if !q.terminal || q.format == asJSON || q.format == asYAML {
		return q.streamWhy(ctx, r, all, every)
	}
	l := openLive(q.out, os.Stdin)
	defer l.close()
	return l.show(ctx, &whyView{topView: &topView{printer: &q.printer, remote: r}, all: all}, every)
}

// streamWhy prints the verdict whenever it is about something else: a line for people, or an object. An outage is told and waited
// out.
func (q *query) streamWhy(ctx context.Context, r *remote, all bool, every time.Duration) error {
	about, away := "", false
	for {
		e, err := r.wholeEvidence(ctx)
		switch {
		case err != nil && (r.broken.Err() != nil || ctx.Err() != nil):
			return err
		case err != nil && !away:
			fmt.Fprintf(q.errors, "serry: %v; waiting for it\n", err)
		case err == nil:
			report := judged(e, all, r.address)
			if now := diagnose.Subject(e, report); now != about {
				about = now
				if err := q.verdictLine(e, report); err != nil {
					return err
				}
			}
			if status := report.ExitStatus(); e.Status.Stopped && status != exitDone {
				return unsaid{exitError{errors.New(report.Verdict), status}} // stdout has it
			}
		}
		away = err != nil
		if e.Status.Stopped {
			return nil
		}
		if err := pause.For(ctx, every); err != nil {
			return err
		}
	}
}

// verdictLine prints a report in a line.
func (q *query) verdictLine(e diagnose.Evidence, report diagnose.Report) error {
	if done, err := q.line(report); done || err != nil {
		return err
	}
	_, err := fmt.Fprintf(q.out, "%s  %s\n", e.Status.Clock.Local().Format(time.TimeOnly), oneLine(report.Verdict))
	return err
}

// A whyView is what serry why --watch shows on a terminal.
type whyView struct {
	*topView
	all bool
}

// ask brings the picture up to date. An outage is shown, and waited out.
func (v *whyView) ask(ctx context.Context) error {
	e, err := v.remote.wholeEvidence(ctx)
	if v.failed = err; err != nil {
		if v.remote.broken.Err() != nil || ctx.Err() != nil {
			return err
		}
		return nil
	}
	v.status, v.report = e.Status, judged(e, v.all, v.remote.address)
	return nil
}

// lines draws the answer, and what is wrong with the service.
func (v *whyView) lines(columns, height int) []string {
	v.width = columns
	if v.status.Version == 0 {
		return []string{v.cut(fmt.Sprintf("%s: %v", v.remote.address, v.failed), 0)}
	}
	all := v.drawn(func(p *printer) error {
		p.explain(v.status, v.report)
		return nil
	})
	if v.failed != nil {
		all = append([]string{v.paint(red, v.cut(fmt.Sprintf("%v; showing what was known before", v.failed), 0))}, all...)
	}
	return append(v.fitted(all, height-1), v.cut("q quit", 0))
}

// press takes a key: there is nothing to choose.
func (v *whyView) press(_ context.Context, key byte) (quit bool) { return key == 'q' }
