package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/launch/host"
	"github.com/serry-dev/serry/wire"
)

// A site is a host, and the service as seen from it. Checks ask it and nothing else, so that tests
// can set traps.
type site struct {
	// Set once.
	address  string   // of the service
	tasks    int      // that the user says the job is to have, or 0
	locals   int      // of them that are to run on this host, or 0
	peers    []string // other hosts of the job, as the user names them
	command  []string // that is to run as every task, or nil
	dirs     []string // for journals and logs
	waitName time.Duration
	cert     string // file, or empty
	env      []string
	root     fs.FS // everything from / on
	parent   int   // process that started us, as it will start tasks
	hostname func() (string, error)
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	own      func() ([]netip.Addr, error) // addresses of this host
	links    func() []hostLink            // its network interfaces
	connect  func(ctx context.Context, address string) error
	listen   func(address string) error
	machine  func() []host.Finding
	packet   func(ctx context.Context, address string, bytes int) error // sends one; nil: it has arrived
	statfs   func(dir string, st *unix.Statfs_t) error
	write    func(dir string) (time.Duration, error) // writes a block and waits for the disk
	peek     func() error                            // reads memory as serry stacks does
	now      func() time.Time
	ask      func(context.Context) (wire.Status, error)
	entries  func(ctx context.Context, dir string) ([]serry.Entry, error) // keys of the service

	// Filled in by status, once. Checks run beside each other.
	once   sync.Once
	answer wire.Status
	failed error
	took   time.Duration
	at     time.Time // on our clock, when the answer was made
}

// newSite is the site that we are at.
func newSite(a *access, tasks int) *site {
	return &site{
		address: a.address, tasks: tasks, cert: a.tls.Cert, env: os.Environ(), root: os.DirFS("/"), parent: os.Getppid(),
		hostname: os.Hostname,
		lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			for i := range found {
				found[i] = found[i].Unmap()
			}
			return found, err
		},
		own: ownAddresses, links: ownLinks, packet: sendPacket, statfs: unix.Statfs, write: syncedWrite, peek: peekAtSelf,
		connect: func(ctx context.Context, address string) error {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				c.Close()
			}
			return err
		},
		listen: func(address string) error {
			l, err := net.Listen("tcp", address)
			if err == nil {
				l.Close()
			}
			return err
		},
		machine: func() []host.Finding { return host.Check("/") },
		now:     time.Now,
		ask: func(ctx context.Context) (wire.Status, error) {
			r, err := a.open(ctx)
			if err != nil {
				return wire.Status{}, err
			}
			defer r.Close()
			return r.status(ctx, wire.StatusQuery{Tasks: true})
		},
		entries: func(ctx context.Context, dir string) ([]serry.Entry, error) {
			r, err := a.open(ctx)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return r.List(ctx, dir)
		},
	}
}

func ownAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	var found []netip.Addr
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			found = append(found, p.Addr().Unmap())
		}
	}
	return found, err
}

// status asks the service how it is, the first time.
func (s *site) status(ctx context.Context) (wire.Status, error) {
	s.once.Do(func() {
		began := s.now()
		s.answer, s.failed = s.ask(ctx)
		s.took = s.now().Sub(began)
		s.at = began.Add(s.took / 2)
	})
	return s.answer, s.failed
}

// hostPort is where the service is; ok is false for a socket in the file system.
func (s *site) hostPort() (host, port string, ok bool) {
	host, port, err := net.SplitHostPort(s.address)
	return host, port, err == nil && !strings.HasPrefix(s.address, unixPrefix)
}

// resolve finds the addresses of a host, which may be one itself.
func (s *site) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	return s.lookup(ctx, host)
}

// isHere says whether the service is on this host.
func (s *site) isHere(ctx context.Context) bool {
	host, _, ok := s.hostPort()
	if !ok {
		return true
	}
	found, _ := s.resolve(ctx, host)
	own, _ := s.own()
	return slices.ContainsFunc(found, func(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(own, a) })
}

// variable is the value of a variable, or empty.
func (s *site) variable(name string) string { return variableOf(s.env, name) }

