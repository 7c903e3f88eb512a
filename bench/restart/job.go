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
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience bounds each wait for tasks.
const patience = 2 * time.Minute

// A job is a launcher with its tasks, which take their commands from us.
type job struct {
	name  string
	tasks int
	alone bool // only the task that was killed is started again
	took  []time.Duration

	cmd    *exec.Cmd
	stderr tail
	ended  chan error
	come   chan *task
	living []*task
	number int // of the barrier
}

// A task is our end of one.
type task struct {
	conn net.Conn
	in   *bufio.Reader
	pid  int
}

// startJob starts a launcher by a command, and returns when all tasks have passed a first barrier.
func startJob(ctx context.Context, dir, name string, tasks int, alone bool, env []string, command ...string) (*job, error) {
	j := &job{name: name, tasks: tasks, alone: alone, come: make(chan *task, 2*tasks), ended: make(chan error, 1)}
	path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	go j.accept(l)
	j.cmd = exec.Command(command[0], command[1:]...)
	j.cmd.Env = append(append(os.Environ(), env...), socketVariable+"="+path)
	j.cmd.Stderr = &j.stderr
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := j.cmd.Start(); err != nil {
		l.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		j.ended <- j.cmd.Wait()
		l.Close()
	}()
	if err = j.gather(ctx, tasks); err == nil {
		err = j.barrier(j.living)
	}
	if err != nil {
		j.end()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return j, nil
}

func (j *job) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the job is over
		}
		t := &task{conn: c, in: bufio.NewReader(c)}
		if _, err := fmt.Fscanf(t.in, "%d\n", &t.pid); err != nil {
			c.Close()
			continue // it was killed on the way
		}
		j.come <- t
	}
}

// gather waits until so many tasks more have come.
func (j *job) gather(ctx context.Context, n int) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range n {
		select {
		case t := <-j.come:
			j.living = append(j.living, t)
		case err := <-j.ended:
			j.ended <- err
			return fmt.Errorf("the launcher ended: %v\n%s", err, j.stderr.text)
		case <-timer.C:
			return errors.New("tasks do not come")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// round kills a task and measures until all are back and have passed a barrier.
func (j *job) round(ctx context.Context) (time.Duration, error) {
	victim := j.living[0]
	begin := time.Now()
	if err := syscall.Kill(victim.pid, syscall.SIGKILL); err != nil {
		return 0, err
	}
	if j.alone {
		j.living = j.living[1:]
		if err := j.tell(j.living); err != nil { // they wait in the barrier for the one that is to come
			return 0, err
		}
		if err := j.gather(ctx, 1); err != nil {
			return 0, err
		}
		if err := j.tell(j.living[j.tasks-1:]); err != nil {
			return 0, err
		}
	} else {
		j.living = nil
		if err := j.gather(ctx, j.tasks); err != nil {
			return 0, err
		}
		if err := j.tell(j.living); err != nil {
			return 0, err
		}
	}
	if err := j.heard(); err != nil {
		return 0, err
	}
	j.number++
	return time.Since(begin), nil
}

// barrier has all tasks pass a barrier.
func (j *job) barrier(tasks []*task) error {
	if err := j.tell(tasks); err != nil {
		return err
	}
	j.number++
	return j.heard()
}

// tell tells tasks to go to the barrier.
func (j *job) tell(tasks []*task) error {
	for _, t := range tasks {
		t.conn.SetDeadline(time.Now().Add(patience))
		if _, err := fmt.Fprintf(t.conn, "barrier %d\n", j.number); err != nil {
			return err
		}
	}
	return nil
}

// heard returns when all tasks have passed.
func (j *job) heard() error {
	for _, t := range j.living {
		line, err := t.in.ReadString('\n')
		if err == nil && line != "passed\n" {
			err = fmt.Errorf("a task said %q; want that it passed", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// end ends the job.
func (j *job) end() {
	_ = j.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-j.ended:
	case <-time.After(patience):
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
		<-j.ended
	}
}

// A tail keeps the end of what a launcher says.
type tail struct{ text []byte }

var _ io.Writer = (*tail)(nil)

const tailBytes = 4096

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailBytes):]
	return len(b), nil
}
