package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

// A collectivesCommand is serry why --collectives.
type collectivesCommand struct {
	wanted bool
	svg    string // file for the picture, or empty
	torch  string // folder for files that the analyser of PyTorch reads, or empty
}

// exitStalled is the status of why for a wait that lasts too long.
const exitStalled = 3

const (
	collectivesPatience = 3 * time.Second // that processes have to answer
	rowsBefore          = 2               // operations before the one that differs
	ranksInRow          = 6               // groups of ranks of one operation
	hangingFor          = 5 * time.Second // an operation that some ranks have begun and others have not is one to report
)

// A collectivesPage is the answer of serry why --collectives.
type collectivesPage struct {
	Version int                `json:"version"`
	Verdict string             `json:"verdict"`
	Cliques []collectiveClique `json:"cliques"` // those with a riddle first
	Silent  []string           `json:"silent"`  // processes that have not answered, the first of them
	Missing int                `json:"missing"` // how many have not
}

// A collectiveClique is what the members of a clique have recorded, and what follows from it.
type collectiveClique struct {
	*collective.Flight
	Divergence *collective.Divergence `json:"divergence,omitempty"`
	Lags       []collective.Lag       `json:"lags"`
	stage      int                    // an exit status: how bad it is
}

// collectives asks all processes of the job which collective operations they run, and prints what that says.
func (q *query) collectives(ctx context.Context, r *remote, c collectivesCommand) error {
	page, bad, err := r.collectives(ctx)
	if err != nil {
		return err
	}
	if bad != nil {
		fmt.Fprintf(q.errors, "serry: %s\n", printable(bad.Error()))
	}
	if err := errors.Join(c.draw(page), c.dump(page)); err != nil {
		return err
	}
	done, err := q.object(page)
	if err != nil {
		return err
	}
	if !done {
		q.printCollectives(page)
	}
	if status := page.exitStatus(); status != exitDone {
		return unsaid{exitError{errors.New(page.Verdict), status}} // stdout has it
	}
	return nil
}

// collectives asks all processes of the job which collective operations they run. bad says what of their answers cannot be read.
func (r *remote) collectives(ctx context.Context) (page collectivesPage, bad, err error) {
	g, err := r.gather(ctx, wire.Inquiry{Kind: wire.CollectivesEvidence, Wait: collectivesPatience})
	if err != nil {
		return page, nil, err
	}
	var told []collective.Testimony
	for _, p := range g.Parts {
		told = append(told, collective.Testimony{Body: p.Body, Asked: p.Asked, Answered: p.Answered})
	}
	flights, bad := collective.MergeTestimonies(told)
	return collectivesPageOf(flights, g), bad, nil
}

func collectivesPageOf(flights []*collective.Flight, g wire.Gathered) collectivesPage {
	page := collectivesPage{Version: outputVersion, Cliques: []collectiveClique{}, Silent: orEmpty(g.Silent), Missing: g.Missing}
	for _, f := range flights {
		c := collectiveClique{Flight: f, Divergence: f.Divergence(), Lags: orEmpty(f.Lags())}
		c.stage = c.judge()
		page.Cliques = append(page.Cliques, c)
	}
	worst := []int{exitFailed, exitStalled, exitDone}
	slices.SortStableFunc(page.Cliques, func(a, b collectiveClique) int {
		return cmp.Compare(slices.Index(worst, a.stage), slices.Index(worst, b.stage))
	})
	switch {
	case len(page.Cliques) > 0:
		page.Verdict, _, _ = strings.Cut(page.Cliques[0].String(), "\n")
	case g.Asked == 0:
		page.Verdict = "no process of this job answers questions: only programs that use serry's own collectives do"
	default:
		page.Verdict = "no process of this job has a clique"
	}
	return page
}

// judge says how bad it is: members that run different operations, or a clique that has failed, are a failure. That some
// ranks have begun an operation and others have not is only the course of things, unless it lasts.
func (c *collectiveClique) judge() int {
	d := c.Divergence
	switch {
	case c.Err != "" || d != nil && len(d.Ops) > 1:
		return exitFailed
	case d != nil && len(d.Missing) > 0 && c.openFor(d.Seq) >= hangingFor:
		return exitStalled
	}
	return exitDone
}

// openFor is how long an operation has been under way on the rank that began it first.
func (c *collectiveClique) openFor(seq uint64) (longest time.Duration) {
	for _, t := range c.Tracks {
		for _, r := range t.Records {
			if r.All && r.Seq == seq && r.Ended.IsZero() {
				longest = max(longest, c.At.Sub(r.Began))
			}
		}
	}
	return longest
}

