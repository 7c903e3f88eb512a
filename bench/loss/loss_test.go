package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/lab"
)

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) { rankOr(m.Run) }

// A process of a job is killed in the middle of an all-reduce. All survivors blame it, and go on without it. How long
// that takes is for the command to judge, on a quiet machine.
func TestKill(t *testing.T) {
	lab.Clause(t, "CL-FIG-3", "CL-REC-8", "CL-REC-10")
	if testing.Short() {
		t.Skip("it builds serry, and takes seconds")
	}
	binary, err := proc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"-ranks", "2,4", "-kills", "2", "-cuts", "0", "-size", "8000000", "-serry", binary}
	if err := run(t.Context(), args, &out, io.Discard); err != nil && !errors.Is(err, errMissed) {
		t.Fatalf("run(%v) = %v", args, err)
	}
	for _, want := range []string{"1 of 4 processes killed, over links   2 ", "1 of 4 processes killed, over memory  2 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-ranks", "1"}, {"-ranks", "many"}, {"-kills", "-1"}, {"-size", "0"}, {"x"}} {
		if _, err := parse(args, io.Discard); !errors.Is(err, sheet.ErrUsage) {
			t.Errorf("parse(%v) = %v; want ErrUsage", args, err)
		}
	}
}

func TestBlamed(t *testing.T) {
	killed, cut := newTrial(2), newTrial(2)
	cut.cut = true
	for text, want := range map[string][2]bool{
		"rank 2 (worker/2): peer has failed: process exited (found by rank 0)":           {true, true},
		"rank 1 (worker/1): peer has failed: process exited (found by rank 0)":           {false, false},
		"ranks 1 and 2: the link to the peer broke: silent for 3.028s (found by rank 1)": {false, true},
		"ranks 0 and 1: the link to the peer broke: silent for 3.028s (found by rank 1)": {false, false},
		"timed out, waiting for rank 2: no word (found by rank 0 in operation 7)":        {false, false},
	} {
		if got := [2]bool{killed.blamed(text), cut.blamed(text)}; got != want {
			t.Errorf("blamed(%q) = %v after a kill and a cut; want %v", text, got, want)
		}
	}
}
