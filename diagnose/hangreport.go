package diagnose

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/serry-dev/serry/wire"
)

// HangKey is where a launcher stores a [HangReport], in JSON, for commands to read.
const HangKey = wire.HangKey

// HangReportVersion is the version of [HangReport]. It changes when a field changes its meaning or goes.
const HangReportVersion = 1

// A HangReport is what a launcher tells the service about ranks that keep the others waiting.
type HangReport struct {
	Version int        `json:"version"`
	Begun   time.Time  `json:"begun"` // time 0 of the hang, on the wall of the launcher
	Hang    *Hang      `json:"hang,omitempty"`
	Past    []string   `json:"past,omitempty"`   // lines about former hangs, oldest first
	Clocks  []string   `json:"clocks,omitempty"` // lines about clocks of hosts that differ
	Short   []Shortage `json:"short,omitempty"`  // hosts under pressure, the worst first
	Strays  []Stray    `json:"strays,omitempty"` // processes of older attempts, in the order in which they were found

	Programs []string `json:"programs,omitempty"` // lines about ranks that run another program, or were told another number of ranks

	Aftermath *Aftermath `json:"aftermath,omitempty"` // of the first failure of the attempt, or nil

	// Attempts are those of the job, the oldest first; the last one runs. None: there is one, in which no rank was started again.
	Attempts []Attempt `json:"attempts,omitempty"`
}

// An Attempt is one of a job that serry run starts again when ranks fail.
type Attempt struct {
	Number   int       `json:"attempt"`
	Began    time.Time `json:"began"` // on the wall of the first launcher, as Ended is
	Ended    time.Time `json:"ended,omitzero"`
	Failed   bool      `json:"failed,omitempty"`        // Rank failed first
	Rank     int       `json:"rank,omitempty"`          // with Failed
	How      string    `json:"how,omitempty"`           // with Failed: how it ended, without its name
	Last     []string  `json:"last_lines,omitempty"`    // with Failed: that it wrote
	Restarts int       `json:"restarts,omitempty"`      // of single ranks
	Left     int       `json:"restarts_left,omitempty"` // that may still be made; of the one that runs
}

// SkewText says in one line that the clock of a host is ahead, or behind where the time is negative.
func SkewText(host string, ahead time.Duration) string {
	where := "ahead"
	if ahead < 0 {
		where = "behind"
	}
	return fmt.Sprintf("clock of %s is %s %s: serry orders events without it, your logs do not", host, Ago(ahead.Abs().Round(time.Second).Seconds()), where)
}

// ReadHang reads a report. Any task of a job can write the key, so nothing in it is taken on trust.
func ReadHang(text []byte) (*HangReport, error) {
	var r HangReport
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.Version != HangReportVersion {
		return nil, fmt.Errorf("report about a hang of version %d", r.Version)
	}
	if h := r.Hang; h != nil && (len(h.Ranks) == 0 && h.Kind != HangDeadlock && h.Kind != HangIdle || len(h.Waits) == 0 && (h.Kind == HangDiffer || h.Kind == HangIdle)) {
		return nil, errors.New("report about a hang without a rank")
	}
	r.Past = r.Past[max(0, len(r.Past)-pastShown):]
	r.Clocks = r.Clocks[max(0, len(r.Clocks)-pastShown):]
	r.Short = slices.DeleteFunc(r.Short, func(s Shortage) bool { return len(s.Ranks) == 0 })
	r.Short = r.Short[:min(len(r.Short), maxShortages)]
	r.Strays = r.Strays[max(0, len(r.Strays)-pastShown):]
	r.Programs = r.Programs[:min(len(r.Programs), pastShown)]
	r.Attempts = r.Attempts[max(0, len(r.Attempts)-pastShown):]
	if a := r.Aftermath; a != nil {
		a.Effects = slices.DeleteFunc(a.Effects, func(e Effect) bool { return len(e.Ranks) == 0 })
		a.Together = a.Together[:min(len(a.Together), maxAffected)]
		a.Effects = a.Effects[:min(len(a.Effects), maxEffects)]
	}
	return &r, nil
}

// pastShown is how many former stalls a report has at most.
const pastShown = 16

// stands says whether ranks stand still that others wait for.
func (r *HangReport) stands() bool {
	return r != nil && r.Hang != nil && (r.Hang.Stage == Stalled || r.Hang.Stage == Stuck)
}

// clocks are lines about the clocks of hosts, below a verdict on the first failure: a person compares it with logs.
func (r *HangReport) clocks() []HangLine {
	if r == nil {
		return nil
	}
	var lines []HangLine
	for _, text := range r.Clocks {
		lines = append(lines, HangLine{"host", text})
	}
	return lines
}

// programs are the lines about programs that differ (D-SC-19, D-SC-20), below whatever is wrong: ranks that do not run the same are a likely cause.
func (r *HangReport) programs() []HangLine {
	if r == nil {
		return nil
	}
	var lines []HangLine
	for _, text := range r.Programs[:min(len(r.Programs), programsNamed)] {
		lines = append(lines, HangLine{"program", text})
	}
	return lines
}

// differs makes it the verdict that ranks run different programs, in a job in which nothing else is wrong.
func (r *Report) differs(e Evidence) bool {
	lines := e.Hang.programs()
	if len(lines) == 0 {
		return false
	}
	r.Kind, r.Grade, r.Verdict = Well, Sure, lines[0].Text
	r.Evidence = append(lines[1:], HangLine{"grade", fmt.Sprintf("%s: the launchers have read what their processes run", Sure)})
	r.Advice = []string{"look at what starts the ranks, and at the copies of the program on their hosts; where that is meant, nothing is wrong"}
	return true
}