func variableOf(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// number finds the first of some variables that is a number.
func (s *site) number(names ...string) (name string, n int, ok bool) {
	for _, name := range names {
		if n, err := strconv.Atoi(s.variable(name)); err == nil {
			return name, n, true
		}
	}
	return "", 0, false
}

// A process is one that runs on this host and that we may look at.
type process struct {
	pid, parent int
	name        string // as ps shows it
	env         []string
}

// maxProcesses bounds how many processes are looked at.
const maxProcesses = 1 << 14

// processes lists those whose variables we can read: ours.
func (s *site) processes() []process { return s.processesWith("") }

// processesWith lists those of them in whose variables a text stands.
func (s *site) processesWith(text string) []process {
	entries, _ := fs.ReadDir(s.root, "proc") // none can be listed
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := fs.ReadFile(s.root, path.Join("proc", e.Name(), "environ"))
		if err != nil || len(env) == 0 || !bytes.Contains(env, []byte(text)) {
			continue
		}
		p := process{pid: pid, env: strings.Split(string(env), "\x00")}
		p.name, p.parent = s.nameOf(pid)
		if found = append(found, p); len(found) == maxProcesses {
			break
		}
	}
	return found
}

// nameOf reads name and parent of a process: "12 (python) S 1 ...".
func (s *site) nameOf(pid int) (name string, parent int) {
	stat, _ := fs.ReadFile(s.root, fmt.Sprintf("proc/%d/stat", pid)) // it may have ended
	_, rest, _ := strings.Cut(string(stat), "(")
	i := strings.LastIndexByte(rest, ')')
	if i < 0 {
		return "?", 0
	}
	fields := strings.Fields(rest[i+1:])
	if len(fields) > 1 {
		parent, _ = strconv.Atoi(fields[1])
	}
	return rest[:i], parent
}

// threads lists the names of the threads of a process.
func (s *site) threads(pid int) []string {
	dir := fmt.Sprintf("proc/%d/task", pid)
	entries, _ := fs.ReadDir(s.root, dir)
	var names []string
	for _, e := range entries {
		if comm, err := fs.ReadFile(s.root, path.Join(dir, e.Name(), "comm")); err == nil {
			names = append(names, strings.TrimSpace(string(comm)))
		}
	}
	return names
}

// A socket is a TCP socket of this host.
type socket struct {
	local, remote netip.AddrPort
	state         string // 0A listens, 01 is connected
	inode         string
}

const (
	socketConnected = "01"
	socketListens   = "0A"
)

// sockets lists the TCP sockets that a process sees; pid may be "self".
func (s *site) sockets(pid string) []socket {
	var all []socket
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := s.root.Open(path.Join("proc", pid, "net", file))
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		lines.Scan() // the titles
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 {
				continue
			}
			k := socket{state: fields[3], inode: fields[9]}
			if k.local, err = parseSocket(fields[1]); err != nil {
				continue
			}
			if k.remote, err = parseSocket(fields[2]); err == nil {
				all = append(all, k)
			}
		}
		f.Close()
	}
	return all
}

// parseSocket reads an address of /proc/net/tcp: 32-bit words in the order of the machine, in hex,
// then the port: 0100007F:1F90.
func parseSocket(text string) (netip.AddrPort, error) {
	address, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil || len(address)%8 != 0 || len(address) > 32 {
		return netip.AddrPort{}, fmt.Errorf("socket address %q", text)
	}
	var b []byte
	for ; len(address) > 0; address = address[8:] {
		word, err := strconv.ParseUint(address[:8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, err
		}
		b = append(b, byte(word), byte(word>>8), byte(word>>16), byte(word>>24))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("socket address %q", text)
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(n)), nil
}

// holds says whether a process has one of some sockets open.
func (s *site) holds(pid int, sockets []socket) bool {
	dir := fmt.Sprintf("proc/%d/fd", pid)
	entries, _ := fs.ReadDir(s.root, dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		target, err := fs.ReadLink(s.root, path.Join(dir, e.Name()))
		if err != nil {
			return false
		}
		return slices.ContainsFunc(sockets, func(k socket) bool { return target == "socket:["+k.inode+"]" })
	})
}

// listeners are the sockets that listen on a port of this host.
func (s *site) listeners(port string) []socket {
	return slices.DeleteFunc(s.sockets("self"), func(k socket) bool {
		return k.state != socketListens || strconv.Itoa(int(k.local.Port())) != port
	})
}

// owner names the process that listens on a port, if we may know.
func (s *site) owner(port string) string {
	found := s.listeners(port)
	for _, p := range s.processes() {
		if s.holds(p.pid, found) {
			return fmt.Sprintf("%s (process %d)", cmp.Or(p.name, "?"), p.pid)
		}
	}
	return "a process that we may not look at"
}
