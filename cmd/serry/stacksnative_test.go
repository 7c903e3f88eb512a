package main

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// The first tool that is installed is taken; where none is, that is said with what to install.
func TestFindNativeTool(t *testing.T) {
	lab.Clause(t, "D-ST-13", "TD-ST-10")
	only := func(names ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			for _, n := range names {
				if n == name {
					return "bin/" + name, nil
				}
			}
			return "", exec.ErrNotFound
		}
	}
	if tool, err := findNative(only("py-spy", "gdb")); err != nil || tool.name != "bin/gdb" {
		t.Errorf("findNative() = %v, %v; want gdb", tool, err)
	}
	_, err := findNative(only())
	h, ok := errors.AsType[hinted](err)
	if !errors.Is(err, errNoNativeTool) || !ok || !strings.Contains(h.hint, "elfutils") {
		t.Errorf("findNative() without a tool = %v; want what to install", err)
	}
}

// A tool that does not end is ended, and the process goes on, although the tool has stopped it; what a tool prints is bounded.
func TestNativeToolThatHangs(t *testing.T) {
	lab.Clause(t, "D-ST-13", "TD-ST-10")
	rank := exec.Command("sleep", "1000")
	if err := rank.Start(); err != nil {
		t.Fatal(err)
	}
	defer rank.Wait()
	defer rank.Process.Kill()
	pid := rank.Process.Pid
	hangs := nativeTool{name: "sh", args: []string{"-c", `echo "#0 nanosleep of $0"; kill -STOP $0; exec sleep 1000`}}
	text, err := hangs.read(t.Context(), pid, 5*time.Second) // for the shell to print its line
	if err == nil || !strings.Contains(err.Error(), "did not end within 5s, and was ended") || !strings.HasPrefix(text, "#0 nanosleep of ") {
		t.Errorf("read() = %q, %v; want what it printed, and that it was ended", text, err)
	}
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); isStopped(pid); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the process is still stopped; want that it goes on")
		}
	}
	failing := nativeTool{name: "sh", args: []string{"-c", "echo no; exit 3"}}
	if text, err := failing.read(t.Context(), pid, time.Minute); err == nil || text != "no\n" {
		t.Errorf("read() of a tool that fails = %q, %v; want its words, and an error", text, err)
	}
	b := limitedBuffer{most: 10}
	for range 3 {
		if n, err := b.Write(bytes.Repeat([]byte("x"), 7)); n != 7 || err != nil {
			t.Errorf("Write() = %d, %v", n, err)
		}
	}
	if b.Len() != 10 {
		t.Errorf("%d bytes are kept; want 10", b.Len())
	}
}
