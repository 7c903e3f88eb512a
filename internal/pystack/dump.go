package pystack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file reads stacks by a signal (D-ST-8, 9), from a process that has run the shim. Unlike a read from outside it changes the
// process: a call that waits may return early, and a rank has been seen to leave its hang by it. So it is never done
// without being asked for.

// ErrUnarmed says that a process would not answer the signal: for a process that does not expect it the signal is death.
var ErrUnarmed = errors.New("it does not answer a signal: it is no Python that serry run has started, or ignores PYTHONPATH")

const (
	dumpName                    = "/memfd:serry-stacks" // as the kernel shows the file of the shim
	dumpPatience                = 2 * time.Second       // for the process to write its stacks
	dumpPause                   = 10 * time.Millisecond // between two looks at them
	dumpQuiet                   = 50 * time.Millisecond // without a new byte: they are complete
	firstRealTime, lastRealTime = 34, 64                // that glibc leaves to programs; of the others each means something

	maxDump = 2 << 20 // bytes; faulthandler itself stops at 100 threads of 100 frames
)

// Dump has a process write its stacks by a signal, and reads them. The process must answer that signal.
func Dump(ctx context.Context, pid, signal int) (*Stacks, error) {
	// Of another process with the same number nothing here holds: the pidfd names this one.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	defer unix.Close(fd)
	start, err := startTime(pid)
	if err != nil {
		return nil, err
	}
	if !catches(pid, signal) {
		return nil, ErrUnarmed
	}
	f, err := openDump(pid)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	s, err := Native(pid) // what the main thread does, before the signal ends that
	if err != nil {
		return nil, err
	}
	if now, err := startTime(pid); err != nil || now != start {
		return nil, ErrGone
	}
	if err := unix.PidfdSendSignal(fd, syscall.Signal(signal), nil, 0); err != nil {
		return nil, unreadable(err)
	}
	text, err := awaitDump(ctx, f, before)
	if err != nil {
		return nil, err
	}
	s.dumped(parseDump(text))
	return s, nil
}

// catches says whether a process handles a real-time signal.
func catches(pid, signal int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || signal < firstRealTime || signal > lastRealTime {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if mask, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && caught&(1<<(signal-1)) != 0
		}
	}
	return false
}

// openDump opens the file to which the shim has the stacks written. A program that has closed all its files has none any more; the
// stacks would then go to whatever has the number of that file now.
func openDump(pid int) (*os.File, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, unreadable(err)
	}
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, dumpName) {
			f, err := os.Open(path)
			if err != nil {
				return nil, unreadable(err)
			}
			return f, nil
		}
	}
	return nil, ErrUnarmed
}

// awaitDump reads what is written behind a place of a file, until nothing more comes.
func awaitDump(ctx context.Context, f *os.File, from int64) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dumpPatience, fmt.Errorf("it has not answered the signal within %v", dumpPatience))
	defer cancel()
	size, since := from, time.Now()
	tick := time.NewTicker(dumpPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if n := info.Size(); n != size {
			size, since = n, time.Now()
		}
		if size > from && time.Since(since) >= dumpQuiet {
			break
		}
	}
	var text bytes.Buffer
	_, err := io.Copy(&text, io.NewSectionReader(f, from, min(size-from, maxDump)))
	return text.Bytes(), err
}

// A dumpedThread is a thread as faulthandler writes it.
type dumpedThread struct {
	name   string // its number as Python has it, which the kernel does not know
	frames []Frame
	deeper bool
}

// parseDump reads the text of faulthandler. The main thread is its last one: new threads are put in front of the list.
func parseDump(text []byte) (threads []dumpedThread) {
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		head, isHead := strings.CutSuffix(line, " (most recent call first):")
		switch {
		case isHead && len(threads) < maxThreads:
			threads = append(threads, dumpedThread{name: strings.TrimPrefix(strings.TrimPrefix(head, "Current t"), "T"), frames: []Frame{}})
		case len(threads) == 0:
		case line == "  ...":
			threads[len(threads)-1].deeper = true
		default:
			if f, ok := parseFrame(line); ok {
				t := &threads[len(threads)-1]
				if t.deeper = t.deeper || len(t.frames) == maxFrames; !t.deeper {
					t.frames = append(t.frames, f)
				}
			}
		}
	}
	for i := range threads {
		threads[i].name = strings.TrimPrefix(threads[i].name, "hread ")
	}
	return threads
}

// parseFrame reads a line like `  File "train.py", line 10 in load_batch`.
func parseFrame(line string) (f Frame, ok bool) {
	rest, ok := strings.CutPrefix(line, `  File "`)
	if !ok {
		return f, false
	}
	at := strings.LastIndex(rest, `", line `) // a name of a file may have quotes
	if at < 0 {
		return f, false
	}
	number, function, _ := strings.Cut(rest[at+len(`", line `):], " in ")
	f.File, f.Function = clipped(rest[:at]), clipped(function)
	if line, err := strconv.Atoi(number); err == nil && line >= 0 {
		f.Line = line // a frame that belongs to no line has "???"
	}
	return f, true
}

func clipped(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxString)], "?") }

// dumped puts the frames of a dump in the place of what the kernel says of threads: which of its threads is which only the main
// thread tells.
func (s *Stacks) dumped(threads []dumpedThread) {
	main := s.Main()
	all := []Thread{}
	for i := len(threads) - 1; i >= 0; i-- {
		t := Thread{Name: threads[i].name, Frames: threads[i].frames, Deeper: threads[i].deeper}
		if i == len(threads)-1 && main != nil {
			t.ID, t.Name, t.State, t.Wait = main.ID, main.Name, main.State, main.Wait
		}
		all = append(all, t)
	}
	s.Threads, s.Python = all, "of any version, asked by a signal"
}

// FirstDump asks the first process of a rank that answers a signal, nearest first.
func FirstDump(ctx context.Context, pids []int, signal int) (Stacks, error) {
	first := ErrGone
	for i, pid := range pids {
		s, err := Dump(ctx, pid, signal)
		if err == nil {
			return *s, nil
		}
		if i == 0 || errors.Is(first, ErrUnarmed) {
			first = err
		}
	}
	return Stacks{Threads: []Thread{}}, first
}
