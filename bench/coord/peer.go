package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/serry-dev/serry/bench/internal/proc"
)

// A peer is one of the services compared. Its command prints a line that ends with the address it
// serves on; given an identity, it serves mutual TLS.
type peer struct {
	name    string
	ours    bool   // it is serry
	metrics string // Unix socket of its metrics page, or empty
	command func(l layout) []string
}

// A layout says how a cluster is made.
type layout struct {
	tasks, conns int
	identity     *identity // nil: plain text
	real         bool      // the clients are those of jaxlib, else our own
	streams      bool      // connections to us speak our own stream
}

func (l layout) String() string {
	s := fmt.Sprintf("%d tasks on %d connections", l.tasks, l.conns)
	if l.identity != nil {
		s += " with mTLS"
	}
	if l.real {
		s += " by jaxlib"
	}
	if l.streams {
		s += ", streams where spoken"
	}
	return s
}

// host is the address to serve on. Only for real clients that is more than one.
func (l layout) host() string {
	if l.real {
		return "0.0.0.0"
	}
	return "127.0.0.1"
}

// stockName is the peer that all others are compared with.
const stockName = "stock"

// stock is the service of jaxlib, run by the given Python.
func stock(python string) (peer, error) {
	if err := proc.CheckPython(python); err != nil {
		return peer{}, err
	}
	return peer{name: stockName, command: func(l layout) []string {
		args := proc.Stock(python, l.host(), l.tasks)
		if id := l.identity; id != nil {
			args = append(args, id.cert, id.key)
		}
		return args
	}}, nil
}

// ours is a binary of serry. Its metrics are served in a directory, which is its own.
func ours(name, binary, dir string) peer {
	socket := filepath.Join(dir, "metrics")
	return peer{name: name, ours: true, metrics: socket, command: func(l layout) []string {
		os.Remove(socket) // left by the last server, which was killed
		args := []string{binary, "serve", "--tasks", strconv.Itoa(l.tasks), "--listen", l.host() + ":0",
			"--heartbeat-timeout", "1h", "--metrics-listen", "unix:" + socket}
		if id := l.identity; id != nil {
			args = append(args, "--tls-cert", id.cert, "--tls-key", id.key, "--tls-ca", id.cert)
		}
		return args
	}}
}

// A server is a running peer.
type server struct {
	*proc.Process
	addr    string
	metrics string // Unix socket, or empty
}

// start runs a peer for a number of tasks and returns when it serves.
func (p peer) start(ctx context.Context, l layout) (*server, error) {
	process, err := proc.Start(ctx, p.command(l)...)
	if err != nil {
		return nil, fmt.Errorf("%s for %d tasks: %w", p.name, l.tasks, err)
	}
	addr, err := process.Address()
	if err != nil {
		process.Kill()
		return nil, fmt.Errorf("%s for %d tasks: %w", p.name, l.tasks, err)
	}
	return &server{process, addr, p.metrics}, nil
}
