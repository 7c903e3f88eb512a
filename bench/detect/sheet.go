package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
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
	r.Bar, r.Kept = fmt.Sprintf("p99 <= %v", barKill), kept(r.P99 <= ms(barKill))
	return r
}

func lossRow(tasks, far int, took []time.Duration) row {
	r := newRow(fmt.Sprintf("link of a host down, %d of %d tasks on it", far, tasks), took)
	r.Bar, r.Kept = fmt.Sprintf("most <= %v", barLoss), kept(r.Most <= ms(barLoss))
	return r
}

func newRow(name string, took []time.Duration) row {
	r := row{Name: name}
	for _, d := range took {
		r.Rounds = append(r.Rounds, ms(d))
	}
	r.P50, r.P99, r.Most = quantile(r.Rounds, 0.5), quantile(r.Rounds, 0.99), slices.Max(r.Rounds)
	return r
}

// quantile is the least value that is not below a share of all values.
func quantile(v []float64, share float64) float64 {
	v = slices.Sorted(slices.Values(v))
	for i := range v {
		if float64(i+1) >= share*float64(len(v)) {
			return v[i]
		}
	}
	return 0
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

func kept(ok bool) string {
	if ok {
		return "ok"
	}
	return "MISS"
}

// labTest is the run in virtual time: pauses, stalls and losses that must accuse nobody.
const labTest = "TestNoFalseAlarm"

// falseAlarms runs the test and shows what it says.
func falseAlarms(ctx context.Context, progress io.Writer) (row, error) {
	r := row{Name: "false alarms, in virtual time", Bar: "0", Kept: kept(false)}
	fmt.Fprintln(progress, "bench: running", labTest)
	out, err := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^"+labTest+"$", "github.com/serry-dev/serry/internal/lab/storm").CombinedOutput()
	if r.Verdict = verdict(string(out)); err != nil || r.Verdict == "" {
		return r, fmt.Errorf("%s: %v\n%s", labTest, err, out)
	}
	r.Kept = kept(true)
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
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
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