func (p *collectivesPage) exitStatus() int {
	if len(p.Cliques) == 0 {
		return exitDone
	}
	return p.Cliques[0].stage
}

// draw writes the picture of the first clique.
func (c collectivesCommand) draw(page collectivesPage) error {
	if c.svg == "" {
		return nil
	}
	if len(page.Cliques) == 0 {
		return errors.New("--svg: " + page.Verdict)
	}
	f, err := os.Create(c.svg)
	if err != nil {
		return err
	}
	return errors.Join(page.Cliques[0].WriteSVG(f), f.Close())
}

// dump writes the records of the first clique, a file for each rank that has answered.
func (c collectivesCommand) dump(page collectivesPage) error {
	if c.torch == "" {
		return nil
	}
	if len(page.Cliques) == 0 {
		return errors.New("--pytorch: " + page.Verdict)
	}
	if err := os.MkdirAll(c.torch, 0o777); err != nil {
		return err
	}
	for _, t := range page.Cliques[0].Tracks {
		if t.Silent != "" {
			continue
		}
		f, err := os.Create(filepath.Join(c.torch, fmt.Sprint("rank_", t.Rank)))
		if err != nil {
			return err
		}
		if err := errors.Join(page.Cliques[0].WritePyTorch(f, t.Rank), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// printCollectives prints the answer for people.
func (p *printer) printCollectives(page collectivesPage) {
	p.wrap(cell{}, cell{page.Verdict, p.stageColour(page.exitStatus())})
	for i := range page.Cliques {
		c := &page.Cliques[i]
		fmt.Fprintln(p.out)
		p.wrap(cell{}, cell{"clique " + c.Clique, bold})
		if c.Err != "" {
			p.wrap(dash, cell{text: "it has failed: " + c.Err})
		}
		for line := range strings.SplitSeq(c.String(), "\n") {
			p.wrap(dash, cell{text: line})
		}
		p.operations(c)
	}
	if page.Missing > 0 {
		fmt.Fprintln(p.out)
		p.wrap(cell{}, cell{fmt.Sprintf("no answer within %v from %s", collectivesPatience, strings.Join(page.Silent, ", ")), yellow})
	}
}

func (p *printer) stageColour(status int) colour {
	return map[int]colour{exitDone: green, exitFailed: red, exitStalled: yellow}[status]
}

// operations prints which ranks began the last operations when: those up to the one that differs, or the last ones.
func (p *printer) operations(c *collectiveClique) {
	last := uint64(0)
	for _, t := range c.Tracks {
		for _, r := range t.Records {
			if r.All {
				last = max(last, r.Seq)
			}
		}
	}
	if c.Divergence != nil {
		last = c.Divergence.Seq
	}
	for seq := last - min(last, rowsBefore); seq <= last && last > 0; seq++ {
		for _, row := range c.rows(seq) {
			p.wrap(cell{text: fmt.Sprintf("  %-6d", seq)}, cell{text: row})
		}
	}
}

// rows says what ranks did under one number, ranks that did the same together.
func (c *collectiveClique) rows(seq uint64) (rows []string) {
	type group struct {
		ranks       []string
		first, last time.Time
		what        string
	}
	var groups []*group
	for _, t := range c.Tracks {
		for _, r := range t.Records {
			if !r.All || r.Seq != seq {
				continue
			}
			what := r.Op + ", " + r.Outcome
			i := slices.IndexFunc(groups, func(g *group) bool { return g.what == what })
			if i < 0 {
				i, groups = len(groups), append(groups, &group{what: what, first: r.Began, last: r.Began})
			}
			g := groups[i]
			g.ranks = append(g.ranks, fmt.Sprintf("rank/%d", t.Rank))
			if r.Began.Before(g.first) {
				g.first = r.Began
			}
			if r.Began.After(g.last) {
				g.last = r.Began
			}
		}
	}
	for _, g := range groups[:min(len(groups), ranksInRow)] {
		noun := "rank "
		if len(g.ranks) > 1 {
			noun = "ranks "
		}
		row := noun + strings.ReplaceAll(strings.ReplaceAll(diagnose.TaskRanges(g.ranks), "rank/", ""), " ", ",") + " at " + g.first.Format("15:04:05.000")
		if d := g.last.Sub(g.first); d > 0 {
			row += fmt.Sprintf(" to %v later", d.Round(time.Microsecond))
		}
		rows = append(rows, row+": "+g.what)
	}
	return rows
}
