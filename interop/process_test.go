package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait of a test for a process. It is no assertion: only
// a test that fails anyway ever waits so long.
const patience = 5 * time.Minute

// A process is a child of a test: a server or a Python program. It and all it
// started are gone when the test ends.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser

	lines  chan string   // what it says to us, closed at the end of stdout
	stderr tail          // and everything else it says
	ended  chan struct{} // closed when cmd.Wait returned
}

// mark begins the lines on stdout that are meant for the test. Libraries print
// there as well, Gloo for one.
const mark = "serry: "

// start runs a command in a process group of its own.
func start(t *testing.T, name string, env []string, command ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, lines: make(chan string, 64), ended: make(chan struct{})}
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env = env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go p.read(t.Context(), stdout)
	t.Cleanup(p.clear)
	return p
}

// read passes marked lines on until stdout ends, then takes the exit status.
// Once the test is over nobody listens, and the rest is dropped.
func (p *process) read(ctx context.Context, stdout io.Reader) {
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		line, ok := strings.CutPrefix(scanner.Text(), mark)
		if !ok {
			fmt.Fprintln(&p.stderr, scanner.Text())
			continue
		}
		select {
		case p.lines <- line:
		case <-ctx.Done():
		}
	}
	close(p.lines)
	p.cmd.Wait() // the status is read from ProcessState
	close(p.ended)
}

func (p *process) clear() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // no such group: it ended by itself
	<-p.ended
	if p.t.Failed() {
		words := p.stderr.String()
		p.t.Logf("%s: %v, last words:\n%s", p.name, p.cmd.ProcessState, words[max(0, len(words)-4096):])
	}
}

// next returns the next line for us; not ok if the process ended instead.
func (p *process) next() (line string, ok bool) {
	p.t.Helper()
	select {
	case line, ok = <-p.lines:
	case <-time.After(patience):
		p.t.Fatalf("%s: no line after %v", p.name, patience)
	}
	return line, ok
}

// line returns the next line for us.
func (p *process) line() string {
	p.t.Helper()
	line, ok := p.next()
	if !ok {
		<-p.ended
		p.t.Fatalf("%s: ended (%v); want another line", p.name, p.cmd.ProcessState)
	}
	return line
}

// expect takes the next line and holds it to want.
func (p *process) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("%s: printed %q; want %q", p.name, got, want)
	}
}

// tell writes one line to stdin.
func (p *process) tell(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("%s: tell %q: %v", p.name, line, err)
	}
}

// signal sends sig to the process alone, not to its group.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("%s: signal %v: %v", p.name, sig, err)
	}
}

// kill ends the process as a crash does, and returns when it is gone.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// wait returns the status of the process when it has ended.
func (p *process) wait() syscall.WaitStatus {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("%s: runs on after %v; want its end", p.name, patience)
	}
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// leaves ends the input of the process and waits for it to end well.
func (p *process) leaves() {
	p.t.Helper()
	p.stdin.Close()
	if status := p.wait(); status.ExitStatus() != 0 {
		p.t.Fatalf("%s: %v; want exit status 0", p.name, p.cmd.ProcessState)
	}
}

// aborts waits for the process to die in the way jax ends a client that has
// lost its job (A-DIE-1: by signal, before jaxlib 0.9.2 with exit status 1),
// with all the given words in what it said.
func (p *process) aborts(words ...string) {
	p.t.Helper()
	status, said := p.wait(), p.stderr.String()
	byExit := status.ExitStatus() == 1 && contains(said, "Terminating process because the JAX distributed service detected fatal errors")
	if status.Signal() != syscall.SIGABRT && !byExit {
		p.t.Fatalf("%s: %v; want signal: aborted", p.name, p.cmd.ProcessState)
	}
	if !contains(said, words...) {
		p.t.Errorf("%s: last words lack some of %q", p.name, words)
	}
}

// contains reports whether every one of words is in text.
func contains(text string, words ...string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// quiet fails the test if the process has said something, or ended.
func (p *process) quiet() {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		p.t.Fatalf("%s: printed %q (still running: %v); want nothing yet", p.name, line, ok)
	default:
	}
}

// A group is processes that a test treats alike.
type group []*process

// all tells every process the same and expects the same of each.
func (g group) all(line, want string) {
	for _, p := range g {
		p.t.Helper()
		p.tell(line)
	}
	g.expect(want)
}

// expect takes the next line of every process and holds it to want.
func (g group) expect(want string) {
	for _, p := range g {
		p.t.Helper()
		p.expect(want)
	}
}

// leaves ends the input of all processes and waits for each to end well.
func (g group) leaves() {
	for _, p := range g {
		p.t.Helper()
		p.stdin.Close()
	}
	for _, p := range g {
		p.leaves()
	}
}

// without returns the group less its i-th process.
func (g group) without(i int) group {
	return slices.Delete(slices.Clone(g), i, i+1)
}

// A tail is a writer that remembers the last tailBytes of what it was given.
type tail struct {
	mu struct {
		sync.Mutex
		text  []byte
		grown chan<- struct{} // or nil; gets a value when there is more text
	}
}

const tailBytes = 64 << 10

func (w *tail) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.text = append(w.mu.text, b...)
	if over := len(w.mu.text) - tailBytes; over > 0 {
		w.mu.text = append(w.mu.text[:0], w.mu.text[over:]...)
	}
	select {
	case w.mu.grown <- struct{}{}:
	default: // nobody waits, or it has been told
	}
	return len(b), nil
}

// notify returns the text so far, and lets grown know when there is more. It
// must have room for one value.
func (w *tail) notify(grown chan<- struct{}) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.grown = grown
	return string(w.mu.text)
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.mu.text)
}

// environment is what every child gets: enough to find things, nothing that
// jax, TensorFlow or gRPC read on their own account.
func environment(more ...string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"),
		"JAX_PLATFORMS=cpu",
		"TF_CPP_MIN_LOG_LEVEL=1",
	}
	return append(env, more...)
}
