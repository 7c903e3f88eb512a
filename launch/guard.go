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
)

// A guard is our end of the process that cleans up should we be killed.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startGuard starts a guard by a command that calls [Guard]. It has a session of its own, so that what
// is sent to our group or terminal does not reach it. Without a command there is none.
func startGuard(command []string, run string) (*guard, error) {
	if len(command) == 0 {
		return &guard{}, nil
	}
	g := &guard{cmd: &exec.Cmd{
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
	return g, nil
}

// watch adds a process group to those that the guard kills, forget takes it off. Errors do not matter
// while we live.
func (g *guard) watch(pgid int)  { g.tell("+", pgid) }
func (g *guard) forget(pgid int) { g.tell("-", pgid) }

func (g *guard) tell(sign string, pgid int) {
	if g.in != nil {
		_, _ = io.WriteString(g.in, sign+" "+strconv.Itoa(pgid)+"\n")
	}
}

// pid is the number of the guard process, or 0 if there is none.
func (g *guard) pid() int {
	if g.cmd == nil {
		return 0
	}
	return g.cmd.Process.Pid
}

// dismiss ends the guard when there is nothing left to guard.
func (g *guard) dismiss() {
	if g.in == nil {
		return
	}
	_, _ = io.WriteString(g.in, "done\n")
	g.in.Close()
	_ = g.cmd.Wait()
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
	// Whoever ends the launcher does not mean us.
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	_ = os.WriteFile("/proc/self/comm", []byte(GuardName), 0) // it is only a name
	groups, done := hearOut(os.Stdin)
	if done {
		return nil
	}
	for pgid := range groups {
		_ = syscall.Kill(-pgid, syscall.SIGKILL) // it may have ended
	}
	_, err := mark{EnvRun + "=" + run}.sweep(0)
	return err
}

// hearOut reads what a launcher has to say to its guard, and returns the groups that are left. It is
// done when the launcher has said so.
func hearOut(in io.Reader) (groups map[int]bool, done bool) {
	groups = make(map[int]bool)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		line := lines.Text()
		if line == "done" {
			return nil, true
		}
		sign, number, _ := strings.Cut(line, " ")
		if pgid, err := strconv.Atoi(number); err != nil || pgid <= 1 {
			continue
		} else if sign == "+" {
			groups[pgid] = true
		} else {
			delete(groups, pgid)
		}
	}
	return groups, false
}
