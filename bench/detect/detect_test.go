package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
)

// The tasks of a test are processes of its own binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == rankCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// A small job of real processes: a task is killed, and the others are told which and why.
func TestKill(t *testing.T) {
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-n", "6", "-relays", "2", "-kills", "2", "-losses", "0", "-no-lab", "-json"}, &out, &progress); err != nil {
		t.Fatalf("run() = %v; progress:\n%s", err, progress.String())
	}
	var got struct{ Rows []row }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 1 || len(got.Rows[0].Rounds) != 2 || got.Rows[0].P50 <= 0 {
		t.Errorf("rows %+v; want one with two rounds that took some time", got.Rows)
	}
	for _, victim := range []int{1, 2} {
		if want := fmt.Sprintf("task %d: connection closed", victim); !strings.Contains(progress.String(), want) {
			t.Errorf("progress:\n%s\nwant %q", progress.String(), want)
		}
	}
}

func TestTable(t *testing.T) {
	slow := make([]time.Duration, 50)
	for i := range slow {
		slow[i] = time.Duration(i) * 6 * time.Millisecond
	}
	var out strings.Builder
	if err := printTable(&out, []row{
		killRow(256, 16, slow), lossRow(256, 16, []time.Duration{4 * time.Second}),
		{Name: "false alarms", Verdict: "none in 10h", Bar: "0", Kept: sheet.Kept(true)},
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"p99 <= 250ms MISS", "most <= 5s ok", "false alarms: none in 10h (bar 0 ok)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("table:\n%s\nwant %q", out.String(), want)
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, tc := range []struct{ name, out, want string }{
		{"passed and said so", "=== RUN   " + labTest + "\n    alarm_test.go:12: seed 1\n    alarm_test.go:50: 0 alarms in 10h0m0s\n--- PASS: " + labTest + " (1.00s)\nPASS\n", "0 alarms in 10h0m0s"},
		{"passed in silence", "--- PASS: " + labTest + " (1.00s)\nPASS\n", "none"},
		{"failed", "    alarm_test.go:50: task 3 accused\n--- FAIL: " + labTest + " (1.00s)\nFAIL\n", ""},
		{"not there", "testing: warning: no tests to run\nPASS\n", ""},
	} {
		if got := verdict(tc.out); got != tc.want {
			t.Errorf("%s: verdict() = %q; want %q", tc.name, got, tc.want)
		}
	}
}

func TestReadReport(t *testing.T) {
	for line, want := range map[string]report{
		"joined":                        {task: 3, kind: sayJoined},
		"told 12 poll: desc = it ended": {task: 3, kind: sayTold, at: 12, cause: "poll: desc = it ended"},
		"failed no such file":           {task: 3, kind: sayFailed, cause: "no such file"},
	} {
		if got, err := readReport(3, line); got != want || err != nil {
			t.Errorf("readReport(%q) = %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "told", "told soon", "panic: out of memory"} {
		if _, err := readReport(3, line); !errors.Is(err, errReport) {
			t.Errorf("readReport(%q): %v; want an error", line, err)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"-n", "1"}, {"-relays", "0"}, {"-relays", "1"}, {"-kills", "-1"}, {"stray"}, {"-unknown"}} {
		if _, err := parse(bad, io.Discard); !errors.Is(err, sheet.ErrUsage) {
			t.Errorf("parse(%q): %v; want a usage error", bad, err)
		}
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("parse(-h): %v; want help", err)
	}
}
