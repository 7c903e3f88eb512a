package proc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Process is a running process that has said its first line.
type Process struct {
	PID  int
	Line string // the first line of its stdout
	Log  Tail   // the end of what else it says

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process is gone
}

// patience bounds the wait for a first line; it is far beyond what any process needs.
const patience = 2 * time.Minute

// Start runs a command and returns when it has printed a line. The process is killed with this one.
func Start(ctx context.Context, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	p.cmd.Stderr = &p.Log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.PID = p.cmd.Process.Pid
	lines := make(chan string, 1)
	go p.watch(stdout, lines)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p.Line = <-lines:
		if p.Line != "" {
			return p, nil
		}
		err = fmt.Errorf("ended without a word, log:\n%s", p.Log.String())
	case <-timer.C:
		err = fmt.Errorf("nothing said after %v, log:\n%s", patience, p.Log.String())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.Kill()
	return nil, err
}

// watch passes on the first line, empty if there is none, and waits for the end.
func (p *Process) watch(stdout io.Reader, lines chan<- string) {
	defer close(p.ended)
	r := bufio.NewReader(stdout)
	line, _ := r.ReadString('\n')
	if line == "" {
		p.cmd.Wait() // the log is complete only now
		lines <- ""
		return
	}
	lines <- strings.TrimSpace(line)
	io.Copy(&p.Log, r)
	p.cmd.Wait()
}

// Kill ends the process at once, with SIGKILL, and waits until it is gone.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Ended is closed when the process is gone.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Address is the last word of the first line: where a server says that it serves.
func (p *Process) Address() (string, error) {
	i := strings.LastIndexByte(p.Line, ' ')
	if i < 0 {
		return "", fmt.Errorf("first line %q has no address, log:\n%s", p.Line, p.Log.String())
	}
	return p.Line[i+1:], nil
}

// Build compiles serry into a directory, with the flags of make build, and returns where it lies.
func Build(ctx context.Context, dir string) (string, error) {
	return BuildProgram(ctx, dir, "cmd/serry")
}

// BuildProgram builds the program in a folder of this module, and returns where it is.
func BuildProgram(ctx context.Context, dir, folder string) (string, error) {
	binary := filepath.Join(dir, filepath.Base(folder))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "github.com/serry-dev/serry/"+folder)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", folder, err, out)
	}
	return binary, nil
}

// A Tail keeps the end of what a process says.
type Tail struct {
	mu    sync.Mutex
	text  bytes.Buffer
	total int64
}

const tailBytes = 4 << 10

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total += int64(len(p))
	t.text.Write(p)
	if over := t.text.Len() - tailBytes; over > 0 {
		t.text.Next(over)
	}
	return len(p), nil
}

// String is what is kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// Total is how many bytes the process has said.
func (t *Tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}
