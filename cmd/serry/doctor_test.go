package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/launch/host"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/mtls"
)

// The site of the tests: node7, with a task of a job of four at coord.
const (
	nodeAddress  = "10.0.0.7"
	coordAddress = "10.0.0.1"
	parentPid    = 77
)

func newHealthySite(*testing.T) *site {
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	s := &site{
		address: "coord:8476", parent: parentPid,
		env: []string{"LANG=C", "SLURM_NTASKS=4", "SLURM_PROCID=3", "SLURM_NNODES=2"},
		root: fstest.MapFS{
			fmt.Sprintf("proc/%d/limits", parentPid): text("Limit  Soft  Hard  Units\nMax open files            4096                 524288               files\n"),
		},
		hostname: func() (string, error) { return "node7", nil },
		own:      func() ([]netip.Addr, error) { return ips("127.0.0.1", nodeAddress), nil },
		connect:  func(context.Context, string) error { return nil },
		listen:   func(string) error { return nil },
		machine:  func() []host.Finding { return nil },
		links: func() []hostLink {
			return []hostLink{{"lo", netip.MustParsePrefix("127.0.0.1/8")}, {"eth0", netip.MustParsePrefix(nodeAddress + "/24")}, {"docker0", netip.MustParsePrefix("172.17.0.1/16")}}
		},
		packet:  func(context.Context, string, int) error { return nil },
		statfs:  sizedDisk(100<<30, 50<<30),
		write:   func(string) (time.Duration, error) { return time.Millisecond, nil },
		peek:    func() error { return nil },
		entries: func(context.Context, string) ([]serry.Entry, error) { return nil, nil },
		dirs:    []string{"/tmp"}, command: []string{"python3", "train.py"}, locals: 4,
		now: func() time.Time { return now },
	}
	s.names(map[string]string{"node7": nodeAddress, "coord": coordAddress, "localhost": "127.0.0.1"})
	s.answers(wire.Status{Size: 4, Epoch: 1, Clock: now, Counts: map[string]int{wire.StateConnected: 3, wire.StateAbsent: 1}})
	return s
}

// sizedDisk is a disk of so many bytes.
func sizedDisk(size, free int64) func(string, *unix.Statfs_t) error {
	return func(_ string, st *unix.Statfs_t) error {
		*st = unix.Statfs_t{Bsize: 4096, Blocks: uint64(size / 4096), Bavail: uint64(free / 4096), Files: 1 << 20, Ffree: 1 << 19}
		return nil
	}
}

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }

