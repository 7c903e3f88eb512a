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
	name  string
	store string // of serry, which is compared with the others; or empty

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
	stockName = "stock"
	handName  = "etcd by hand"

	// Stores of serry.
	inMemory = "memory"
	inFile   = "file"
	inEtcd   = "etcd" // of three servers

	servers = 3
)

func stores() []string { return []string{inMemory, inFile, inEtcd} }

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
	for _, store := range o.stores {
		for _, binary := range o.binaries {
			p, err := o.ours(store, binary)
			if err != nil {
				return nil, err
			}
			all = append(all, p)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return append(all, peer{name: handName, start: func(ctx context.Context, dir string) (*service, error) {
		return startMembers(ctx, self, dir)
	}}), nil
}

// ours is a binary of serry with a store. Where there are several binaries its name says which.
func (o options) ours(store, binary string) (peer, error) {
	p := peer{name: store, store: store}
	if store == inEtcd {
		p.name = fmt.Sprintf("etcd x%d", servers)
	}
	if len(o.binaries) > 1 {
		p.name += " " + binary
	}
	binary, err := filepath.Abs(binary)
	p.start = func(ctx context.Context, dir string) (*service, error) {
		if store == inEtcd {
			return o.startEtcd(ctx, binary, dir)
		}
		where := store
		if store == inFile {
			where += ":" + filepath.Join(dir, "store")
		}
		return alone(ctx, binary, "serve", "--tasks", strconv.Itoa(o.tasks), "--listen", "127.0.0.1:0",
			"--heartbeat-timeout", "1h", "--log-level", "warn", "--store", where)
	}
	return p, err
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
func (o options) startEtcd(ctx context.Context, binary, dir string) (*service, error) {
	f, err := fleet.Start(ctx, fleet.Config{
		Binary: binary, Dir: dir, Tasks: o.tasks, Servers: servers, Flags: []string{"--heartbeat-timeout", "1h"},
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
