package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A guard is our end of the process that cleans up should we be killed.
type guard struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *queue[string] // what the guard has not been told yet
	done chan struct{}  // closed when it has been told everything
	gone chan struct{}  // closed when its process has ended; nil: there is none
}

// guardBacklog is how many words a guard may leave unread. One that is stopped reads none; no task waits
// for it.
const guardBacklog = 1 << 16

// startGuard starts a guard by a command that calls [Guard]. It has a session of its own, so that what
// is sent to our group or terminal does not reach it. Without a command there is none.
func startGuard(command []string, run string) (*guard, error) {
	if len(command) == 0 {
		return &guard{}, nil
	}
	g := &guard{said: newQueue[string](guardBacklog), done: make(chan struct{}), gone: make(chan struct{}), cmd: &exec.Cmd{
		Path: command[0], Args: append([]string{GuardName}, command[1:]...), Dir: "/",
		Env:         merge(os.Environ(), map[string]string{guardRun: run}, []string{EnvRun}), // it is none of those it kills
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}}
	var err error
	if g.in, err = g.cmd.StdinPipe(); err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	go g.speak()
	go func() {
		defer close(g.gone)
		_ = g.cmd.Wait() // however it ended
	}()
	return g, nil
}

// speak tells the guard what there is to tell. Errors do not matter while we live.
func (g *guard) speak() {
	defer close(g.done)
	for {
		word, ok := g.said.next(nil)
		if !ok {
			return
		}
		_, _ = io.WriteString(g.in, word+"\n")
	}
}

// watch adds a process group to those that the guard kills, forget takes it off.
func (g *guard) watch(pgid int)  { g.tell("+ " + strconv.Itoa(pgid)) }
func (g *guard) forget(pgid int) { g.tell("- " + strconv.Itoa(pgid)) }

// keep adds a file, or a folder, to those that the guard removes, drop takes it off.
func (g *guard) keep(path string) { g.tell("f " + strconv.Quote(path)) }
func (g *guard) drop(path string) { g.tell("d " + strconv.Quote(path)) }

func (g *guard) tell(word string) {
	if g.in != nil {
		g.said.put(word)
	}
}

// pid is the number of the guard process, or 0 if there is none.
func (g *guard) pid() int {
	if g.cmd == nil {
		return 0
	}
	return g.cmd.Process.Pid
}

// dismissPatience is how long a guard may take to end.
const dismissPatience = 2 * time.Second

// dismiss ends the guard when there is nothing left to guard. One that does not listen is killed: it
// would take our end for a death.
func (g *guard) dismiss() {
	if g.in == nil {
		return
	}
	g.said.put("done")
	g.said.close()
	timer := time.AfterFunc(dismissPatience, func() { _ = g.cmd.Process.Kill() })
	defer timer.Stop()
	<-g.done
	g.in.Close()
	<-g.gone
}

// GuardName is what a guard is called in lists of processes. It is not the name of the launcher, so
// that who kills all processes of that name does not kill the guard with them.
const GuardName = "job-guard"

// guardRun is where a guard finds the run it belongs to.
const guardRun = "SERRY_GUARD_OF"

// Guard is what the guard process of a job runs: it reads on stdin what the launcher tells it, and
// should that end without a last word, because the launcher was killed, it kills every process that
// the job has left. [Config.Guard] is the command that calls it.
func Guard() error {
	run := os.Getenv(guardRun)
	if run == "" {
		return errors.New("guard: it is started by a launcher, not by hand")
	}
	// A signal that is to end the launcher is not meant for the guard.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	_ = os.WriteFile("/proc/self/comm", []byte(GuardName), 0) // it is only a name
	left, done := hearOut(os.Stdin)
	if done {
		return nil
	}
	for pgid := range left.groups {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // it may have ended
	}
	for path := range left.files {
		_ = os.RemoveAll(path) // it may never have been written; the shim is a folder
	}
	_, err := mark{EnvRun + "=" + run}.sweep(0, nil)
	return err
}

// leftovers are what a killed launcher has left for its guard.
type leftovers struct {
	groups map[int]bool    // of processes
	files  map[string]bool // with secrets, and folders
}

// hearOut reads what a launcher has to say to its guard, and returns what is left. It is done when the
// launcher has said so.
func hearOut(in io.Reader) (left leftovers, done bool) {
	left = leftovers{make(map[int]bool), make(map[string]bool)}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		line := lines.Text()
		if line == "done" {
			return leftovers{}, true
		}
		left.take(line)
	}
	return left, false
}

// take does what one line says.
func (l leftovers) take(line string) {
	verb, what, _ := strings.Cut(line, " ")
	pgid, noGroup := strconv.Atoi(what)
	path, noPath := strconv.Unquote(what)
	switch {
	case verb == "+" && noGroup == nil && pgid > 1:
		l.groups[pgid] = true
	case verb == "-" && noGroup == nil:
		delete(l.groups, pgid)
	case verb == "f" && noPath == nil:
		l.files[path] = true
	case verb == "d" && noPath == nil:
		delete(l.files, path)
	}
}