func ips(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// names lets these host names resolve, to addresses separated by spaces.
func (s *site) names(table map[string]string) {
	s.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if list, ok := table[host]; ok {
			return ips(strings.Fields(list)...), nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
}

func (s *site) answers(st wire.Status) {
	s.ask = func(context.Context) (wire.Status, error) { return st, nil }
}

// fails lets the service answer with an error as access makes it.
func (s *site) fails(err error) {
	s.ask = func(context.Context) (wire.Status, error) {
		return wire.Status{}, runError{(&access{address: s.address}).unreachable(err)}
	}
}

// add puts a file in the way.
func (s *site) add(name, content string) { s.root.(fstest.MapFS)[name] = text(content) }

// process lets a process run, with open sockets by their inodes.
func (s *site) process(pid, parent int, name string, env []string, inodes ...string) {
	dir := fmt.Sprintf("proc/%d/", pid)
	s.add(dir+"environ", strings.Join(append(env, "X=1"), "\x00"))
	s.add(dir+"stat", fmt.Sprintf("%d (%s) S %d 1 1", pid, name, parent))
	s.add(dir+"task/1/comm", name+"\n")
	for i, inode := range inodes {
		s.root.(fstest.MapFS)[fmt.Sprintf("%sfd/%d", dir, i)] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("socket:[" + inode + "]")}
	}
}

const tcpTitles = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func refused() error {
	return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	lab.Clause(t, "D-DOC-2")
	s := newHealthySite(t)
	for _, f := range diagnosis(t.Context(), s, checks()) {
		if f.Level == levelProblem || f.Level == levelWarning || f.Observed == "" {
			t.Errorf("%s: %+v; want nothing wrong", f.Check, f)
		}
	}
}

// The traps of D-DOC-2, in its order, and the rows of TestDoctorFindsTraps that plant them.
var plantedTraps = [][]string{
	{"host name is loopback", "host name does not resolve"},
	{"port is taken", "port of another's process is taken"},
	{"proxy that gRPC obeys", "other proxy"},
	{"nobody serves", "a firewall", "something hangs up"},
	{"one of two interfaces", "bound to loopback here"},
	{"clock is behind", "clock is of another day"},
	{"wrong number of tasks", "wrong number by flag", "ranks that disagree"},
	{"one number twice, seen by the service", "one number twice on this host"},
	{"backend before initialize"},
	{"earlier attempt on this host", "earlier run at the service"},
	{"no huge pages on a TPU"},
	{"few files", "few files for good"},
	{"IPv4 only", "IPv6 only", "no IPv6"},
	{"name comes late", "name never comes"},
	{"left-over Open MPI", "left-over Slurm"},
	{"two versions of jaxlib"},
	{"jax binds the port of the service"},
	{"memory must not be read", "Yama", "Yama for good"},
	{"python -I", "python -E"},
	{"buffered output"},
	{"little shared memory"},
	{"full disk", "little disk", "no more files", "slow disk", "read-only disk"},
	{"large packets vanish", "large packets vanish on the way to a peer"},
	{"memory limit", "memory limit of an outer group", "memory limit of cgroup 1"},
	{"gloo on docker0", "gloo on loopback", "host name is that of docker0"},
}

func TestDoctorPlantsEveryTrap(t *testing.T) {
	lab.Clause(t, "D-DOC-2", "TD-DOC-1")
	if len(plantedTraps) != 25 {
		t.Errorf("%d traps are planted; want 25", len(plantedTraps))
	}
	all := traps()
	for i, rows := range plantedTraps {
		for _, name := range rows {
			if _, ok := all[name]; !ok {
				t.Errorf("trap %d: no row %q", i+1, name)
			}
		}
	}
}

// A trap is something wrong with the site, and what the doctor is to say of it.
type trap struct {
	set      func(*testing.T, *site)
	check    string
	level    level
	observed string
	fix      string
}

func here(s *site) { s.address = "node7:8476" }

// traps are things that have kept jobs from starting, by a name for each.
func traps() map[string]trap {
	return map[string]trap{
		"host name is loopback": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"node7": "127.0.1.1", "coord": coordAddress})
		}, "host name", levelProblem, "node7 resolves to 127.0.1.1", "/etc/hosts"},
		"host name does not resolve": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"coord": coordAddress})
		}, "host name", levelProblem, "does not resolve", "add node7"},
		"proxy that gRPC obeys": {func(_ *testing.T, s *site) {
			s.env = append(s.env, "https_proxy=http://proxy:3128", "no_proxy=example.org")
		}, "proxy variables", levelProblem, "gRPC calls coord through the proxy of https_proxy", "unset https_proxy, or: export no_proxy=example.org,coord"},
		"other proxy": {func(_ *testing.T, s *site) { s.env = append(s.env, "ALL_PROXY=socks") },
			"proxy variables", levelWarning, "ALL_PROXY", "unset"},
		"nobody serves": {func(_ *testing.T, s *site) { s.fails(refused()) },
			"service", levelProblem, "connection refused", "start it there"},
		"nobody serves here": {func(_ *testing.T, s *site) { here(s); s.fails(refused()) },
			"service", levelProblem, "connection refused", "serry serve --tasks"},
		"a firewall": {func(_ *testing.T, s *site) {
			s.fails(&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded})
		}, "service", levelProblem, "timeout", "firewall"},
		"no such name": {func(_ *testing.T, s *site) {
			s.fails(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "coord"}})
		}, "service", levelProblem, "no such host", "must resolve"},
		"something else serves": {func(_ *testing.T, s *site) {
			s.fails(errors.New("it is a web server, not a coordination service"))
		}, "service", levelProblem, "web server", ""},
		"port is taken": {func(_ *testing.T, s *site) {
			here(s)
			s.fails(errors.New("it is a web server"))
			s.listen = func(string) error { return syscall.EADDRINUSE }
			s.add("proc/self/net/tcp", tcpTitles+"   0: 00000000:211C 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n")
			s.process(5, 1, "nginx", nil, "1", "4711")
		}, "port", levelProblem, "8476 is taken by nginx (process 5)", "another port"},
		"port of a server that says nothing": {func(_ *testing.T, s *site) {
			here(s)
			s.fails(errSaidNothing)
			s.listen = func(string) error { return syscall.EADDRINUSE }
		}, "port", levelProblem, "8476 is taken by", "if it wants certificates"},
		"port of another's process is taken": {func(_ *testing.T, s *site) {
			here(s)
			s.fails(refused())
			s.listen = func(string) error { return syscall.EADDRINUSE }
		}, "port", levelProblem, "a process that we may not look at", "another port"},
		"one of two interfaces": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"coord": "10.0.0.1 10.1.0.1"})
			s.connect = func(_ context.Context, address string) error {
				if address == "10.1.0.1:8476" {
					return syscall.ECONNREFUSED
				}
				return nil
			}
		}, "interfaces", levelProblem, "coord is 10.0.0.1, 10.1.0.1, and 10.1.0.1 does not answer", "--listen [::]:8476"},
		"bound to loopback here": {func(_ *testing.T, s *site) {
			s.address = "localhost:8476"
			s.env = nil
			s.add("proc/self/net/tcp", tcpTitles+"   0: 0100007F:211C 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n")
		}, "interfaces", levelWarning, "listens on 127.0.0.1 only: ranks that use 10.0.0.7", "--listen [::]:8476"},
		"loopback for several hosts": {func(_ *testing.T, s *site) { s.address = "localhost:8476" },
			"interfaces", levelProblem, "SLURM_NNODES says that the job has 2 hosts", "use the name"},
		"socket for several hosts": {func(_ *testing.T, s *site) { s.address = "unix:/run/serry.sock" },
			"interfaces", levelProblem, "is a socket of one", "address of the network"},
		"jax binds one interface": {func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_COORDINATOR_BIND_ADDRESS=10.0.0.7:8476")
		}, "jax variables", levelProblem, "starts a service at 10.0.0.7:8476 only", "127.0.0.1:0"},
		"jax binds the port of the service": {func(_ *testing.T, s *site) {
			s.env = []string{"JAX_COORDINATOR_ADDRESS=coord:8476"}
		}, "jax variables", levelProblem, "process 0 would start a service of its own at coord:8476", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0"},
		"jax address without a port": {func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_ADDRESS=coord", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")
		}, "jax variables", levelProblem, `is "coord": want host:port`, "JAX_COORDINATOR_ADDRESS=coord:8476"},
		"jax bind address without a port": {func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_COORDINATOR_BIND_ADDRESS=localhost")
		}, "jax variables", levelProblem, `is "localhost": want host:port`, "127.0.0.1:0"},
		"jax asks another service": {func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_ADDRESS=other:8476", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")
		}, "jax variables", levelWarning, "the service that was asked is at coord:8476", "JAX_COORDINATOR_ADDRESS=coord:8476"},
		"jax address is missing": {func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")
		}, "jax variables", levelProblem, "JAX_COORDINATOR_ADDRESS is not", "JAX_COORDINATOR_ADDRESS=coord:8476"},
		"no IPv6": {func(_ *testing.T, s *site) {
			s.listen = func(string) error { return syscall.EAFNOSUPPORT }
		}, "ipv6", levelWarning, "cannot listen on [::]", "0.0.0.0:8476"},
		"certificate ran out": {func(t *testing.T, s *site) {
			s.cert = issue(t)
			s.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
		}, "certificate", levelProblem, "ran out", "issue another"},
		"certificate runs out": {func(t *testing.T, s *site) {
			s.cert = issue(t)
			s.now = time.Now
		}, "certificate", levelWarning, "is good until", "issue another"},
		"certificate of tomorrow": {func(t *testing.T, s *site) {
			s.cert = issue(t)
			s.now = func() time.Time { return time.Now().Add(-time.Hour) }
		}, "certificate", levelProblem, "is not good before", "clock"},
		"clock is behind": {func(_ *testing.T, s *site) {
			s.answers(wire.Status{Clock: s.now().Add(30 * time.Second)})
		}, "clock", levelWarning, "30s apart", "chronyd"},
		"clock is of another day": {func(_ *testing.T, s *site) {
			s.answers(wire.Status{Clock: s.now().Add(-24 * time.Hour)})
		}, "clock", levelProblem, "24h0m0s apart", "chronyd"},
		"wrong number of tasks": {func(_ *testing.T, s *site) { s.answers(wire.Status{Size: 8}) },
			"rank count", levelProblem, "SLURM_NTASKS is 4, and the service waits for 8 ranks", "--tasks 4"},
		"wrong number by flag": {func(_ *testing.T, s *site) { s.tasks = 5 },
			"rank count", levelProblem, "--tasks is 5, and the service waits for 4", "--tasks 5"},
		"numbered from 1": {func(_ *testing.T, s *site) { s.env = []string{"OMPI_COMM_WORLD_RANK=4"} },
			"rank count", levelProblem, "OMPI_COMM_WORLD_RANK is 4", "numbered from 0"},
		"one number twice, seen by the service": {func(_ *testing.T, s *site) {
			s.answers(wire.Status{Size: 4, Tasks: []wire.TaskStatus{{Task: "worker/3", State: wire.StateFailed, Cause: serry.ErrRestarted.Error(), ForSeconds: 5}}})
		}, "rank numbers", levelProblem, "two processes were worker/3, 5.0s ago", "number of its own"},
		"one number twice on this host": {func(_ *testing.T, s *site) {
			env := []string{"JAX_COORDINATOR_ADDRESS=coord:8476", "SLURM_PROCID=3"}
			s.process(10, 1, "python", env)
			s.process(11, 10, "helper", env)
			s.process(12, 1, "python", env)
		}, "rank numbers", levelProblem, "processes 10 (python) and 12 (python) are both rank 3", "number of its own"},
		"earlier attempt on this host": {func(_ *testing.T, s *site) {
			s.process(10, 1, "python", []string{"SERRY_RUN=abc", "SERRY_ATTEMPT=1"})
			s.process(11, 1, "python", []string{"SERRY_RUN=abc", "SERRY_ATTEMPT=2"})
			s.process(12, 1, "python", []string{"SERRY_RUN=xyz", "SERRY_ATTEMPT=1"})
		}, "earlier attempt", levelProblem, "processes 10 are of an earlier attempt", "kill 10"},
		"earlier run at the service": {func(_ *testing.T, s *site) {
			s.answers(wire.Status{
				Tasks: []wire.TaskStatus{{Task: "worker/0", State: wire.StateLeft, Incarnation: 1}, {Task: "worker/1", State: wire.StateLeft, Incarnation: 2, Departed: true}},
				Notes: []wire.NoteStatus{{What: "epoch opened"}, {What: "registration waits for the former run to depart"}},
			})
		}, "earlier attempt", levelProblem, "a new attempt waits until worker/0 of the former one are gone", "end their processes"},
		"failed run at the service": {func(_ *testing.T, s *site) {
			s.answers(wire.Status{Epoch: 3, Failure: "worker/0 died", Tasks: []wire.TaskStatus{{Task: "worker/1", State: wire.StateConnected, Incarnation: 1}}})
		}, "earlier attempt", levelProblem, "attempt 3 has failed, and worker/1 are still there", "restart the service"},
		"backend before initialize": {func(_ *testing.T, s *site) {
			s.process(10, 1, "python", []string{"JAX_COORDINATOR_ADDRESS=coord:8476"}, "1")
			s.add("proc/10/task/12/comm", "tf_XLAEigen\n")
			s.add("proc/10/net/tcp", tcpTitles)
		}, "jax backend", levelProblem, "process 10 (python) uses devices already", "jax.distributed.initialize()"},
		"backend of who knows": {func(_ *testing.T, s *site) {
			s.process(10, 1, "python", nil)
			s.add("proc/10/task/12/comm", "tf_XLAEigen\n")
		}, "jax backend", levelWarning, "is it a rank", "jax.distributed.initialize()"},
		"few files": {func(_ *testing.T, s *site) {
			s.answers(wire.Status{Size: 10_000})
		}, "open files", levelWarning, "limit of 4096 open files, 40256 may be needed", "ulimit -n 40256"},
		"few files for good": {func(_ *testing.T, s *site) {
			s.add(fmt.Sprintf("proc/%d/limits", parentPid), "Max open files 256 512 files\n")
		}, "open files", levelProblem, "512 files at most, 1024 are needed", "hard limit"},
		"no huge pages on a TPU": {func(t *testing.T, s *site) {
			s.machineAt(t, map[string]string{
				"sys/bus/pci/devices/0/vendor": "0x1ae0\n", "sys/bus/pci/devices/0/device": "0x0063\n",
				"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
			})
		}, "huge pages", levelWarning, "always [madvise] never", "echo always"},
		"no /proc in a container": {func(t *testing.T, s *site) { s.machineAt(t, nil) },
			"boot id", levelWarning, "cannot be read", "mounted"},
		"something hangs up": {func(_ *testing.T, s *site) {
			s.fails(&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)})
		}, "service", levelProblem, "connection reset", "load balancer"},
		"ranks that disagree": {func(_ *testing.T, s *site) {
			s.process(10, 1, "python", []string{"JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_PROCESS_ID=2", "JAX_NUM_PROCESSES=4"})
			s.process(11, 1, "python", []string{"JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_PROCESS_ID=3", "JAX_NUM_PROCESSES=5"})
		}, "rank counts here", levelProblem, "rank 2 says 4 ranks, rank 3 says 5", "the same number"},
		"IPv4 only": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"coord": "10.0.0.1 fd00::1"})
			s.deafTo("[fd00::1]:8476")
		}, "interfaces", levelProblem, "coord is 10.0.0.1, fd00::1, and the service does not answer by IPv6", "--listen [::]:8476"},
		"IPv6 only": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"coord": "10.0.0.1 fd00::1"})
			s.deafTo("10.0.0.1:8476")
		}, "interfaces", levelProblem, "does not answer by IPv4", "give its address as a number"},
		"name comes late": {func(_ *testing.T, s *site) { s.lateName("coord", 3) },
			"names", levelWarning, "coord appears only after 800ms", "serry run"},
		"name never comes": {func(_ *testing.T, s *site) { s.peers = []string{"node9"} },
			"names", levelProblem, "node9: no such name", "DNS"},
		"left-over Open MPI": {func(_ *testing.T, s *site) {
			s.env = []string{"OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0"}
		}, "scheduler", levelProblem, "Open MPI variables say rank 0 of 1, and the job has 4 ranks", "unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK, or serry run --cluster none"},
		"left-over Slurm": {func(_ *testing.T, s *site) {
			s.env, s.tasks = []string{"SLURM_NTASKS=1", "SLURM_PROCID=0"}, 8
		}, "scheduler", levelProblem, "Slurm variables say rank 0 of 1, and the job has 8 ranks", "unset SLURM_NTASKS"},
		"two versions of jaxlib": {func(_ *testing.T, s *site) {
			s.jaxRank(10, "0", "0.12.0.1")
			s.jaxRank(11, "1", "0.11.2")
		}, "jaxlib", levelProblem, "rank 1 has jaxlib 0.11.2, rank 0 has 0.12.0.1", "one version"},
		"memory must not be read": {func(_ *testing.T, s *site) {
			s.peek = func() error { return syscall.EPERM }
		}, "stacks", levelWarning, "process_vm_readv: operation not permitted", "seccomp"},
		"Yama": {func(_ *testing.T, s *site) {
			s.add("proc/sys/kernel/yama/ptrace_scope", "2\n")
			s.add("proc/self/status", "Name:\tserry\nCapEff:\t0000000000000000\n")
		}, "stacks", levelWarning, "ptrace_scope is 2", "sysctl kernel.yama.ptrace_scope=1"},
		"Yama for good": {func(_ *testing.T, s *site) {
			s.add("proc/sys/kernel/yama/ptrace_scope", "3\n")
			s.add("proc/self/status", "CapEff:\t000001ffffffffff\n")
		}, "stacks", levelWarning, "ptrace_scope is 3", "sysctl"},
		"python -I": {func(_ *testing.T, s *site) { s.command = []string{"/usr/bin/python3", "-I", "train.py"} },
			"command", levelWarning, "python -I ignores PYTHONUNBUFFERED", "python3 -u -X faulthandler"},
		"python -E": {func(_ *testing.T, s *site) { s.command = []string{"python3", "-X", "dev", "-BE", "-m", "train", "-u"} },
			"command", levelWarning, "python -E ignores PYTHONUNBUFFERED", "-u"},
		"buffered output": {func(_ *testing.T, s *site) {
			s.process(10, 1, "python3", []string{"JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_PROCESS_ID=3"}, "1", "2")
			s.add("proc/10/cmdline", "python3\x00train.py\x00")
		}, "output", levelWarning, "rank 3 (process 10) is buffered", "PYTHONUNBUFFERED=1"},
		"little shared memory": {func(_ *testing.T, s *site) { s.statfs = sizedDisk(64<<20, 64<<20) },
			"shared memory", levelWarning, "64.0 MiB of shared memory for 4 ranks", "--shm-size 8g"},
		"full disk": {func(_ *testing.T, s *site) { s.statfs = sizedDisk(10<<30, 1<<20) },
			"disk", levelProblem, "/tmp has 1.0 MiB left, of 10.0 GiB", "another directory"},
		"little disk": {func(_ *testing.T, s *site) { s.statfs = sizedDisk(10<<30, 500<<20) },
			"disk", levelWarning, "/tmp has 500.0 MiB left", "remove files"},
		"no more files": {func(_ *testing.T, s *site) {
			s.statfs = func(_ string, st *unix.Statfs_t) error {
				*st = unix.Statfs_t{Bsize: 4096, Blocks: 1 << 30, Bavail: 1 << 29, Files: 1 << 20, Ffree: 3}
				return nil
			}
		}, "disk", levelProblem, "room for 3 more files", "remove files"},
		"slow disk": {func(_ *testing.T, s *site) {
			s.write = func(string) (time.Duration, error) { return 210 * time.Millisecond, nil }
		}, "disk", levelWarning, "a write to /tmp takes 210ms", "--store file:DIR"},
		"read-only disk": {func(_ *testing.T, s *site) {
			s.write = func(string) (time.Duration, error) { return 0, syscall.EROFS }
		}, "disk", levelProblem, "/tmp cannot be written: read-only file system", "another directory"},
		"large packets vanish": {func(_ *testing.T, s *site) { s.narrowPath("10.0.0.1:8476", 1400) },
			"packet size", levelProblem, "packets above 1400 bytes vanish on the way to coord", "MTU of the interface to 1400"},
		"large packets vanish on the way to a peer": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"node7": nodeAddress, "coord": coordAddress, "node8": "10.0.0.8"})
			s.peers = []string{"node8"}
			s.narrowPath("10.0.0.8:8476", 1300)
		}, "packet size", levelProblem, "packets above 1280 bytes vanish on the way to node8", "MTU"},
		"memory limit": {func(_ *testing.T, s *site) {
			s.locals = 8
			s.add("proc/self/cgroup", "0::/user.slice/job\n")
			s.add("sys/fs/cgroup/user.slice/job/memory.max", "2147483648\n")
		}, "memory", levelWarning, "2.0 GiB for 8 ranks: importing jax alone takes about 1.6 GiB", "fewer ranks"},
		"memory limit of an outer group": {func(_ *testing.T, s *site) {
			s.add("proc/self/cgroup", "0::/user.slice/job\n")
			s.add("sys/fs/cgroup/user.slice/job/memory.max", "max\n")
			s.add("sys/fs/cgroup/user.slice/memory.max", "1073741824\n")
		}, "memory", levelWarning, "1.0 GiB for 4 ranks", "raise the limit"},
		"memory limit of cgroup 1": {func(_ *testing.T, s *site) {
			s.add("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/1f2e\n")
			s.add("sys/fs/cgroup/memory/docker/1f2e/memory.limit_in_bytes", "1073741824\n")
			s.add("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
		}, "memory", levelWarning, "1.0 GiB for 4 ranks", "raise the limit"},
		"gloo on docker0": {func(_ *testing.T, s *site) { s.offers("172.17.0.1", "10.0.0.8") },
			"gloo addresses", levelProblem, "rank 0 offers 172.17.0.1 (docker0) to its peers", "/etc/hosts"},
		"gloo on loopback": {func(_ *testing.T, s *site) { s.offers("10.0.0.8", "::1") },
			"gloo addresses", levelProblem, "rank 1 offers ::1 to its peers", "/etc/hosts"},
		"host name is that of docker0": {func(_ *testing.T, s *site) {
			s.names(map[string]string{"node7": "172.17.0.1", "coord": coordAddress})
		}, "gloo addresses", levelProblem, "node7 resolves to 172.17.0.1 (docker0)", "/etc/hosts"},
	}
}

