package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed stock.py
var stockScript string

// A peer is one of the clients compared: a process that makes calls when it is told to.
type peer struct {
	name    string
	command func(address string, task int) []string

	*process
}

// stockName is the peer that all others are compared with.
const stockName = "stock"

// newPeers are the clients, not started yet.
func newPeers(o options) ([]*peer, error) {
	if _, err := os.Stat(o.python); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not there: run scripts/venvs.sh jax-new", o.python)
	} else if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ours := func(dialect, pprof string) *peer {
		return &peer{name: "serry, " + dialect, command: func(address string, task int) []string {
			return []string{self, "-be", dialect, "-pprof", pprof, address, strconv.Itoa(task)}
		}}
	}
	stock := &peer{name: stockName, command: func(address string, task int) []string {
		return []string{o.python, "-c", stockScript, address, strconv.Itoa(task)}
	}}
	return []*peer{stock, ours("xla", ""), ours("serry", o.pprof)}, nil
}

// start runs the client as a task.
func (p *peer) start(ctx context.Context, address string, task int) error {
	var err error
	p.process, err = startProcess(ctx, p.command(address, task))
	return err
}

// ready waits until the client has joined.
func (p *peer) ready() error {
	line, err := p.line()
	if err == nil && line != "ready" {
		err = fmt.Errorf("first line %q", line)
	}
	if err != nil {
		return fmt.Errorf("%s did not join: %w", p.name, err)
	}
	return nil
}

// figures are what one turn gives.
type figures struct {
	perSecond float64 // calls
	cpu       float64 // microseconds of the client, per call
}

// measure lets the client make calls for a while.
func (p *peer) measure(call string, crowd int, turn time.Duration) (figures, error) {
	before, err := cpuTime(p.cmd.Process.Pid)
	if err != nil {
		return figures{}, err
	}
	if _, err := fmt.Fprintf(p.stdin, "%s %d %g\n", call, crowd, turn.Seconds()); err != nil {
		return figures{}, err
	}
	line, err := p.line()
	if err != nil {
		return figures{}, err
	}
	after, err := cpuTime(p.cmd.Process.Pid)
	if err != nil {
		return figures{}, err
	}
	var n int
	var seconds float64
	if _, err := fmt.Sscanf(line, "%d %g", &n, &seconds); err != nil || n < 1 || seconds <= 0 {
		return figures{}, fmt.Errorf("said %q, want calls and seconds", line)
	}
	return figures{perSecond: float64(n) / seconds, cpu: float64((after - before).Microseconds()) / float64(n)}, nil
}

// cpuTime is what a process has used of the processors: the sum of what /proc/PID/task/*/schedstat says
// of its threads, to the nanosecond, and of those that have ended.
func cpuTime(pid int) (time.Duration, error) {
	const processClock = 2 // in the low three bits: CPUCLOCK_SCHED, of all threads
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|processClock), &ts); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// A service is a running server.
type service struct {
	*process
	addr string
}

// startServer runs serry for a number of tasks.
func startServer(ctx context.Context, binary string, tasks int) (*service, error) {
	p, err := startProcess(ctx, []string{binary, "serve", "--tasks", strconv.Itoa(tasks), "--listen", "127.0.0.1:0", "--heartbeat-timeout", "1h"})
	if err != nil {
		return nil, fmt.Errorf("server: %w (make build)", err)
	}
	line, err := p.line()
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("server: %w", err)
	}
	return &service{p, line[strings.LastIndexByte(line, ' ')+1:]}, nil
}

// A process is a child that talks by lines.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	log    tail // what it says besides; shown when something goes wrong
}

func startProcess(ctx context.Context, args []string) (*process, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	p := &process{cmd: cmd}
	cmd.Stderr = &p.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	return p, cmd.Start()
}

// line reads what the process says next.
func (p *process) line() (string, error) {
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.cmd.Wait() // the log is complete only now
		return "", fmt.Errorf("it ended: %w, log:\n%s", err, p.log.String())
	}
	return strings.TrimSpace(line), nil
}

// stop ends the process by the end of its input, so that ours can write its profile; one that is still
// there after a second is killed.
func (p *process) stop() {
	p.stdin.Close()
	kill := time.AfterFunc(time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.cmd.Wait()
}

// A tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if over := t.text.Len() - tailBytes; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
