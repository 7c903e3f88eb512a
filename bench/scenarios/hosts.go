package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/bench/internal/sheet"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/server"
)

// The rows of this file need more than one host, or a service of its own.

// twoHosts starts the launchers of a job on two hosts of two ranks each.
func (j *job) twoHosts(coordinator string, prefix, flags []string, what string) error {
	for node := range 2 {
		var before []string
		if node == 1 {
			before = prefix
		}
		f := append([]string{"-n", "2", "--nnodes", "2", "--node-rank", fmt.Sprint(node), "--coordinator", coordinator}, flags...)
		if err := j.run(before, nil, f, j.python, "train.py", what); err != nil {
			return err
		}
	}
	return nil
}

// playCut takes down the link of a host with two ranks.
func playCut(ctx context.Context, o options, s scenario) (finding, error) {
	host, err := proc.NewHost(ctx)
	if err != nil {
		return finding{}, cannot{err.Error()}
	}
	defer host.Remove()
	own, err := newRecorder(ctx, o, "0.0.0.0:0")
	if err != nil {
		return finding{}, err
	}
	defer own.server.Kill()
	_, port, err := net.SplitHostPort(own.address)
	if err != nil {
		return finding{}, err
	}
	meeting, err := fleet.FreeAddresses(1)
	if err != nil {
		return finding{}, err
	}
	_, meet, _ := net.SplitHostPort(meeting[0]) // it is well formed
	j := o.newJob()
	defer j.close()
	j.recorder, j.address = own, net.JoinHostPort("127.0.0.1", port)
	flags := []string{"--service", net.JoinHostPort(host.NearIP, port)}
	if err := j.twoHosts(net.JoinHostPort(host.NearIP, meet), host.Prefix(), flags, "idle"); err != nil {
		return finding{}, err
	}
	if err := j.await(ctx, "READY", 4); err != nil {
		return finding{}, err
	}
	if err := host.Link(ctx, "down"); err != nil {
		return finding{}, err
	}
	defer host.Link(context.WithoutCancel(ctx), "up") // so that its launcher hears that the job is over
	found, err := j.find(ctx, s)
	if err == nil {
		err = j.keep(ctx, s, found)
	}
	return found, err
}

// served starts a service of three servers, and a job whose ranks use it.
func served(ctx context.Context, o options) (*fleet.Service, *job, error) {
	dir, err := os.MkdirTemp(o.dir, "service")
	if err != nil {
		return nil, nil, err
	}
	service, err := fleet.Start(ctx, fleet.Config{Binary: o.binary, Dir: dir, Tasks: 4, Servers: 3})
	if err != nil {
		return nil, nil, err
	}
	j := o.newJob()
	flags := []string{"-n", "4"}
	for _, a := range service.Addresses() {
		flags = append(flags, "--service", a)
	}
	if err = j.run(nil, nil, flags, o.python, "train.py", "idle"); err == nil {
		err = j.await(ctx, "READY", 4)
	}
	if err != nil {
		j.close()
		service.Close()
		return nil, nil, err
	}
	return service, j, nil
}

// playLeader kills the server that leads.
func playLeader(ctx context.Context, o options, s scenario) (finding, error) {
	service, j, err := served(ctx, o)
	if err != nil {
		return finding{}, err
	}
	defer service.Close()
	defer j.close()
	leader, _, err := service.Leader(ctx)
	if err != nil {
		return finding{}, err
	}
	for _, a := range service.Addresses() {
		if a != leader.Address {
			j.address = a
		}
	}
	leader.Kill()
	return j.find(ctx, s)
}

// playNoLeader kills all servers.
func playNoLeader(ctx context.Context, o options, s scenario) (finding, error) {
	service, j, err := served(ctx, o)
	if err != nil {
		return finding{}, err
	}
	defer j.close()
	j.address = service.Addresses()[0]
	service.Close()
	return j.find(ctx, s)
}

// launcherCommand runs the launcher of a host whose clock is ahead.
const launcherCommand = "launcher"

// ahead is by how much.
const ahead = 5 * time.Minute

// playSkew has a second host whose clock is ahead. A rank of the first host crashes, and 50 ms later one of the second.
func playSkew(ctx context.Context, o options, s scenario) (finding, error) {
	meeting, err := fleet.FreeAddresses(1)
	if err != nil {
		return finding{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return finding{}, err
	}
	j := o.newJob()
	if err := j.run(nil, nil, []string{"-n", "2", "--nnodes", "2", "--node-rank", "0", "--coordinator", meeting[0], "--job-id", s.name}, o.python, "train.py", s.name); err != nil {
		return finding{}, err
	}
	if err := j.start(nil, self, launcherCommand, "-coordinator", meeting[0], "-job", s.name, o.python, "train.py", s.name); err != nil {
		j.close()
		return finding{}, err
	}
	return j.injected(ctx, s)
}

// runLauncher is the launcher of the second host.
func runLauncher(ctx context.Context, args []string, _, stderr io.Writer) error {
	fs := flag.NewFlagSet(launcherCommand, flag.ContinueOnError)
	fs.SetOutput(stderr)
	coordinator := fs.String("coordinator", "", "`address` where the launchers meet")
	name := fs.String("job", "", "`name` of the job")
	if err := sheet.Parse(fs, args[1:]); err != nil {
		return err
	}
	l, err := launch.Start(launch.Config{
		Command: fs.Args(), Tasks: 2, Nodes: 2, Node: 1, Coordinator: *coordinator, Job: *name,
		Service: server.Config{Cluster: coord.Config{HeartbeatTimeout: 100 * time.Second, RegisterTimeout: startPatience}},
		Wall:    func() time.Time { return time.Now().Add(ahead) },
	})
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		l.Signal(syscall.SIGTERM)
	}()
	return l.Wait().Err
}

// playTensorFlow plays what a worker of TensorFlow does by itself. The workers have to know each other's addresses before they
// listen.
func playTensorFlow(ctx context.Context, o options, s scenario) (finding, error) {
	workers, err := fleet.FreeAddresses(4)
	if err != nil {
		return finding{}, err
	}
	j := o.newJob()
	env := []string{"TF_CPP_MIN_LOG_LEVEL=2", "CUDA_VISIBLE_DEVICES="}
	if err := j.run(nil, env, []string{"-n", "4"}, o.python, "tf_train.py", s.name, strings.Join(workers, ",")); err != nil {
		return finding{}, err
	}
	return j.injected(ctx, s)
}
