package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// A row of the table, as JSON has it too.
type row struct {
	Name    string    `json:"name"`
	Rounds  []float64 `json:"rounds_ms,omitempty"` // until the last task was told
	P50     float64   `json:"p50_ms,omitempty"`
	P99     float64   `json:"p99_ms,omitempty"`
	Most    float64   `json:"most_ms,omitempty"`
	Verdict string    `json:"verdict,omitempty"` // of a row that is no time
	Bar     string    `json:"bar"`
	Kept    string    `json:"kept"` // ok or MISS
}

const (
	barKill = 250 * time.Millisecond // at p99
	barLoss = 5 * time.Second        // always
)

func killRow(tasks, relays int, took []time.Duration) row {
	r := newRow(fmt.Sprintf("SIGKILL of one of %d tasks, %d relays", tasks, relays), took)
	r.Bar, r.Kept = fmt.Sprintf("p99 <= %v", barKill), sheet.Kept(r.P99 <= sheet.Millis(barKill))
	return r
}

func lossRow(tasks, far int, took []time.Duration) row {
	r := newRow(fmt.Sprintf("link of a host down, %d of %d tasks on it", far, tasks), took)
	r.Bar, r.Kept = fmt.Sprintf("most <= %v", barLoss), sheet.Kept(r.Most <= sheet.Millis(barLoss))
	return r
}

func newRow(name string, took []time.Duration) row {
	r := row{Name: name}
	for _, d := range took {
		r.Rounds = append(r.Rounds, sheet.Millis(d))
	}
	r.P50, r.P99, r.Most = sheet.Quantile(r.Rounds, 0.5), sheet.Quantile(r.Rounds, 0.99), slices.Max(r.Rounds)
	return r
}

// labTest is the run in virtual time: pauses, stalls and losses that must accuse no task.
const labTest = "TestNoFalseAlarm"

// falseAlarms runs the test and shows what it says.
func falseAlarms(ctx context.Context, progress io.Writer) (row, error) {
	r := row{Name: "false alarms, in virtual time", Bar: "0", Kept: sheet.Kept(false)}
	fmt.Fprintln(progress, "bench: running", labTest)
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^"+labTest+"$", "github.com/serry-dev/serry/internal/lab/storm").CombinedOutput()
	if r.Verdict = verdict(string(out)); err != nil || r.Verdict == "" {
		return r, fmt.Errorf("%s: %v\n%s", labTest, err, out)
	}
	r.Kept = sheet.Kept(true)
	return r, nil
}

// verdict finds what a test that passed has logged last: its summary. It is empty if none passed.
func verdict(out string) (said string) {
	passed := false
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "--- PASS: "+labTest) {
			passed = true
		} else if _, text, ok := strings.Cut(line, ".go:"); ok {
			_, said, _ = strings.Cut(text, ": ")
		}
	}
	if !passed {
		return ""
	}
	if said == "" {
		return "none"
	}
	return said
}

// printTable writes one line per row.
func printTable(w io.Writer, rows []row) error {
	tw := sheet.Table(w)
	fmt.Fprintln(tw, "until all others were told\trounds\tp50 ms\tp99 ms\tmost ms\tbar")
	for _, r := range rows {
		if len(r.Rounds) == 0 {
			continue
		}
		fmt.Fprintf(tw, "%s\t%d\t%.0f\t%.0f\t%.0f\t%s %s\n", r.Name, len(r.Rounds), r.P50, r.P99, r.Most, r.Bar, r.Kept)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if len(r.Rounds) == 0 {
			fmt.Fprintf(w, "%s: %s (bar %s %s)\n", r.Name, r.Verdict, r.Bar, r.Kept)
		}
	}
	return nil
}
