// Preempt shows how a job saves itself when a scheduler takes one of its processes away.
//
//	go run ./examples/preempt
//
// It runs a coordination service and four workers, each a process of its own. When all are training
// one of them gets SIGTERM, as a scheduler would send it. The workers agree on a step that none of
// them has passed, go on to it, save there, and leave a receipt with the service; the first of them
// prints the receipts of all. The protocol is jax's, so some of the workers could be jax processes.
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
	"syscall"
	"time"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "preempt: error: %v\n", err)
		os.Exit(1)
	}
}

// run is a worker where the environment says so, as serry run would, and else the whole show.
func run(ctx context.Context, out io.Writer) error {
	cfg, tasks, err := client.ConfigFromEnv()
	if err == nil {
		return work(ctx, out, cfg, tasks)
	}
	return show(ctx, out)
}

const (
	workers = 4
	victim  = 2 // the worker that gets the signal
)

// show runs the service and the workers.
func show(ctx context.Context, out io.Writer) (err error) {
	s, err := server.New(server.Config{Cluster: coord.Config{
		Jobs:            []coord.Job{{Name: "worker", Tasks: workers}},
		RegisterBarrier: true,
		RegisterTimeout: time.Minute,
		ShutdownTimeout: time.Minute,
	}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		s.Shutdown(ctx)
		err = errors.Join(err, <-served)
	}()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a worker that fails takes the others with it
	said, ended := make(chan string), make(chan error)
	running := make([]*exec.Cmd, workers)
	for i := range running {
		if running[i], err = startWorker(ctx, l.Addr().String(), i, said, ended); err != nil {
			break
		}
	}
	return errors.Join(err, follow(out, running, said, ended, cancel))
}

// follow prints what the workers say until all have ended, and sends the signal once all are training.
func follow(out io.Writer, running []*exec.Cmd, said <-chan string, ended <-chan error, stop func()) (err error) {
	training, left := 0, 0
	for _, cmd := range running {
		if cmd != nil {
			left++
		}
	}
	if left < len(running) {
		stop()
	}
	for left > 0 {
		select {
		case line := <-said:
			if line != isTraining {
				fmt.Fprintln(out, line)
				break
			}
			if training++; training == len(running) {
				fmt.Fprintf(out, "all are training; worker/%d gets SIGTERM\n", victim)
				err = errors.Join(err, running[victim].Process.Signal(syscall.SIGTERM))
			}
		case failed := <-ended:
			left--
			if failed != nil {
				err = errors.Join(err, failed)
				stop()
			}
		}
	}
	return err
}

// startWorker starts this program again as a worker. Its lines go to said, its end to ended.
func startWorker(ctx context.Context, address string, task int, said chan<- string, ended chan<- error) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), "SERRY_ADDRESS="+address,
		fmt.Sprint("SERRY_TASK=", task), fmt.Sprint("SERRY_TASKS=", workers))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			said <- lines.Text()
		}
		if err := cmd.Wait(); err != nil {
			ended <- fmt.Errorf("worker/%d: %w", task, err)
			return
		}
		ended <- nil
	}()
	return cmd, nil
}
