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
	"github.com/serry-dev/serry/memory"
)

// TestMain lets the test binary be a rank.
func TestMain(m *testing.M) { rankOr(m.Run) }

// A process of a job is killed in the middle of an all-reduce. All survivors blame it, and go on without it. How long
// that takes is for the command to judge, on a quiet machine.
func TestKill(t *testing.T) {
	lab.Clause(t, "CL-EX-1", "CLT-RCV-1", "CL-FIG-3", "CL-REC-8", "CL-REC-10", "CL-TRN-16")
	if testing.Short() {
		t.Skip("it builds serry, and takes seconds")
	}
	binary, err := proc.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"-ranks", "2,4", "-kills", "2", "-cuts", "0", "-size", "8000000", "-dead", "1m", "-serry", binary}
	if err := run(t.Context(), args, &out, io.Discard); err != nil && !errors.Is(err, errMissed) {
		t.Fatalf("run(%v) = %v", args, err)
	}
	for _, want := range []string{"1 of 4 processes killed, over links   2 ", "1 of 4 processes killed, over memory  2 ", "segments left at 16 survivors of kills: none"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %q in\n%s", want, out.String())
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-over", "air"}, {"-first", "-1"}, {"-ranks", "1"}, {"-ranks", "many"}, {"-kills", "-1"}, {"-size", "0"}, {"x"}} {
		if _, err := parse(args, io.Discard); !errors.Is(err, sheet.ErrUsage) {
			t.Errorf("parse(%v) = %v; want ErrUsage", args, err)
		}
	}
}

// A survivor that holds more segments than its clique has processes, or any after it has closed its links, is told.
func TestSegmentsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		held, left map[int]int
		want       string
	}{
		"right":      {map[int]int{0: 2, 1: 2}, map[int]int{0: 0, 1: 0}, ""},
		"stuck":      {map[int]int{0: 2, 1: 2}, map[int]int{0: 0}, "rank 1 did not come to its end"},
		"those lost": {map[int]int{0: 2, 1: 5}, map[int]int{0: 0, 1: 0}, "rank 1 holds 5 segments in a clique of 2 processes: those of the clique before are leaked"},
		"at the end": {map[int]int{0: 2, 1: 2}, map[int]int{0: 1, 1: 0}, "rank 0 has closed its links, and 1 segments are left"},
	} {
		got := ""
		if err := (trial{victim: 2, held: c.held, left: c.left}).checkSegments(3); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: checkSegments() = %q; want %q", name, got, c.want)
		}
	}
	a, err := memory.NewArena(1, memory.ArenaOptions{Name: "serry segment"})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := heldSegments(); err != nil || n != 1 {
		t.Errorf("heldSegments() = %d, %v; want 1", n, err)
	}
	a.Close()
	if n, err := heldSegments(); err != nil || n != 0 {
		t.Errorf("heldSegments() = %d, %v after Close; want 0", n, err)
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
