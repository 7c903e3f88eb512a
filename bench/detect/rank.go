package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/bench/internal/agent"
)

// rankCommand is the first argument of a process that is a task.
const rankCommand = "rank"

// defaultHeartbeat is the heartbeat timeout of jax, and of serry serve.
const defaultHeartbeat = 100 * time.Second

// What a task is told and says, line by line:
//
//	join INCARNATION       connect, with that incarnation
//	joined                 it is connected
//	told TIME CAUSE        a real client would have ended its process at that time, so its connection is
//	                       closed; CAUSE says why
//	failed CAUSE           it could not connect
//
// The process ends when its standard input ends.
const (
	sayJoined = "joined"
	sayTold   = "told"
	sayFailed = "failed"
)

// serveRank is the whole life of a process that is a task.
func serveRank(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	fs := flag.NewFlagSet(rankCommand, flag.ContinueOnError)
	task := fs.Int("task", 0, "its number")
	address := fs.String("address", "", "of its relay")
	if err := fs.Parse(args); err != nil {
		return err
	}
	fmt.Fprintln(out, rankCommand, *task) // so that the parent sees it start
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		verb, rest, _ := strings.Cut(lines.Text(), " ")
		incarnation, err := strconv.ParseUint(rest, 10, 64)
		if verb != "join" || err != nil {
			return fmt.Errorf("told %q", lines.Text())
		}
		if err := live(ctx, out, agent.Config{Address: *address, Task: *task, Incarnation: incarnation, HeartbeatTimeout: defaultHeartbeat}); err != nil {
			fmt.Fprintln(out, sayFailed, oneLine(err))
		}
	}
	return lines.Err()
}

// live is one life of the task.
func live(ctx context.Context, out io.Writer, cfg agent.Config) error {
	joining, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a, err := agent.Connect(joining, cfg)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, sayJoined)
	select {
	case <-a.Dead():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	at, cause := a.Death()
	told := monotonic() - time.Since(at)
	a.Close()
	fmt.Fprintln(out, sayTold, int64(told), oneLine(cause))
	return nil
}

// oneLine is the text of an error without line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// monotonic is the clock that all processes of the machine share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is no Linux without it
	}
	return time.Duration(ts.Nano())
}

// A report is what a task said.
type report struct {
	task  int
	kind  string
	at    time.Duration // of sayTold
	cause string
}

// why is the part of the cause that says what happened.
func (r report) why() string {
	if _, text, ok := strings.Cut(r.cause, "desc = "); ok {
		return text
	}
	return r.cause
}

var errReport = errors.New("a task said what none says")

// readReport reads a line of a task.
func readReport(task int, line string) (report, error) {
	kind, rest, _ := strings.Cut(line, " ")
	r := report{task: task, kind: kind, cause: rest}
	switch kind {
	case sayJoined, sayFailed:
		return r, nil
	case sayTold:
		at, cause, _ := strings.Cut(rest, " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		r.at, r.cause = time.Duration(ns), cause
		if err == nil {
			return r, nil
		}
	}
	return r, fmt.Errorf("%w: %q", errReport, line)
}
