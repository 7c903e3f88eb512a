package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/pystack"
)

// openTestDoor opens a door in a folder whose name is short enough for a socket.
func openTestDoor(t *testing.T) (door string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	entry := filepath.Join(dir, "1-1"+entrySuffix)
	d := openStacksDoor(entry)
	if d.listener == nil {
		t.Fatalf("no socket beside %s", entry)
	}
	t.Cleanup(func() {
		d.close()
		if _, err := os.Stat(doorOf(entry)); err == nil {
			t.Error("the socket is still there after close")
		}
	})
	return doorOf(entry)
}

// child starts a program that runs until the test ends.
func child(t *testing.T, name string, args ...string) int {
	t.Helper()
	c := exec.Command(name, args...)
	if err := c.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	return c.Process.Pid
}

// TestLauncherAnswers asks this process, as their launcher, for ranks that the asking process must not read.
func TestLauncherAnswers(t *testing.T) {
	clause.Cite(t, "D-ST-3", "D-ST-14")
	door := openTestDoor(t)
	foreign := os.Getppid()
	ranks := []rankHere{
		{task: "worker/0", pids: []int{child(t, "sleep", "1000")}, door: door},
		{task: "worker/1", pids: []int{foreign}, door: door},
		{task: "worker/2", pids: []int{1}},
		{task: "worker/3", door: door + "x", pids: []int{1}},
	}
	refused := func() (all []rankReading) {
		for _, r := range ranks {
			all = append(all, rankReading{Task: r.task, Error: "refused", err: pystack.ErrPermission})
		}
		return all
	}
	readings := refused()
	askLaunchers(ranks, readings)
	for i, want := range []error{pystack.ErrNotPython, pystack.ErrPermission, pystack.ErrPermission, pystack.ErrPermission} {
		if readings[i].Task != ranks[i].task || !errors.Is(readings[i].err, want) {
			t.Errorf("askLaunchers() = %+v; want %s with %v", readings[i], ranks[i].task, want)
		}
	}
	if main := readings[0].Main(); main == nil {
		t.Errorf("askLaunchers() = %+v; want what its main thread does", readings[0])
	}
	if readings[1].Error == "refused" || readings[2].Error != "refused" || readings[3].Error != "refused" {
		t.Errorf("askLaunchers() = %+v; want rank 1 answered, and ranks 2 and 3 as they were", readings[1:])
	}
	if python := knownPython(); python != "" {
		ranks[0].pids[0] = child(t, python, "-c", "while True: pass")
		for readings[0].err != nil || readings[0].Main() == nil { // until it is a Python, and runs
			readings = refused()
			askLaunchers(ranks, readings)
		}
	}
}

// TestQuestionsWithoutSense go unanswered, and the door stays open.
func TestQuestionsWithoutSense(t *testing.T) {
	clause.Cite(t, "D-ST-4")
	door := openTestDoor(t)
	for _, question := range []string{"", "\n", "{", "[]", `{"version":2}`, `{"version":1,"ranks":[{"task":1}]}`, "\x00\xff\x1b"} {
		conn, err := net.Dial("unix", door)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, question)
		conn.(*net.UnixConn).CloseWrite()
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("%q is answered by %q", question, answer)
		}
		conn.Close()
	}
	if readings, err := askDoor(door, []rankHere{{task: "worker/0"}}); err != nil || len(readings) != 1 || !errors.Is(readings[0].err, pystack.ErrPermission) {
		t.Errorf("askDoor() = %v, %v; want a refusal of a rank without processes", readings, err)
	}
}
