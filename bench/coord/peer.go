package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A peer is one of the services compared. Its command prints a line that ends with the address it
// serves on; given an identity, it serves mutual TLS.
type peer struct {
	name      string
	transport string // of serry, or empty
	metrics   string // Unix socket of its metrics page, or empty
	command   func(l layout) []string
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

// twinName is serry with grpc-go.
const twinName = "serry grpc"

//go:embed stock.py
var stockScript string

// stock is the service of jaxlib, run by the given Python.
func stock(python string) (peer, error) {
	if _, err := os.Stat(python); errors.Is(err, fs.ErrNotExist) {
		return peer{}, fmt.Errorf("%s is not there: run scripts/venvs.sh jax-new", python)
	} else if err != nil {
		return peer{}, err
	}
	return peer{name: stockName, command: func(l layout) []string {
		args := []string{python, "-c", stockScript, l.host(), strconv.Itoa(l.tasks)}
		if id := l.identity; id != nil {
			args = append(args, id.cert, id.key)
		}
		return args
	}}, nil
}

// ours is serry with one of its transports. Its metrics are served in a directory.
func ours(binary, transport, dir string) peer {
	socket := filepath.Join(dir, transport)
	return peer{name: "serry " + transport, transport: transport, metrics: socket, command: func(l layout) []string {
		os.Remove(socket) // left by the last server, which was killed
		args := []string{binary, "serve", "--tasks", strconv.Itoa(l.tasks), "--listen", l.host() + ":0",
			"--transport", transport, "--heartbeat-timeout", "1h", "--metrics-listen", "unix:" + socket}
		if id := l.identity; id != nil {
			args = append(args, "--tls-cert", id.cert, "--tls-key", id.key, "--tls-ca", id.cert)
		}
		return args
	}}
}

// buildSerry compiles the server and returns where it lies.
func buildSerry(ctx context.Context, dir string) (string, error) {
	binary := dir + "/serry"
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/serry-dev/serry/cmd/serry")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build serry: %w\n%s", err, out)
	}
	return binary, nil
}

// A server is a running peer.
type server struct {
	addr    string
	metrics string // Unix socket, or empty
	pid     int
	cmd     *exec.Cmd
	log     tail
	ended   chan struct{} // closed when the process is gone
}

// patience bounds the waits for a server; it is far beyond what any of them needs.
const patience = 2 * time.Minute

// start runs a peer for a number of tasks and returns when it serves.
func (p peer) start(ctx context.Context, l layout) (*server, error) {
	args := p.command(l)
	s := &server{metrics: p.metrics, cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	s.cmd.Stderr = &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdout, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	s.pid = s.cmd.Process.Pid
	lines := make(chan string, 1)
	go s.watch(stdout, lines)
	select {
	case line := <-lines:
		if i := strings.LastIndexByte(line, ' '); i > 0 {
			s.addr = line[i+1:]
			return s, nil
		}
		err = fmt.Errorf("%s for %d tasks did not start: first line %q, log:\n%s", p.name, l.tasks, line, s.log.String())
	case <-time.After(patience):
		err = fmt.Errorf("%s for %d tasks does not serve after %v, log:\n%s", p.name, l.tasks, patience, s.log.String())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.stop()
	return nil, err
}

// watch passes on the first line, empty if there is none, and waits for the end.
func (s *server) watch(stdout io.Reader, lines chan<- string) {
	defer close(s.ended)
	r := bufio.NewReader(stdout)
	line, _ := r.ReadString('\n')
	if line == "" {
		s.cmd.Wait() // the log is complete only now
		lines <- ""
		return
	}
	lines <- strings.TrimSpace(line)
	io.Copy(&s.log, r)
	s.cmd.Wait()
}

// stop ends the server at once: nothing it would still do is measured.
func (s *server) stop() {
	s.cmd.Process.Kill() // fails only if it has ended
	<-s.ended
}

// A tail keeps the end of what a server says.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

const tailBytes = 1 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Write(p)
	if over := t.text.Len() - tailBytes; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}
