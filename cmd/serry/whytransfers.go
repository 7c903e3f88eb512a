package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/wire"
)

const (
	transfersPatience = 3 * time.Second  // that processes have to answer
	transfersStalled  = 30 * time.Second // a transfer that has waited so long for one thing is one to report
	transfersShown    = 20               // transfers that are printed for people
)

// A transfersPage is the answer of serry why --transfers.
type transfersPage struct {
	Version   int            `json:"version"`
	Verdict   string         `json:"verdict"`
	Transfers []transferPage `json:"transfers"` // the oldest first
	Omitted   int            `json:"omitted"`   // that processes had no room to tell of
	Silent    []string       `json:"silent"`    // processes that have not answered, the first of them
	Missing   int            `json:"missing"`   // how many have not
}

// A transferPage is one transfer that has not ended.
type transferPage struct {
	Key     string  `json:"key"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Waits   string  `json:"waitsFor"` // a task
	Text    string  `json:"text"`
	Seconds float64 `json:"seconds"` // how long it has waited for that
	Bytes   int64   `json:"bytes"`
	Done    int64   `json:"done"`
}

// transfers asks all processes of the job what their transfers wait for, and prints what that says.
func (q *query) transfers(ctx context.Context, r *remote) error {
	page, bad, err := r.transfers(ctx)
	if err != nil {
		return err
	}
	for _, err := range bad {
		fmt.Fprintf(q.errors, "serry: %s\n", printable(err.Error()))
	}
	done, err := q.object(page)
	if err != nil {
		return err
	}
	if !done {
		q.printTransfers(page)
	}
	if page.stalled() {
		return unsaid{exitError{errors.New(page.Verdict), exitStalled}} // stdout has it
	}
	return nil
}

// transfers asks all processes of the job what their transfers wait for. bad are the errors of answers that cannot be read.
func (r *remote) transfers(ctx context.Context) (page transfersPage, bad []error, err error) {
	g, err := r.gather(ctx, wire.Inquiry{Kind: wire.TransfersEvidence, Wait: transfersPatience})
	if err != nil {
		return page, nil, err
	}
	var reports []transfer.Report
	for _, p := range g.Parts {
		var report transfer.Report
		if err := json.Unmarshal(p.Body, &report); err != nil {
			bad = append(bad, err)
			continue
		}
		reports = append(reports, report)
	}
	return transfersPageOf(reports, g), bad, nil
}

func transfersPageOf(reports []transfer.Report, g wire.Gathered) transfersPage {
	page := transfersPage{Version: outputVersion, Transfers: []transferPage{}, Silent: orEmpty(g.Silent), Missing: g.Missing}
	for _, r := range reports {
		page.Omitted += r.Omitted
	}
	for _, f := range transfer.Join(reports) {
		t := transferPage{Key: f.Key.String(), From: f.From.Task.String(), To: f.To.Task.String(), Waits: f.Blame.String(), Text: f.Text, Seconds: f.Long.Seconds()}
		for _, half := range []*transfer.Waiting{f.Send, f.Receive} {
			if half != nil {
				t.Bytes, t.Done = half.Bytes, max(t.Done, half.Done)
			}
		}
		page.Transfers = append(page.Transfers, t)
	}
	switch n := len(page.Transfers); {
	case g.Asked == 0:
		page.Verdict = "no process of this job answers questions: only programs that use serry's own transfers do"
	case n == 0:
		page.Verdict = "no transfer is under way"
	case page.stalled():
		page.Verdict = fmt.Sprintf("%d transfers have not ended; the first %s, for %v", n, page.Transfers[0].Text, seconds(page.Transfers[0].Seconds))
	default:
		page.Verdict = fmt.Sprintf("%d transfers are under way", n)
	}
	return page
}

// stalled says whether a transfer has waited for long.
func (p *transfersPage) stalled() bool {
	for _, t := range p.Transfers {
		if t.Seconds >= transfersStalled.Seconds() {
			return true
		}
	}
	return false
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}

// printTransfers prints the answer for people.
func (p *printer) printTransfers(page transfersPage) {
	status := exitDone
	if page.stalled() {
		status = exitStalled
	}
	p.wrap(cell{}, cell{page.Verdict, p.stageColour(status)})
	for i, t := range page.Transfers {
		if i == transfersShown {
			p.wrap(dash, cell{text: fmt.Sprintf("%d more", len(page.Transfers)-i)})
			break
		}
		p.wrap(dash, cell{text: fmt.Sprintf("%s -> %s: %s, for %v; %d of %d bytes", t.From, t.To, t.Text, seconds(t.Seconds), t.Done, t.Bytes)})
	}
	if page.Omitted > 0 {
		p.wrap(dash, cell{text: fmt.Sprintf("%d that there was no room for", page.Omitted)})
	}
	if page.Missing > 0 {
		fmt.Fprintln(p.out)
		p.wrap(cell{}, cell{fmt.Sprintf("no answer within %v from %s", transfersPatience, strings.Join(page.Silent, ", ")), yellow})
	}
}
