package launch

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// The numbers of processes that have ended are given to others. With few numbers this happens all the time:
// a task that is started gets the number that another one has just given back. No signal and no wait that was
// meant for the one may reach the other.
func TestReusedNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a thousand processes")
	}
	if os.Getuid() != 0 {
		t.Skip("a namespace of processes needs root")
	}
	cmd := exec.Command(itself[0])
	cmd.Env = append(os.Environ(), mode+"=small")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if text := string(out); strings.HasPrefix(text, "cannot: ") {
		t.Skip(text)
	} else if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// fewNumbers is how many processes a small machine can have at a time, beside 300 that its kernel keeps back.
const fewNumbers = 26

// beSmall runs a job of which one task stays and seven fail again and again, on a machine with few numbers.
func beSmall() int {
	if err := shrink(); err != nil {
		fmt.Println("cannot:", err) // only a kernel that has this limit for each namespace
		return 0
	}
	const restarts = 1000
	// A task that fails leaves another process of its group behind.
	script := fmt.Sprintf(`if test $SERRY_TASK = 0; then trap "exit 0" USR1; while :; do sleep 0.1; done; fi; sleep 0.01 & exit %d`, failsWith)
	d := &endings{}
	j, err := Start(Config{
		Command: []string{"sh", "-c", script}, Tasks: 8, Guard: itself, Reap: true, Display: d,
		Restart: RestartFailed, MaxRestarts: restarts, Env: []string{"PATH=" + os.Getenv("PATH")},
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	r := j.Wait()
	want := Cause{Code: failsWith}
	if r.First == nil || r.First.Task == 0 || r.First.Cause != want || r.Restarts != restarts || d.odd != "" {
		fmt.Printf("%+v after %d restarts, %v; %s\n", r.First, r.Restarts, r.Err, d.odd)
		return 1
	}
	return 0
}

// failsWith is the exit code of tasks that fail.
const failsWith = 3

// shrink gives this machine few numbers.
func shrink() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if own, err := os.Readlink("/proc/self"); err != nil || own != "1" {
		return fmt.Errorf("this process is number %s, %v", own, err)
	}
	return os.WriteFile("/proc/sys/kernel/pid_max", fmt.Append(nil, 300+fewNumbers), 0)
}

// endings is a display that looks for tasks which ended in a way that they do not.
type endings struct{ odd string }

func (*endings) Line(int, Stream, []byte) {}

func (e *endings) Note(n Note) {
	if strings.Contains(n.Text, " ended: ") && !strings.Contains(n.Text, fmt.Sprintf("ended: exit code %d;", failsWith)) {
		e.odd = n.Text
	}
}
