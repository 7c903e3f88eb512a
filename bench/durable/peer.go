package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/serry-dev/serry/bench/internal/fleet"
	"github.com/serry-dev/serry/bench/internal/proc"
)

// A peer is one of the services compared.
type peer struct {
	name string
	ours bool // it is compared with the others

	// start runs it; what it writes goes to a folder of its own.
	start func(ctx context.Context, dir string) (*service, error)
}

// A service is a running peer.
type service struct {
	addr  string
	pids  []int  // of all its processes
	write writer // how keys are written to it; nil: it is a coordination service, and tasks do
	stop  func() // may be called twice
}

const (
	stockName  = "stock"
	memoryName = "memory"
	fileName   = "file"
	etcdName   = "etcd x3"
	handName   = "etcd by hand"

	servers = 3
)

// peers are the services to compare, the stock one first.
func (o options) peers() ([]peer, error) {
	var all []peer
	if !o.noStock {
		if err := proc.CheckPython(o.python); err != nil {
			return nil, fmt.Errorf("stock service: %w", err)
		}
		all = append(all, peer{name: stockName, start: func(ctx context.Context, _ string) (*service, error) {
			return alone(ctx, proc.Stock(o.python, "127.0.0.1", o.tasks)...)
		}})
	}
	serve := func(store string) []string {
		return []string{o.binary, "serve", "--tasks", strconv.Itoa(o.tasks), "--listen", "127.0.0.1:0",
			"--heartbeat-timeout", "1h", "--log-level", "warn", "--store", store}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append(all,
		peer{name: memoryName, ours: true, start: func(ctx context.Context, _ string) (*service, error) {
			return alone(ctx, serve("memory")...)
		}},
		peer{name: fileName, ours: true, start: func(ctx context.Context, dir string) (*service, error) {
			return alone(ctx, serve("file:"+filepath.Join(dir, "store"))...)
		}},
		peer{name: etcdName, ours: true, start: o.startEtcd},
		peer{name: handName, start: func(ctx context.Context, dir string) (*service, error) {
			return startMembers(ctx, self, dir)
		}},
	), nil
}

// alone starts a service of one process.
func alone(ctx context.Context, args ...string) (*service, error) {
	p, err := proc.Start(ctx, args...)
	if err != nil {
		return nil, err
	}
	addr, err := p.Address()
	if err != nil {
		p.Kill()
		return nil, err
	}
	return &service{addr: addr, pids: []int{p.PID}, stop: p.Kill}, nil
}

// startEtcd starts three servers with their etcd members. Tasks connect to the one that leads.
func (o options) startEtcd(ctx context.Context, dir string) (*service, error) {
	f, err := fleet.Start(ctx, fleet.Config{
		Binary: o.binary, Dir: dir, Tasks: o.tasks, Servers: servers, Flags: []string{"--heartbeat-timeout", "1h"},
	})
	if err != nil {
		return nil, err
	}
	leader, _, err := f.Leader(ctx)
	if err != nil {
		f.Close()
		return nil, err
	}
	return &service{addr: leader.Address, pids: f.PIDs(), stop: f.Close}, nil
}
