package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/internal/pystack"
)

// A reading has the stacks of threads, by their numbers.
type reading map[int][]pystack.Frame

// A reader reads a process once.
type reader func() (reading, error)

// measure reads by both readers in turn, so that whatever changes on the machine changes for both. A reading that fails
// is a wrong one.
func (r *row) measure(rounds int) error {
	for round := range rounds {
		for i, read := range []reader{r.ours, r.peer} {
			began := time.Now()
			got, err := read()
			r.took[i] = append(r.took[i], sheet.Millis(time.Since(began)))
			if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) || round == 0 && i == 0 && err != nil {
				return fmt.Errorf("%w; scripts/venvs.sh py-spy installs py-spy", err)
			}
			if err == nil && r.right(got) {
				r.rightCounts[i]++
			}
		}
	}
	return nil
}

// readOurs finds the Python in a process and reads it.
func readOurs(pid int) reader {
	return func() (reading, error) {
		s, err := pystack.Read(pid)
		if err != nil {
			return nil, err
		}
		got := make(reading)
		for _, t := range s.Threads {
			if t.Unread != "" {
				return nil, errors.New(t.Unread)
			}
			got[t.ID] = t.Frames
		}
		return got, nil
	}
}

// readPySpy lets py-spy dump a process.
func readPySpy(ctx context.Context, command string, pid int) reader {
	return func() (reading, error) {
		out, err := exec.CommandContext(ctx, command, "dump", "--json", "--pid", fmt.Sprint(pid)).Output()
		if err != nil {
			return nil, err
		}
		var threads []struct {
			ID     int `json:"os_thread_id"`
			Frames []struct {
				Name, Filename string
				Line           int
			}
		}
		if err := json.Unmarshal(out, &threads); err != nil {
			return nil, err
		}
		got := make(reading)
		for _, t := range threads {
			for _, f := range t.Frames {
				got[t.ID] = append(got[t.ID], pystack.Frame{Function: f.Name, File: f.Filename, Line: f.Line})
			}
		}
		return got, nil
	}
}

// stacks runs serry stacks, and returns the main threads of all ranks.
func (o options) stacks(ctx context.Context) (reading, error) {
	out, err := exec.CommandContext(ctx, o.binary, "stacks", "-o", "json").Output()
	var page struct{ Ranks []pystack.Stacks }
	if len(out) == 0 { // otherwise it may say that no rank is a Python yet
		return nil, err
	}
	if err := json.Unmarshal(out, &page); err != nil {
		return nil, err
	}
	got := make(reading)
	for _, r := range page.Ranks {
		if main := r.Main(); main != nil && len(main.Frames) > 0 {
			got[r.PID] = main.Frames
		}
	}
	return got, nil
}

// A program is what a row is about.
type program struct {
	name   string
	python string
	file   string
	bar    int // how many times faster; 0: none
	judge  func(firstLine string) (func(reading) bool, error)
}

//go:embed *.py
var files embed.FS

// unpack writes a program to a folder.
func unpack(dir, name string) (string, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, name)
	return file, os.WriteFile(file, text, 0o600)
}

// programs lists what is read.
func (o options) programs(dir string) ([]program, error) {
	asleep, err1 := unpack(dir, "asleep.py")
	busy, err2 := unpack(dir, "busy.py")
	jax, err3 := unpack(dir, "withjax.py")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	var all []program
	for _, python := range o.pythons {
		version, err := exec.Command(python, "-c", "import platform; print(platform.python_version())").Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", python, err)
		}
		name := ", python " + strings.TrimSpace(string(version))
		// Threads that run have to be stopped first, and one that waits for a processor stops when it gets one.
		all = append(all, program{"5 threads asleep" + name, python, asleep, bar, itself}, program{"5 threads busy" + name, python, busy, bar, possible(busy)})
	}
	if o.jax != "" {
		all = append(all, program{"a process of jax", o.jax, jax, bar, itself})
	}
	return all, nil
}

// itself compares a reading with what the program has said of itself.
func itself(line string) (func(reading) bool, error) {
	var want reading
	if err := json.Unmarshal([]byte(line), &want); err != nil {
		return nil, fmt.Errorf("%q: %w", line, err)
	}
	return func(got reading) bool {
		for id, frames := range want {
			if !slices.Equal(got[id], frames) {
				return false
			}
		}
		return true
	}, nil
}

// call is a line of busy.py that calls a function.
var call = regexp.MustCompile(`^\s+(f\d|spin)\(|^(spin)\(`)

// possible makes sure that each function calls the one above it in the line that it is at.
func possible(file string) func(string) (func(reading) bool, error) {
	return func(string) (func(reading) bool, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		callee := make(map[int]string)
		for i, line := range strings.Split(string(text), "\n") {
			if m := call.FindStringSubmatch(line); m != nil {
				callee[i+1] = m[1] + m[2]
			}
		}
		return func(got reading) bool {
			for _, frames := range got {
				for i := 1; i < len(frames); i++ {
					if frames[i].File == file && frames[i-1].File == file && callee[frames[i].Line] != frames[i-1].Function {
						return false
					}
				}
			}
			return len(got) == 5
		}, nil
	}
}
