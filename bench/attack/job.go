package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
)

//go:embed job.py
var jobScript string

// processes is how many the job has.
const processes = 4

// A job is the job of four while it steps: its processes, or the launchers that have started them.
type job struct {
	all  []*exec.Cmd
	said *bufio.Reader // by the first of them
	log  proc.Tail     // of all
}

// process is a command of a job that steps for a while. Its environment is that of this process, and more.
func (o options) process(steps time.Duration, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "JAX_PLATFORMS=cpu", fmt.Sprint("JOB_SECONDS=", steps.Seconds()), "JOB_CPUS="+o.forJob.String())
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// startTasks starts the processes of a job that finds its service at an address.
func (o options) startTasks(ctx context.Context, addr string, steps time.Duration) (*job, error) {
	var all []*exec.Cmd
	for i := range processes {
		all = append(all, o.process(steps, []string{
			"SERRY_ADDRESS=" + addr, fmt.Sprint("SERRY_TASK=", i), fmt.Sprint("SERRY_TASKS=", processes),
			"JAX_COORDINATOR_ADDRESS=" + addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0",
		}, o.command...))
	}
	return startJob(ctx, all)
}

// startJob starts a job, and returns when it steps. The job is killed when ctx ends.
func startJob(ctx context.Context, all []*exec.Cmd) (*job, error) {
	j := new(job)
	out, err := all[0].StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.said = bufio.NewReader(out)
	for _, cmd := range all {
		cmd.Stderr = &j.log
		if err := cmd.Start(); err != nil {
			j.kill()
			return nil, err
		}
		j.all = append(j.all, cmd)
	}
	stop := context.AfterFunc(ctx, j.kill)
	if _, err := j.line("JOB steps"); err != nil {
		stop()
		j.kill()
		return nil, fmt.Errorf("the job ended before its first step: %w, log:\n%s", errors.Join(err, context.Cause(ctx), j.wait()), j.log.String())
	}
	return j, nil
}

// line reads what the first process says up to a line with some words, and returns what follows them. Libraries of the
// job print there, too, and a launcher writes the number of a task in front of its lines.
func (j *job) line(words string) (string, error) {
	for {
		text, err := j.said.ReadString('\n')
		if _, rest, ok := strings.Cut(text, words); ok || err != nil {
			return rest, err
		}
	}
}

// kill ends all processes. No process of a launcher outlives it.
func (j *job) kill() {
	for _, cmd := range j.all {
		cmd.Process.Kill() // fails only if it has ended
	}
}

// wait waits for the end of all processes. The error says which of them failed.
func (j *job) wait() (err error) {
	for i, cmd := range j.all {
		if failed := cmd.Wait(); failed != nil {
			err = errors.Join(err, fmt.Errorf("process %d: %w", i, failed))
		}
	}
	return err
}

// end waits for the end of the job, and returns how its steps were.
func (j *job) end() (p pace, err error) {
	text, readErr := j.line("JOB took")
	_, copyErr := io.Copy(io.Discard, j.said)
	if err := errors.Join(j.wait(), readErr, copyErr); err != nil {
		return p, fmt.Errorf("%w, log:\n%s", err, j.log.String())
	}
	_, err = fmt.Sscan(text, &p.steps, &p.p50, &p.p99)
	return p, err
}

// A pace is how fast a job stepped.
type pace struct {
	steps    int
	p50, p99 float64 // of a step, in milliseconds
}