func TestDoctorFindsTraps(t *testing.T) {
	lab.Clause(t, "P-HOST-1", "P-HOST-3", "C-HOST-2", "C-ENV-9", "TC-ENV-13", "D-DOC-1", "D-DOC-2", "TD-DOC-1")
	for name, c := range traps() {
		t.Run(name, func(t *testing.T) {
			s := newHealthySite(t)
			c.set(t, s)
			found := false
			for _, check := range checks() {
				if check.name != c.check {
					continue
				}
				found = true
				f := check.run(t.Context(), s)
				if f.Level != c.level || !strings.Contains(f.Observed, c.observed) || !strings.Contains(f.Fix, c.fix) {
					t.Errorf("%s: %s: %s; fix: %s\nwant %s: %s; fix: %s", c.check, f.Level, f.Observed, f.Fix, c.level, c.observed, c.fix)
				}
			}
			if !found {
				t.Errorf("there is no check %q", c.check)
			}
		})
	}
}

// deafTo lets nothing answer at an address.
func (s *site) deafTo(deaf string) {
	s.connect = func(_ context.Context, address string) error {
		if address == deaf {
			return syscall.ECONNREFUSED
		}
		return nil
	}
}

// lateName lets a name resolve after some failures. Time passes by 400 ms a look-up.
func (s *site) lateName(late string, failures int) {
	lookup, now := s.lookup, s.now()
	s.waitName, s.now = 2*time.Second, func() time.Time { return now }
	s.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		if host == late && failures > 1 {
			failures--
			now = now.Add(400 * time.Millisecond)
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
		return lookup(ctx, host)
	}
}

