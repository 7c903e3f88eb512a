package launch

import (
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/detect"
)

// A Cause is how a process ended.
type Cause struct {
	Code   int            `json:"code"`             // its exit code, where no signal ended it; with Text that of a shell
	Signal syscall.Signal `json:"signal,omitempty"` // that ended it, or 0
	Memory bool           `json:"memory,omitempty"` // the kernel killed it because memory ran out
	Count  MemoryCount    `json:"count,omitzero"`   // what the kernel says of that, where a kill ended it
	Text   string         `json:"text,omitempty"`   // instead of all that: why it never ran, or was given up
}

// Well says whether the process did what it was meant to do.
func (c Cause) Well() bool { return c == Cause{} }

// String says it in a few words.
func (c Cause) String() string {
	switch {
	case c.Text != "":
		return c.Text
	case c.Memory && c.Signal != 0:
		return fmt.Sprintf("signal %d, %s", c.Signal, c.Count.words())
	case c.Memory:
		return fmt.Sprintf("exit code %d, %s", c.Code, c.Count.words())
	case c.Signal != 0:
		return fmt.Sprintf("signal %d", c.Signal)
	}
	return fmt.Sprintf("exit code %d", c.Code)
}

// evidence is what the service tells the other tasks, which begins "process exited:" (C-LOST-3). What was counted follows, for
// package diagnose to show. Of a process that was told to end it says so: it is no first failure (D-RC-3).
func (c Cause) evidence(told bool) string {
	text := strings.TrimPrefix(c.String(), "exit ")
	if told {
		text += detect.ToldToEnd
	}
	if detail := c.Count.detail(); detail != "" {
		text += "; " + detail
	}
	return text
}

// byKill says whether the process was killed by a signal that no process can catch, or ended as a shell does whose command was.
func (c Cause) byKill() bool {
	return c.Text == "" && (c.Signal == syscall.SIGKILL || c.Code == signalBase+int(syscall.SIGKILL))
}

// name adds what a signal is called, for people.
func (c Cause) name() string {
	if c.Text != "" || c.Memory || c.Signal == 0 {
		return c.String()
	}
	return fmt.Sprintf("%v (%s)", c, strings.TrimPrefix(unix.SignalName(c.Signal), "SIG"))
}

// signalBase is what a shell adds to the number of the signal that ended a command.
const signalBase = 128

// ExitCode is the exit code by which a launcher passes the cause on.
func (c Cause) ExitCode() int {
	switch {
	case c.Text != "":
		return max(1, c.Code)
	case c.Signal != 0:
		return signalBase + int(c.Signal)
	}
	return c.Code
}

// cutShort is the cause of a task that ended with exit code 0 when its host was told to end.
func cutShort(sig syscall.Signal) Cause {
	return Cause{Text: fmt.Sprintf("exit code 0 when its host was told to end by signal %d", sig), Code: signalBase + int(sig)}
}
