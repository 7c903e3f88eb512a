package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/internal/pause"
)

// patience bounds every wait; it is far beyond what anything here needs.
const patience = time.Minute

// A job is a server, its relays, and their tasks, all of them processes.
type job struct {
	// Set in newJob, then constant.
	dir, binary, self string
	progress          io.Writer
	server            *proc.Process
	port              string
	tasks             int

	relays  fleet.Relays // the last one is that of the host that is lost
	host    *proc.Host   // or nil: the last relay runs like the others
	ranks   []*rank
	lives   uint64      // incarnations given out
	reports chan report // of all ranks
	once    sync.Once   // of closing
}

// A rank is a task's process.
type rank struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	log   proc.Tail
	ended chan struct{} // closed when the process is gone
}

// newJob starts everything, and returns when all tasks are connected.
func (o options) newJob(ctx context.Context, dir string, progress io.Writer) (_ *job, err error) {
	j := &job{dir: dir, binary: o.binary, progress: progress, tasks: o.tasks, reports: make(chan report, 4*o.tasks), lives: uint64(time.Now().UnixNano())}
	defer func() {
		if err != nil {
			j.close()
		}
	}()
	if j.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if j.server, err = proc.Start(ctx, o.binary, "serve", "--tasks", strconv.Itoa(o.tasks), "--listen", "0.0.0.0:0", "--log-level", "warn"); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	address, err := j.server.Address()
	if err != nil {
		return nil, err
	}
	if _, j.port, err = net.SplitHostPort(address); err != nil {
		return nil, err
	}
	if err := j.startRelays(ctx, o.relays, o.losses > 0); err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "bench: starting %d processes\n", o.tasks)
	j.ranks = make([]*rank, o.tasks)
	for i := range j.ranks {
		if err := j.start(i); err != nil {
			return nil, err
		}
	}
	return j, j.join(ctx)
}

// startRelays starts the relays; with hosts, the last one on a host of its own.
func (j *job) startRelays(ctx context.Context, n int, hosts bool) (err error) {
	here := n
	if hosts {
		if j.host, err = proc.NewHost(ctx); err != nil {
			return err
		}
		here--
	}
	if j.relays, err = fleet.StartRelays(ctx, j.binary, j.dir, []string{net.JoinHostPort("127.0.0.1", j.port)}, here); err != nil {
		return err
	}
	if hosts {
		p, err := fleet.StartRelay(ctx, j.host.Prefix(), j.binary, j.dir, []string{net.JoinHostPort(j.host.NearIP, j.port)}, here)
		if err != nil {
			return err
		}
		j.relays = append(j.relays, p)
	}
	return nil
}

// relayOf is the number of the relay of a task: tasks that follow each other share one.
func (j *job) relayOf(task int) int { return task * len(j.relays) / j.tasks }

// far says whether a task is on the host that is lost.
func (j *job) far(task int) bool { return j.host != nil && j.relayOf(task) == len(j.relays)-1 }

