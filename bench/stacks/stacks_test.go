package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/pystack"
)

// A tiny run goes through all programs, beside a peer that finds no thread in any of them.
func TestRun(t *testing.T) {
	python := findPythons()[0]
	if out, err := exec.Command(python, "-c", "import sys; print((3, 11) <= sys.version_info[:2] <= (3, 13))").Output(); err != nil || strings.TrimSpace(string(out)) != "True" {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is no Python of 3.11 to 3.13 (%v): without one nothing is tested", python, err)
		}
		t.Skip("no Python of 3.11 to 3.13 is here to be read")
	}
	peer := filepath.Join(t.TempDir(), "py-spy")
	if err := os.WriteFile(peer, []byte("#!/bin/sh\necho '[]'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir()) // a list of jobs of its own
	var out bytes.Buffer
	var err error
	for range 20 { // a thread that gets no processor does not stop in time, which serry says and does not guess
		out.Reset()
		err = run(t.Context(), []string{"-rounds", "1", "-sampled", "0", "-jax", "", "-pythons", python, "-py-spy", peer}, &out, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "did not stop") {
			break
		}
	}
	if err != nil && !strings.Contains(err.Error(), "times faster") {
		t.Fatal(err)
	}
	for _, want := range []string{"5 threads asleep, python 3.1", "5 threads busy, python 3.1", "8 ranks, as commands"} {
		i := strings.Index(out.String(), want)
		if i < 0 {
			t.Fatalf("no row %q in\n%s", want, &out)
		}
		row, _, _ := strings.Cut(out.String()[i:], "\n")
		if fields := strings.Fields(row); fields[len(fields)-2] != "1/1" {
			t.Errorf("%q: want all readings of serry right", row)
		}
	}
}

func TestPossible(t *testing.T) {
	file := filepath.Join(t.TempDir(), "busy.py")
	if err := os.WriteFile(file, []byte("def f0(n):\n    f1(n)\ndef f1(n):\n    pass\nf0(1)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	right, err := possible(file)("")
	if err != nil {
		t.Fatal(err)
	}
	stack := func(line int) reading {
		got := make(reading)
		for id := range 5 {
			got[id] = []pystack.Frame{{Function: "f1", File: file, Line: 4}, {Function: "f0", File: file, Line: line}}
		}
		return got
	}
	if !right(stack(2)) || right(stack(1)) || right(nil) {
		t.Error("possible() takes a call from another line, or no threads, for right")
	}
}