// narrowPath lets packets above a size vanish on the way to an address.
func (s *site) narrowPath(to string, most int) {
	s.packet = func(_ context.Context, address string, bytes int) error {
		if address == to && bytes > most {
			return errPacketLost
		}
		return nil
	}
}

// offers lets ranks publish the addresses at which Gloo reaches them.
func (s *site) offers(list ...string) {
	s.entries = func(context.Context, string) ([]serry.Entry, error) {
		var all []serry.Entry
		for i, a := range ips(list...) {
			all = append(all, serry.Entry{Key: fmt.Sprintf("cpu:gloo/0,2048/%d", i), Value: glooValue(a)})
		}
		return all, nil
	}
}

// glooValue is a socket address of Linux, and what Gloo puts around it.
func glooValue(a netip.Addr) []byte {
	value := make([]byte, 8+128+8)
	at := value[8:]
	binary.BigEndian.PutUint16(at[2:], 49539)
	if a.Is4() {
		binary.LittleEndian.PutUint16(at, syscall.AF_INET)
		copy(at[4:], a.AsSlice())
	} else {
		binary.LittleEndian.PutUint16(at, syscall.AF_INET6)
		copy(at[8:], a.AsSlice())
	}
	return value
}

// jaxRank lets a rank run that has loaded a version of jaxlib.
func (s *site) jaxRank(pid int, rank, version string) {
	packages := "opt/" + version + "/site-packages"
	s.process(pid, 1, "python", []string{"JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_PROCESS_ID=" + rank})
	s.add(fmt.Sprintf("proc/%d/maps", pid), "7f00-7f01 r-xp 0 fe:00 1   /usr/lib/libc.so.6\n7f02-7f03 r-xp 0 fe:00 1   /"+packages+"/jaxlib/libjax_common.so\n")
	s.add(fmt.Sprintf("proc/%d/root/%s/jaxlib-%s.dist-info/METADATA", pid, packages, version), "Name: jaxlib\n")
}

