// Package fleet runs what a job that outlives its coordinator consists of, as processes of their own: a
// [Service] of several servers that share a store, and [Relays] before it. Servers can be killed and
// started again, each at its old address with its old folder; [Service.Leader] says which one leads.
package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/relay"
)

// A Config says how a service is run.
type Config struct {
	Binary  string // of serry
	Dir     string // for the servers' folders
	Tasks   int
	Servers int
	Flags   []string // more for serry serve
}

// Folder is where the server with a number keeps what it has to remember.
func (c Config) Folder(number int) string { return filepath.Join(c.Dir, name(number)) }

// A Service is a running service of several servers with embedded etcd members.
type Service struct {
	servers []*Server
	spy     *relay.Relay // without clients; knows the leader
}

// A Server is one of the processes of a service, which may be dead.
type Server struct {
	Address string // where it serves
	args    []string
	process *proc.Process // or nil
}

// Start starts all servers and returns when each of them serves.
func Start(ctx context.Context, cfg Config) (*Service, error) {
	addresses, err := FreeAddresses(2 * cfg.Servers)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range cfg.Servers {
		peers = append(peers, fmt.Sprintf("%s=%s", name(i), addresses[2*i]))
	}
	s := &Service{}
	for i := range cfg.Servers {
		address := addresses[2*i+1]
		args := []string{cfg.Binary, "serve", "--tasks", strconv.Itoa(cfg.Tasks), "--listen", address,
			"--peers", strings.Join(peers, ","), "--name", name(i), "--data-dir", cfg.Folder(i), "--log-level", "warn"}
		s.servers = append(s.servers, &Server{Address: address, args: append(args, cfg.Flags...)})
	}
	errs := make([]error, cfg.Servers)
	var wg sync.WaitGroup
	for i, srv := range s.servers { // each waits for a majority
		wg.Go(func() { errs[i] = srv.Start(ctx) })
	}
	wg.Wait()
	err = errors.Join(errs...)
	if err == nil {
		s.spy, err = relay.New(relay.Config{Upstream: s.Addresses()})
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func name(i int) string { return string(rune('a' + i)) }

// Addresses are those of all servers.
func (s *Service) Addresses() []string {
	var all []string
	for _, srv := range s.servers {
		all = append(all, srv.Address)
	}
	return all
}

// leaderPatience is how long there may be no leader.
const leaderPatience = 15 * time.Second

// Leader waits until a server leads, and returns it with the term of its leadership.
func (s *Service) Leader(ctx context.Context) (*Server, uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, leaderPatience, fmt.Errorf("nobody leads after %v", leaderPatience))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		st := s.spy.Status()
		i := slices.IndexFunc(s.servers, func(srv *Server) bool { return srv.Address == st.Address })
		if i >= 0 && !st.Down {
			return s.servers[i], st.Term, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, 0, errors.Join(context.Cause(ctx), st.Why)
		}
	}
}

// leadTries is how many hand-overs it may take until a given server leads. The server that has stood by longest is the next leader.
const leadTries = 10

// Lead lets the server with a number lead, by hand-overs. It must run.
func (s *Service) Lead(ctx context.Context, number int) error {
	want := s.servers[number]
	for range leadTries {
		leader, _, err := s.Leader(ctx)
		if err != nil || leader == want {
			return err
		}
		out, err := exec.CommandContext(ctx, want.args[0], "handover", "--address", leader.Address).CombinedOutput()
		if err != nil {
			return fmt.Errorf("hand-over of %s: %w: %s", leader.Address, err, bytes.TrimSpace(out))
		}
	}
	return fmt.Errorf("server %s does not lead after %d hand-overs", want.Address, leadTries)
}

// PIDs are the processes of all servers that run.
func (s *Service) PIDs() []int {
	var all []int
	for _, srv := range s.servers {
		if srv.process != nil {
			all = append(all, srv.process.PID)
		}
	}
	return all
}

// Close kills all servers.
func (s *Service) Close() {
	if s.spy != nil {
		s.spy.Shutdown(context.Background())
	}
	for _, srv := range s.servers {
		srv.Kill()
	}
}

// Start starts the server, at first or after a kill, and returns when it serves.
func (s *Server) Start(ctx context.Context) error {
	p, err := proc.Start(ctx, s.args...)
	if err != nil {
		return fmt.Errorf("server %s: %w", s.Address, err)
	}
	s.process = p
	return nil
}

// Kill ends the server with SIGKILL.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// Stop keeps the process of the server from running, with SIGSTOP.
func (s *Server) Stop() error { return s.process.Signal(syscall.SIGSTOP) }

// Continue lets the process of a server run that was stopped.
func (s *Server) Continue() error { return s.process.Signal(syscall.SIGCONT) }

// FreeAddresses are addresses on which no process listens. Servers that come back need addresses that are
// known before they start.
func FreeAddresses(n int) ([]string, error) {
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // only when all are known, so that each is another one
		all = append(all, l.Addr().String())
	}
	return all, nil
}

// Relays are running relays, each with a socket for the tasks of its host.
type Relays []*proc.Process

// StartRelays starts n relays of a service, with more flags for serry relay. Their sockets lie in a folder.
func StartRelays(ctx context.Context, binary, dir string, upstream []string, n int, flags ...string) (Relays, error) {
	var all Relays
	for i := range n {
		p, err := StartRelay(ctx, nil, binary, dir, upstream, i, flags...)
		if err != nil {
			all.Close()
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// StartRelay starts the relay with a number; prefix is a command that runs the command after it.
func StartRelay(ctx context.Context, prefix []string, binary, dir string, upstream []string, number int, flags ...string) (*proc.Process, error) {
	args := append(slices.Clone(prefix), binary, "relay", "--upstream", strings.Join(upstream, ","),
		"--listen", Socket(dir, number), "--log-level", "warn")
	args = append(args, flags...)
	p, err := proc.Start(ctx, args...)
	if err != nil {
		return nil, fmt.Errorf("relay %d: %w", number, err)
	}
	return p, nil
}

// Socket is where the relay with a number lets tasks in.
func Socket(dir string, number int) string {
	return "unix:" + filepath.Join(dir, fmt.Sprintf("relay-%d.sock", number))
}

// Close kills all relays.
func (r Relays) Close() {
	for _, p := range r {
		p.Kill()
	}
}