// start starts the process of a task.
func (j *job) start(task int) error {
	args := []string{j.self, rankCommand, "-task", strconv.Itoa(task), "-address", fleet.Socket(j.dir, j.relayOf(task))}
	if j.far(task) {
		args = append(j.host.Prefix(), args...)
	}
	r := &rank{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // it is one of hundreds
	r.cmd.Stderr = &r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return fmt.Errorf("task %d: %w", task, err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		r.cmd.Wait()
		return fmt.Errorf("task %d does not start, log:\n%s", task, r.log.String())
	}
	go r.listen(task, lines, j.reports)
	j.ranks[task] = r
	return nil
}

// listen passes on what a task says, until its process is gone.
func (r *rank) listen(task int, lines *bufio.Scanner, reports chan<- report) {
	defer close(r.ended)
	for lines.Scan() {
		said, err := readReport(task, lines.Text())
		if err != nil {
			said.kind, said.cause = sayFailed, err.Error()
		}
		reports <- said
	}
	r.cmd.Wait()
}

// join lets all tasks connect, each in a new life.
func (j *job) join(ctx context.Context) error {
	for i, r := range j.ranks {
		j.lives++
		if _, err := fmt.Fprintln(r.in, "join", j.lives); err != nil {
			return fmt.Errorf("task %d: %w, log:\n%s", i, err, r.log.String())
		}
	}
	_, err := j.await(ctx, sayJoined, func(int) bool { return true })
	return err
}

// await waits until each of some tasks has said something of a kind, and returns what.
func (j *job) await(ctx context.Context, kind string, whom func(task int) bool) ([]report, error) {
	missing := make(map[int]bool)
	for i := range j.tasks {
		if whom(i) {
			missing[i] = true
		}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var all []report
	for len(missing) > 0 {
		select {
		case r := <-j.reports:
			if r.kind != kind || !missing[r.task] {
				return nil, fmt.Errorf("task %d said %q %s, while %q was awaited of %d tasks", r.task, r.kind, r.cause, kind, len(missing))
			}
			delete(missing, r.task)
			all = append(all, r)
		case <-timer.C:
			return nil, fmt.Errorf("%d tasks have not said %q after %v, such as %d; server log:\n%s", len(missing), kind, patience, first(missing), j.server.Log.String())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return all, nil
}

func first(tasks map[int]bool) int {
	least := -1
	for t := range tasks {
		if least < 0 || t < least {
			least = t
		}
	}
	return least
}

// close ends all processes.
func (j *job) close() {
	j.once.Do(func() {
		for _, r := range j.ranks {
			if r != nil {
				r.cmd.Process.Kill() // fails only if it has ended
			}
		}
		for _, r := range slices.DeleteFunc(j.ranks, func(r *rank) bool { return r == nil }) {
			for open := true; open; {
				select {
				case <-j.reports: // no other goroutine reads them now
				case <-r.ended:
					open = false
				}
			}
		}
		j.relays.Close()
		if j.server != nil {
			j.server.Kill()
		}
		if j.host != nil {
			if err := j.host.Remove(); err != nil {
				fmt.Fprintln(j.progress, "bench: error:", err)
			}
		}
	})
}

// settle is how long all tasks are connected before something happens: long enough for all to have come
// to rest.
const settle = 500 * time.Millisecond

// kills kills tasks, one after the other, and measures how long it takes until all others were told.
func (j *job) kills(ctx context.Context, n int) (row, error) {
	var took []time.Duration
	for i := range n {
		victim := (i*37 + 1) % j.tasks // one that has not been it for long, on another relay than the last
		if err := pause.For(ctx, settle); err != nil {
			return row{}, err
		}
		start := monotonic()
		if err := j.ranks[victim].cmd.Process.Kill(); err != nil {
			return row{}, err
		}
		told, err := j.await(ctx, sayTold, func(task int) bool { return task != victim })
		if err != nil {
			return row{}, fmt.Errorf("kill %d: %w", i+1, err)
		}
		took = append(took, last(told)-start)
		fmt.Fprintf(j.progress, "bench: kill %d of %d: task %d, all told after %v: %s\n", i+1, n, victim, took[i].Round(time.Millisecond), told[0].why())
		<-j.ranks[victim].ended
		if err := errors.Join(j.start(victim), ctx.Err()); err != nil {
			return row{}, err
		}
		if err := j.join(ctx); err != nil {
			return row{}, fmt.Errorf("after kill %d: %w", i+1, err)
		}
	}
	return killRow(j.tasks, len(j.relays), took), nil
}

// losses takes down the link of a host, and measures how long it takes until all tasks on other hosts
// were told.
func (j *job) losses(ctx context.Context, n int) (row, error) {
	var took []time.Duration
	for i := range n {
		if err := pause.For(ctx, settle); err != nil {
			return row{}, err
		}
		start := monotonic()
		if err := j.host.Link(ctx, "down"); err != nil {
			return row{}, err
		}
		told, err := j.await(ctx, sayTold, func(task int) bool { return !j.far(task) })
		if err != nil {
			return row{}, fmt.Errorf("loss %d: %w", i+1, err)
		}
		took = append(took, last(told)-start)
		fmt.Fprintf(j.progress, "bench: loss %d of %d: all told after %v: %s\n", i+1, n, took[i].Round(time.Millisecond), told[0].why())
		if err := j.host.Link(ctx, "up"); err != nil {
			return row{}, err
		}
		if _, err := j.await(ctx, sayTold, j.far); err != nil { // they hear it when they can
			return row{}, fmt.Errorf("loss %d, tasks on the lost host: %w", i+1, err)
		}
		if err := j.join(ctx); err != nil {
			return row{}, fmt.Errorf("after loss %d: %w", i+1, err)
		}
	}
	return lossRow(j.tasks, j.tasks-j.near(), took), nil
}

// near counts the tasks that are not on the host that is lost.
func (j *job) near() (n int) {
	for i := range j.tasks {
		if !j.far(i) {
			n++
		}
	}
	return n
}

func last(told []report) time.Duration {
	return slices.MaxFunc(told, func(a, b report) int { return int(a.at - b.at) }).at
}
