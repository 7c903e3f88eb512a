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

// Workers of a real training are killed, and no step is lost or made twice.
func TestKills(t *testing.T) {
	lab.Clause(t, "CL-EX-1", "CLT-RCV-3", "CL-ATM-4")
	if testing.Short() {
		t.Skip("it builds serry, and takes seconds")
	}
	dir := t.TempDir()
	train, err := proc.BuildProgram(t.Context(), dir, "examples/train")
	if err != nil {
		t.Fatal(err)
	}
	serry, err := proc.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"-kills", "4", "-dead", "1m", "-serry", serry, "-train", train}
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatalf("run(%v) = %v", args, err)
	}
	if !strings.Contains(out.String(), "4 kills of 4 workers") {
		t.Errorf("want 4 kills in\n%s", out.String())
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-workers", "2"}, {"-kills", "0"}, {"-pace", "0"}, {"x"}} {
		if _, err := parse(args, io.Discard); !errors.Is(err, sheet.ErrUsage) {
			t.Errorf("parse(%v) = %v; want ErrUsage", args, err)
		}
	}
}

// What must not happen is found.
func TestBook(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"right": {[]string{"[0] has 0 aa", "[1] has 0 aa", "[0] made 1 bb", "[1] made 1 bb", "[0] step   1  loss 0.5",
			"[1] began 12", "[1] has 1 bb", "[0] has 1 bb", "[1] made 2 cc", "[0] made 2 cc"}, ""},
		"other parameters": {[]string{"[0] has 0 aa", "[1] has 0 aa", "[0] made 1 bb", "[1] made 1 bc"}, "rank 1 has parameters bc after 1 steps, another one bb"},
		"made twice":       {[]string{"[0] has 0 aa", "[0] made 1 bb", "[0] made 1 bb"}, "rank 0 makes step 1 after step 1"},
		"left out":         {[]string{"[0] has 0 aa", "[0] made 2 bb"}, "rank 0 makes step 2 after step 0"},
		"lost":             {[]string{"[0] has 0 aa", "[0] made 1 bb", "[0] has 0 aa"}, "rank 0 had made 1 steps, and goes on with 0"},
		"from the start":   {[]string{"[0] has 0 aa", "[0] made 1 bb", "[1] has 1 aa"}, "rank 1 has parameters aa after 1 steps, another one bb"},
	} {
		b, got := newBook(2), ""
		for _, line := range append([]string{"[0] began 10", "[1] began 11"}, c.lines...) {
			if err := b.hear(line); err != nil && got == "" {
				got = err.Error()
			}
		}
		if got != c.want {
			t.Errorf("%s: %q; want %q", name, got, c.want)
		}
	}
}