// What looks like a trap and is none.
func TestDoctorLeavesInPeace(t *testing.T) {
	for name, c := range map[string]trap{
		"loopback on one host": {set: func(_ *testing.T, s *site) {
			s.address, s.env = "localhost:8476", nil
			s.names(map[string]string{"node7": "127.0.1.1", "localhost": "127.0.0.1"})
		}, check: "host name"},
		"exempt from the proxy": {set: func(_ *testing.T, s *site) {
			s.address = "coord.example.org:8476"
			s.env = append(s.env, "http_proxy=http://proxy", "no_proxy=localhost, .example.org")
		}, check: "proxy variables"},
		"port of a service with TLS": {set: func(_ *testing.T, s *site) {
			here(s)
			s.ask = func(context.Context) (wire.Status, error) { return wire.Status{}, hinted{errWantsTLS, tlsHint} }
			s.listen = func(string) error { return syscall.EADDRINUSE }
		}, check: "port"},
		"port of the service": {set: func(_ *testing.T, s *site) { here(s) }, check: "port"},
		"all interfaces": {set: func(_ *testing.T, s *site) {
			here(s)
			s.add("proc/self/net/tcp6", tcpTitles+"   0: 00000000000000000000000000000000:211C 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 4711 1\n")
		}, check: "interfaces"},
		"jax binds a port of its own": {set: func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")
		}, check: "jax variables"},
		"process 3 binds nothing": {set: func(_ *testing.T, s *site) {
			s.env = append(s.env, "JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_PROCESS_ID=3")
		}, check: "jax variables"},
		"backend of a member": {set: func(_ *testing.T, s *site) {
			s.process(10, 1, "python", []string{"JAX_COORDINATOR_ADDRESS=coord:8476"}, "4711")
			s.add("proc/10/task/12/comm", "tf_XLAEigen\n")
			s.add("proc/10/net/tcp", tcpTitles+"   0: 0700000A:9000 0100000A:211C 01 0:0 0:0 0 0 0 4711 1\n")
		}, check: "jax backend"},
		"huge pages on a TPU": {set: func(t *testing.T, s *site) {
			s.machineAt(t, map[string]string{
				"sys/bus/pci/devices/0/vendor": "0x1ae0\n", "sys/bus/pci/devices/0/device": "0x0063\n",
				"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
			})
		}, check: "huge pages"},
		"variables of serry run": {set: func(_ *testing.T, s *site) {
			s.env = []string{"SERRY_RUN=abc", "OMPI_COMM_WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=0"}
		}, check: "scheduler"},
		"one version of jaxlib": {set: func(_ *testing.T, s *site) {
			s.jaxRank(10, "0", "0.12.0.1")
			s.jaxRank(11, "1", "0.12.0.1")
		}, check: "jaxlib"},
		"Yama for ancestors": {set: func(_ *testing.T, s *site) { s.add("proc/sys/kernel/yama/ptrace_scope", "1\n") }, check: "stacks"},
		"Yama and a capability": {set: func(_ *testing.T, s *site) {
			s.add("proc/sys/kernel/yama/ptrace_scope", "2\n")
			s.add("proc/self/status", "CapEff:\t0000000000080000\n")
		}, check: "stacks"},
		"python -I -u":       {set: func(_ *testing.T, s *site) { s.command = []string{"python3", "-Iu", "train.py"} }, check: "command"},
		"flags of a program": {set: func(_ *testing.T, s *site) { s.command = []string{"python3", "train.py", "-I"} }, check: "command"},
		"another program":    {set: func(_ *testing.T, s *site) { s.command = []string{"train", "-I"} }, check: "command"},
		"output to a terminal": {set: func(_ *testing.T, s *site) {
			s.process(10, 1, "python3", []string{"JAX_COORDINATOR_ADDRESS=coord:8476", "JAX_PROCESS_ID=3"})
			s.add("proc/10/cmdline", "python3\x00train.py\x00")
			s.root.(fstest.MapFS)["proc/10/fd/1"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/dev/pts/3")}
		}, check: "output"},
		"packet is refused as too large": {set: func(_ *testing.T, s *site) {
			s.packet = func(_ context.Context, _ string, bytes int) error {
				if bytes > 1400 {
					return syscall.EMSGSIZE
				}
				return nil
			}
		}, check: "packet size"},
		"hosts without a word": {set: func(_ *testing.T, s *site) {
			s.packet = func(context.Context, string, int) error { return errPacketLost }
		}, check: "packet size"},
		"all ranks on loopback": {set: func(_ *testing.T, s *site) { s.offers("127.0.0.1", "127.0.0.1") }, check: "gloo addresses"},
		"little memory for another program": {set: func(_ *testing.T, s *site) {
			s.command = []string{"./train"}
			s.add("proc/self/cgroup", "0::/\n")
			s.add("sys/fs/cgroup/memory.max", "1073741824\n")
		}, check: "memory"},
		"unlimited files": {set: func(_ *testing.T, s *site) {
			s.add(fmt.Sprintf("proc/%d/limits", parentPid), "Max open files unlimited unlimited files\n")
		}, check: "open files"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHealthySite(t)
			c.set(t, s)
			for _, check := range checks() {
				if f := check.run(t.Context(), s); check.name == c.check && f.Level != levelOK && f.Level != levelSkipped {
					t.Errorf("%s: %s: %s; want nothing wrong", c.check, f.Level, f.Observed)
				}
			}
		})
	}
}

