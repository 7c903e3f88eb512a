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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

//go:embed job.py
var jobScript string

// processes is how many the job has.
const processes = 4

// A job is the processes of a jax job.
type job struct {
	all  []*exec.Cmd
	said *bufio.Reader // by process 0
	log  proc.Tail
}

// startJob starts the job, and returns when it steps.
func startJob(python, addr string, steps time.Duration) (*job, error) {
	j := new(job)
	for i := range processes {
		cmd := exec.Command(python, "-c", jobScript, strconv.Itoa(processes), strconv.Itoa(i), fmt.Sprint(steps.Seconds()))
		cmd.Env = append(os.Environ(), "JAX_PLATFORMS=cpu", "JAX_COORDINATOR_ADDRESS="+addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Stderr = &j.log
		if i == 0 {
			out, err := cmd.StdoutPipe()
			if err != nil {
				return nil, err
			}
			j.said = bufio.NewReader(out)
		}
		if err := cmd.Start(); err != nil {
			j.kill()
			return nil, err
		}
		j.all = append(j.all, cmd)
	}
	if _, err := j.line("stepping"); err != nil {
		j.kill()
		return nil, fmt.Errorf("the job ended before its first step, log:\n%s", j.log.String())
	}
	return j, nil
}

// line reads what process 0 says up to a line that begins with a word, and returns the rest of that line. Libraries
// of the job print there, too.
func (j *job) line(word string) (string, error) {
	for {
		text, err := j.said.ReadString('\n')
		if rest, ok := strings.CutPrefix(text, word); ok || err != nil {
			return rest, err
		}
	}
}

func (j *job) kill() {
	for _, cmd := range j.all {
		cmd.Process.Kill() // fails only if it has ended
		cmd.Wait()         // it was killed
	}
}

// end waits for the end of the job, and returns how long its steps took, in milliseconds. The error says which
// processes failed.
func (j *job) end() (steps []float64, err error) {
	text, readErr := j.line("steps")
	_, copyErr := io.Copy(io.Discard, j.said)
	for i, cmd := range j.all {
		if failed := cmd.Wait(); failed != nil {
			err = errors.Join(err, fmt.Errorf("process %d: %w", i, failed))
		}
	}
	if err = errors.Join(err, readErr, copyErr); err != nil {
		return nil, fmt.Errorf("%w, log:\n%s", err, j.log.String())
	}
	for field := range strings.FieldsSeq(text) {
		ms, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return nil, err
		}
		steps = append(steps, ms)
	}
	return steps, nil
}

// A measure is what one run of the job came to.
type measure struct {
	steps []float64 // in milliseconds
	peak  int64     // resident memory of the server
	log   int64     // bytes that the server logged
	err   error     // of the job
}

func (m measure) p50() float64 { return sheet.Quantile(m.steps, 0.50) }
func (m measure) p99() float64 { return sheet.Quantile(m.steps, 0.99) }

// measureJob runs a server and the job, and does meanwhile to the server whatever is given.
func (o options) measureJob(ctx context.Context, binary string, meanwhile func(ctx context.Context, addr string)) (m measure, err error) {
	if err := o.everywhere.PinSelf(); err != nil {
		return m, err
	}
	server, err := proc.Start(ctx, binary, "serve", "--tasks", strconv.Itoa(processes), "--listen", "127.0.0.1:0")
	if err != nil {
		return m, err
	}
	defer server.Kill()
	addr, err := server.Address()
	if err != nil {
		return m, err
	}
	if err := o.forJob.PinSelf(); err != nil {
		return m, err
	}
	j, err := startJob(o.python, addr, o.lasts)
	if err != nil {
		return m, err
	}
	if err := o.forStrangers.PinSelf(); err != nil {
		return m, err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		meanwhile(ctx, addr)
	}()
	m.steps, m.err = j.end()
	stop()
	<-done
	_, m.peak, err = proc.Memory(server.PID)
	m.log = server.Log.Total()
	if err != nil {
		return m, fmt.Errorf("the server has ended: %w, log:\n%s", err, strings.TrimSpace(server.Log.String()))
	}
	return m, nil
}
