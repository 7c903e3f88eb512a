package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/collective/gauge"
)

// Names of the peers.
const (
	ourName  = "serry"
	glooName = "gloo"
	mpiName  = "mpi"
	jaxName  = "jax"
)

// The ways between the ranks of serry and of Open MPI. Gloo and jax, which uses it, always use TCP.
const (
	overLinks  = "links"
	overMemory = "memory" // vectors in private memory
	overArena  = "arena"  // vectors in an arena, for serry
)

//go:embed peer.py
var peerScript string

// A peer is a group of processes. Its rank 0 takes orders by its stdin and answers each by a line.
type peer struct {
	name  string
	ranks []*exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	log   proc.Tail
}

// patience bounds the wait for an answer.
const patience = 2 * time.Minute

// start starts all peers. closeAll is never nil.
func (p plan) start(ctx context.Context, over string, ranks int) (peers []*peer, closeAll func(), err error) {
	dir, err := os.MkdirTemp("", "serry-bench")
	closeAll = func() {
		for _, q := range peers {
			q.stop()
		}
		os.RemoveAll(dir)
	}
	if err != nil {
		return nil, closeAll, err
	}
	stopPeers := closeAll
	var services []*proc.Process
	closeAll = func() {
		stopPeers()
		for _, s := range services {
			s.Kill()
		}
	}
	var addresses [2]string // of the service, and of that for the clique without records
	for i := range addresses {
		s, err := proc.Start(ctx, p.binary, "serve", "--tasks", strconv.Itoa(ranks), "--listen", "127.0.0.1:0")
		if err != nil {
			return nil, closeAll, err
		}
		services = append(services, s)
		if addresses[i], err = s.Address(); err != nil {
			return nil, closeAll, err
		}
	}
	jaxAddress, err := freeAddress()
	if err != nil {
		return nil, closeAll, err
	}
	groups := map[string]func() [][]string{
		glooName: func() [][]string { return p.gloo(ranks, filepath.Join(dir, "store")) },
		mpiName:  func() [][]string { return p.openMPI(over, ranks) },
		jaxName:  func() [][]string { return p.jaxRanks(ranks, jaxAddress) },
	}
	ours, err := startPeer(ourName, nil, ourRanks(over, ranks, addresses[0], addresses[1]))
	if err != nil {
		return nil, closeAll, err
	}
	peers = append(peers, ours)
	for _, name := range p.peers {
		q, err := startPeer(name, p.environment(name), groups[name]())
		if err != nil {
			return peers, closeAll, fmt.Errorf("%s: %w", name, err)
		}
		peers = append(peers, q)
	}
	return peers, closeAll, nil
}

// gloo is the commands of the ranks of torch's Gloo. They find each other by a file.
func (p plan) gloo(ranks int, store string) (all [][]string) {
	for r := range ranks {
		all = append(all, []string{p.torch, "-W", "ignore", "-c", peerScript, "gloo", strconv.Itoa(r), strconv.Itoa(ranks), store})
	}
	return all
}

// jaxRanks is the commands of the processes of jax. They find each other by the service in the first of them.
func (p plan) jaxRanks(ranks int, address string) (all [][]string) {
	for r := range ranks {
		all = append(all, []string{p.jax, "-W", "ignore", "-c", peerScript, "jax", strconv.Itoa(r), strconv.Itoa(ranks), address})
	}
	return all
}

// freeAddress is an address that no process listens at now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// openMPI is the command that starts all ranks of Open MPI, on sockets alone or without them.
func (p plan) openMPI(over string, ranks int) [][]string {
	way := []string{"tcp,self", "--mca", "btl_tcp_if_include", "lo"}
	if over != overLinks {
		way = []string{"^tcp"}
	}
	command := []string{filepath.Join(filepath.Dir(p.mpi), "mpirun"), "--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(ranks),
		"--mca", "pml", "ob1", "--mca", "btl"}
	return [][]string{append(append(command, way...), p.mpi, "-c", peerScript, "mpi")}
}

// environment is what a peer needs beside the variables of this process.
func (p plan) environment(name string) []string {
	switch name {
	case jaxName: // one device a process, and the logs of a process that is killed at the end are not for people
		return []string{"JAX_PLATFORMS=cpu", "JAX_NUM_CPU_DEVICES=1", "TF_CPP_MIN_LOG_LEVEL=3", "OMP_NUM_THREADS=1"}
	case glooName:
	default:
		return nil
	}
	stubs, err := filepath.Abs(filepath.Join(filepath.Dir(p.torch), "../stubs"))
	if err != nil {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + stubs, "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1"}
}

// startPeer starts the processes of a peer, and returns when its rank 0 is ready.
func startPeer(name string, env []string, commands [][]string) (p *peer, err error) {
	p = &peer{name: name}
	for i, args := range commands {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stderr = &p.log
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if i == 0 {
			var out io.Reader
			if p.in, err = cmd.StdinPipe(); err == nil {
				out, err = cmd.StdoutPipe()
			}
			p.out = bufio.NewReader(out)
		}
		if err = errors.Join(err, cmd.Start()); err != nil {
			p.stop()
			return nil, err
		}
		p.ranks = append(p.ranks, cmd)
	}
	if line, err := p.answer(); err != nil || line != ready {
		p.stop()
		return nil, fmt.Errorf("said %q (%v), log:\n%s", line, err, p.log.String())
	}
	return p, nil
}

const ready = "ready"

// answer reads a line of rank 0. If none comes, all ranks are killed, which ends the wait.
func (p *peer) answer() (string, error) {
	timer := time.AfterFunc(patience, p.kill)
	defer timer.Stop()
	line, err := p.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

// measure lets the peer do some work, and returns how long one operation took; 0 if the peer does not have it.
func (p *peer) measure(w gauge.Work) (time.Duration, error) {
	if _, err := fmt.Fprintln(p.in, w.Op, w.Bytes, w.Count); err != nil {
		return 0, fmt.Errorf("%w, log:\n%s", err, p.log.String())
	}
	line, err := p.answer()
	if err != nil {
		return 0, fmt.Errorf("%w, log:\n%s", err, p.log.String())
	}
	if strings.HasPrefix(line, "-") {
		return 0, nil
	}
	seconds, err := strconv.ParseFloat(line, 64)
	return time.Duration(seconds * float64(time.Second)), err
}

// kill kills all processes of the peer.
func (p *peer) kill() {
	for _, cmd := range p.ranks {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails only if it has ended
	}
}

// stop kills all processes of the peer, and waits for their end.
func (p *peer) stop() {
	p.kill()
	for _, cmd := range p.ranks {
		cmd.Wait() // it was killed
	}
}
