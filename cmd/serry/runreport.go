package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/wire"
)

// This file is the closing report of serry run as an object, for schedulers and scripts (D-CLI-7), and the failures that followed
// the first one (D-CLI-6).

// A runReport is what --report-file holds.
type runReport struct {
	Version  int                 `json:"version"`
	Well     bool                `json:"well"`
	ExitCode int                 `json:"exit_code"`
	Text     string              `json:"text"` // what became of the job, in a line
	Seconds  float64             `json:"seconds"`
	Attempts int                 `json:"attempts"`
	Restarts int                 `json:"restarts"`
	Ranks    int                 `json:"ranks"`
	Ended    int                 `json:"ended_well"` // ranks
	Signal   int                 `json:"interrupted_by,omitempty"`
	First    *failureReport      `json:"first_failure,omitempty"`
	Effects  []effect            `json:"effects"`
	Goodput  *wire.GoodputStatus `json:"goodput,omitempty"`
	Why      *diagnose.Report    `json:"why,omitempty"` // what serry why --ended says; nil: the service did not answer at the end
}

// A failureReport is the first failure of a job.
type failureReport struct {
	Rank         int      `json:"rank"`
	Attempt      int      `json:"attempt"`
	How          string   `json:"how"`
	AfterSeconds float64  `json:"after_seconds"` // since its process was started
	LastLines    []string `json:"last_lines"`
}

// An effect is how ranks ended that failed after the first one, those together of which the same is said.
type effect struct {
	Ranks []int  `json:"ranks"`
	How   string `json:"how"`
}

// String says it in a line: ranks 0-2,4-511: signal 6 (ABRT).
func (e effect) String() string { return diagnose.Ranks(e.Ranks) + ": " + e.How }

// effectsOf puts failures together by how they ended, in the order in which they were seen.
func effectsOf(later []*launch.Failure) []effect {
	all := []effect{}
	at := make(map[string]int)
	for _, f := range later {
		how := howFailed(f)
		i, ok := at[how]
		if !ok {
			i = len(all)
			at[how] = i
			all = append(all, effect{How: how})
		}
		all[i].Ranks = append(all[i].Ranks, f.Task)
	}
	return all
}

// howFailed is how a rank failed, without its name.
func howFailed(f *launch.Failure) string {
	return strings.TrimPrefix(f.String(), fmt.Sprintf("rank %d: ", f.Task))
}

func newRunReport(r *launch.Report, why *diagnose.Report) runReport {
	text, err := closing(r)
	if err != nil {
		text = err.Error()
	}
	report := runReport{
		Version: outputVersion, Well: r.Well(), ExitCode: r.ExitCode(), Text: strings.TrimPrefix(strings.TrimSpace(text), "serry: "),
		Seconds: r.Took.Seconds(), Attempts: r.Attempts, Restarts: r.Restarts, Ranks: r.Tasks, Ended: r.Ended,
		Signal: int(r.Interrupted), Effects: effectsOf(r.Later), Goodput: r.Goodput, Why: why,
	}
	if f := r.First; f != nil {
		report.First = &failureReport{Rank: f.Task, Attempt: f.Attempt, How: howFailed(f), AfterSeconds: f.After.Seconds(), LastLines: orEmpty(f.Last)}
	}
	return report
}

// writeReport writes a report to a file, which is whole or not there.
func writeReport(path string, report runReport) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".serry-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // once it is renamed there is none
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// checkReportFile says early what would be known only when the job is over.
func checkReportFile(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return fmt.Errorf("--report-file %s: there is no directory %s", path, filepath.Dir(path))
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--report-file %s: it is there, and no file", path)
	}
	return nil
}
