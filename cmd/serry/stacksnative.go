package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/diagnose"
)

// serry stacks --native has a tool of the host read the native stacks of ranks (D-ST-13): those of C++ and of the kernel's calls, which
// serry itself does not unwind. All such tools hold the whole process while they read, some for seconds, so this is never done
// without being asked for.

// A nativeTool reads all threads of a process.
type nativeTool struct {
	name string
	args []string // before the number of the process
	more []string // behind it
}

// nativeTools are tried in this order.
var nativeTools = []nativeTool{
	{"eu-stack", []string{"-p"}, nil},
	{"gdb", []string{"-nx", "-batch", "-p"}, []string{"-ex", "thread apply all backtrace"}},
	{"py-spy", []string{"dump", "--native", "--pid"}, nil},
}

const (
	nativePatience = 15 * time.Second // that a tool may hold a process for
	nativeBytes    = 1 << 20          // of what it prints
)

var errNoNativeTool = errors.New("native stacks are read by eu-stack, gdb or py-spy, and none of them is installed here")

// findNative is the first tool that is installed.
func findNative(look func(name string) (string, error)) (nativeTool, error) {
	for _, tool := range nativeTools {
		if path, err := look(tool.name); err == nil {
			tool.name = path
			return tool, nil
		}
	}
	return nativeTool{}, hinted{errNoNativeTool, "install elfutils, which has eu-stack; serry stacks without --native needs no tool"}
}

// showNative prints the native stacks of ranks of this host, one after the other.
func (c *stacksCommand) showNative(ctx context.Context, args []string) error {
	if c.format != asTable && c.format != asWide {
		return fmt.Errorf("--native prints what a tool says, and not as %s", c.format)
	}
	tool, err := findNative(exec.LookPath)
	if err != nil {
		return err
	}
	here := ranksHere(c.address)
	s, r, err := c.status(ctx, here)
	if err != nil {
		return err
	}
	if r != nil {
		r.Close()
	}
	chosen, _, err := choose(s, here, args)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		return hinted{errors.New("none of these ranks runs on this host"), "serry tasks -o wide shows where they are: run serry stacks --native there"}
	}
	for i, rank := range chosen {
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		pid := rank.pids[0]
		if reading := readRank(rank); reading.PID != 0 {
			pid = reading.PID
		}
		fmt.Fprintf(c.errors, "serry: %s (process %d) stands still while %s reads it, for %v at most\n", diagnose.RankText(s, rank.task), pid, tool.name, nativePatience)
		text, err := tool.read(ctx, pid, nativePatience)
		fmt.Fprintln(c.out, c.paint(bold, fmt.Sprintf("  %s, process %d", diagnose.RankText(s, rank.task), pid)))
		for line := range strings.Lines(text) {
			fmt.Fprintln(c.out, "    "+oneLine(strings.TrimRight(line, "\n")))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", diagnose.RankText(s, rank.task), err)
		}
	}
	return nil
}

// read runs a tool on a process, and ends it if it takes too long. A process whose tool was ended goes on: the kernel lets go what
// a debugger held, but for a stop signal that was on its way.
func (n nativeTool) read(ctx context.Context, pid int, patience time.Duration) (string, error) {
	stopped := isStopped(pid)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s did not end within %v, and was ended", n.name, patience))
	defer cancel()
	cmd := exec.CommandContext(ctx, n.name, append(append(append([]string{}, n.args...), strconv.Itoa(pid)), n.more...)...)
	cmd.WaitDelay = time.Second
	out := &limitedBuffer{most: nativeBytes}
	cmd.Stdout, cmd.Stderr = out, out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if isStopped(pid) && !stopped {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it has ended, or may not be signalled
	}
	return out.String(), err
}

// isStopped says whether a signal, or a debugger, has stopped a process.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	return len(after) > 0 && (after[0] == 'T' || after[0] == 't')
}

// A limitedBuffer keeps the first bytes that are written to it.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

// Write implements [io.Writer].
func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, b.most-b.Len()))])
	return len(p), nil
}
