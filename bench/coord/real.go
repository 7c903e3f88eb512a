package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/load"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
)

//go:embed real.py
var realScript string

// A fleet is a process with real clients in it, which a server is measured under. It does what it
// is told, line by line.
type fleet struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed when the process is gone
	log   proc.Tail
}

// newFleet starts the clients of a layout, not connected.
func newFleet(python, addr string, l layout) (*fleet, error) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	f := &fleet{lines: make(chan string)}
	f.cmd = exec.Command(python, "-c", realScript, port, strconv.Itoa(l.tasks), strconv.Itoa(l.conns))
	f.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	f.cmd.Stderr = &f.log
	if f.in, err = f.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	go f.read(out)
	return f, nil
}

func (f *fleet) read(out io.Reader) {
	defer close(f.lines)
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		f.lines <- scanner.Text()
	}
	f.cmd.Wait()
}

// close ends the clients at once.
func (f *fleet) close() {
	f.cmd.Process.Kill() // fails only if it has ended
	for range f.lines {
	}
}

// tell has the clients do something and returns what they say of it.
func (f *fleet) tell(ctx context.Context, format string, args ...any) ([]float64, error) {
	line := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(f.in, line+"\n"); err != nil {
		return nil, fmt.Errorf("%s: %w", line, err)
	}
	timer := time.NewTimer(load.Patience)
	defer timer.Stop()
	select {
	case answer, ok := <-f.lines:
		if !ok {
			return nil, fmt.Errorf("%s: the clients ended, log:\n%s", line, f.log.String())
		}
		return numbers(answer)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, fmt.Errorf("%s: no answer after %v, log:\n%s", line, load.Patience, f.log.String())
	}
}

func numbers(line string) (all []float64, err error) {
	for field := range strings.FieldsSeq(line) {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// A realRow says which rows a layout of real clients fills.
type realRow struct {
	held, barrier, arrivalCPU, keysCPU metric
}

// realClients measures a server under the clients of jaxlib.
func (b *bench) realClients(ctx context.Context, s *subject, r realRow) error {
	f, err := newFleet(b.python, s.addr, s.layout)
	if err != nil {
		return err
	}
	defer f.close()
	defer s.Kill() // before the clients go, which it takes for a disaster
	if _, err := f.tell(ctx, "connect"); err != nil {
		return err
	}
	held, _, err := proc.Memory(s.PID)
	if err != nil {
		return err
	}
	s.add(r.held, mib(held))
	if _, err := f.tell(ctx, "barriers 1 cold"); err != nil {
		return err
	}
	tasks := s.layout.tasks
	waves := b.plan.realWaves(tasks)
	var times []float64
	spent, err := s.spent(func() (err error) {
		times, err = f.tell(ctx, "barriers %d wave", waves)
		return err
	})
	if err != nil {
		return err
	}
	s.add(r.barrier, sheet.Median(times))
	s.add(r.arrivalCPU, us(spent)/float64(waves*tasks))
	var calls []float64
	spent, err = s.spent(func() (err error) {
		calls, err = f.tell(ctx, "keys %d %g", min(callers, tasks), b.plan.keysFor.Seconds())
		return err
	})
	if err != nil {
		return err
	}
	if len(calls) != 1 || calls[0] == 0 {
		return fmt.Errorf("keys: %v calls; want some", calls)
	}
	s.add(r.keysCPU, us(spent)/calls[0])
	return nil
}

// realOwn measures real clients with a connection each.
func (b *bench) realOwn(ctx context.Context, s *subject) error {
	return b.realClients(ctx, s, realRow{realResident, realBarrier, realArrivalCPU, realKeysCPU})
}

// realShared measures real clients that all share one connection.
func (b *bench) realShared(ctx context.Context, s *subject) error {
	return b.realClients(ctx, s, realRow{metrics, realSharedBarrier, realSharedArrivalCPU, realSharedKeysCPU})
}
