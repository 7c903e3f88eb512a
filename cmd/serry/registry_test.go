package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownRegistry is a folder for the entries of one test.
func ownRegistry(t *testing.T) string {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir, err := registryDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestStaleEntriesDoNotRun(t *testing.T) {
	dir := ownRegistry(t)
	r, err := register(entry{Kind: kindServe, Address: "127.0.0.1:1", Tasks: 2, Command: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := theJob(); err != nil || e == nil || e.Address != "127.0.0.1:1" {
		t.Fatalf("theJob() = %v, %v; want this process", e, err)
	}
	for name, change := range map[string]func(*entry){
		"another start":   func(e *entry) { e.Start = "1" },
		"another machine": func(e *entry) { e.Machine = "another" },
		"another space":   func(e *entry) { e.Space = "pid:[1]" },
		"no process":      func(e *entry) { e.PID = 1 << 30 },
		"ended":           func(e *entry) { e.Ended = time.Now() },
	} {
		stale := *r
		change(&stale.entry)
		if err := stale.write(); err != nil {
			t.Fatal(err)
		}
		if e, err := theJob(); err != nil || e != nil {
			t.Errorf("%s: theJob() = %v, %v; want none", name, e, err)
		}
	}
	if all := readEntries(dir); len(all) != 1 {
		t.Errorf("%d entries; want 1: an entry is written in its place", len(all))
	}
}

func TestEntriesAreBounded(t *testing.T) {
	dir := ownRegistry(t)
	for i := range 3 * maxEnded {
		r, err := register(entry{Kind: kindRun, Command: make([]string, 10*maxArguments)})
		if err != nil {
			t.Fatal(err)
		}
		r.end(endedWell)
		// Another process has another file.
		if err := os.Rename(r.path, filepath.Join(dir, fmt.Sprintf("%d-1.json", i+1))); err != nil {
			t.Fatal(err)
		}
		if n := len(readEntries(dir)); n > maxEnded {
			t.Fatalf("%d entries after %d jobs; want at most %d", n, i+1, maxEnded)
		}
	}
}

func TestHostileEntriesAreData(t *testing.T) {
	dir := ownRegistry(t)
	for name, text := range map[string]string{
		"empty": "", "list": "[]", "text": "\x1b[2J", "number": `{"pid": "x"}`, "zero": "{}", "kind": `{"pid": 1, "kind": "shell"}`,
		"address": `{"pid": 1, "kind": "run", "address": "a b:c:d/"}`, "long": strings.Repeat(" ", maxEntry+1), "deep": strings.Repeat("[", maxEntry),
	} {
		if err := os.WriteFile(filepath.Join(dir, name+entrySuffix), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/proc/self/environ", filepath.Join(dir, "link"+entrySuffix)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"+entrySuffix), 0o600); err != nil { // nothing ever writes to it
		t.Fatal(err)
	}
	for _, f := range readEntries(dir) {
		if f.err == nil {
			t.Errorf("%s was read as %+v", f.path, f.entry)
		}
	}
	if e, err := theJob(); e != nil || err != nil {
		t.Errorf("theJob() = %v, %v; want none", e, err)
	}
	forget(dir)
	if all := readEntries(dir); len(all) > 0 {
		t.Errorf("%d files are left that are no entries", len(all))
	}
}

func TestServersOfOneServiceAreOneJob(t *testing.T) {
	peers := []entry{
		{Address: "10.0.0.1:8476", Group: "a=1,b=2"}, {Address: "10.0.0.2:8476", Group: "a=1,b=2"},
		{Address: "127.0.0.1:8476"}, {Address: "localhost:8476,host2:8476"},
	}
	var found []entry
	for _, e := range peers {
		found = merge(found, e)
	}
	if len(found) != 2 || found[0].Address != "10.0.0.1:8476,10.0.0.2:8476" || found[1].Address != "localhost:8476,host2:8476" {
		t.Errorf("merge(%v) = %v; want two jobs", peers, found)
	}
}