// machineAt lets the machine have these files.
func (s *site) machineAt(t *testing.T, files map[string]string) {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.machine = func() []host.Finding { return host.Check(root) }
}

// issue makes a certificate that is good for an hour.
func issue(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ca, err := mtls.NewAuthority(dir, "test", time.Hour)
	if err == nil {
		err = ca.Issue(dir, mtls.Subject{Name: "me", Life: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "me.pem")
}

// The parts of a site that tests replace, for real.
func TestRealSite(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSite(&access{address: l.Addr().String(), timeout: time.Second}, 0)
	_, port, _ := s.hostPort()
	if err := s.connect(t.Context(), l.Addr().String()); err != nil {
		t.Errorf("connect() = %v", err)
	}
	if err := s.listen(l.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen() = %v; want that the port is taken", err)
	}
	if !s.isHere(t.Context()) {
		t.Error("isHere() = false; want that a loopback address is here")
	}
	if _, err := os.Stat("/proc/self/net/tcp"); err != nil {
		t.Skip("this system has no /proc, in which the owner of a port is looked up")
	}
	if got := s.owner(port); !strings.Contains(got, fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("owner(%s) = %s; want us", port, got)
	}
	if soft, hard, err := s.fileLimits(); err != nil || soft < 1 || hard < soft {
		t.Errorf("fileLimits() = %d, %d, %v", soft, hard, err)
	}
}

// What a site asks the kernel for.
func TestRealSiteAsksTheKernel(t *testing.T) {
	if err := peekAtSelf(); err != nil && !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSYS) {
		t.Errorf("peekAtSelf() = %v", err)
	}
	if _, err := syncedWrite(t.TempDir()); err != nil && !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("syncedWrite() = %v", err)
	}
	if len(ownLinks()) == 0 {
		t.Error("ownLinks() = none; want that of loopback")
	}
	l, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.LocalAddr().String()
	if err := sendPacket(t.Context(), at, smallPacket); !errors.Is(err, errPacketLost) {
		t.Errorf("sendPacket() to a socket that says nothing = %v; want %v", err, errPacketLost)
	}
	l.Close()
	if err := sendPacket(t.Context(), at, fullPacket); err != nil {
		t.Errorf("sendPacket() to a port without a socket = %v; want that it has arrived", err)
	}
	if err := sendPacket(t.Context(), at, 1<<16); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("sendPacket() of 64 KiB = %v; want %v", err, syscall.EMSGSIZE)
	}
}

func FuzzParseSocket(f *testing.F) {
	f.Add("0100007F:1F90")
	f.Add("00000000000000000000000000000000:211C")
	f.Add(":")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseSocket(text)
		if err == nil && !a.IsValid() {
			t.Errorf("parseSocket(%q) = %v", text, a)
		}
	})
}
