package launch

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/seldom"
	"github.com/serry-dev/serry/secure"
)

// This file checks what comes by the meeting before it is used (SEC-61). The meeting is plain text, so any
// process that reaches its address can write keys there. Numbers that are out of range must neither panic a
// launcher nor start or signal a process. What is dropped takes no number of its queue: the launcher that
// writes the queue does not know that another process has written into it, and its own value comes under the
// same number.

// errNonsense is the cause of every value that is dropped.
var errNonsense = errors.New("makes no sense")

func nonsense(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNonsense, fmt.Sprintf(format, args...))
}

// Limits on what one value may hold.
const (
	mostValueBytes = 64 << 20 // the report of the largest job fits
	mostTextBytes  = 4 << 10  // of a text that people read
	mostDevices    = 1 << 12  // of one host: ranks numbers the devices of a host within so many
	mostSignal     = 64
	mostExitCode   = 255
)

// Signals are those that a job passes on to its tasks on all hosts. The launchers of other hosts take no
// others but SIGKILL.
func Signals() []syscall.Signal {
	return []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

func passedOn(sig syscall.Signal) bool {
	return sig == syscall.SIGKILL || slices.Contains(Signals(), sig)
}

// helloNode reads the number of a launcher from the key of its hello. There is one way to write each number,
// so that no node has two keys.
func helloNode(key string, cfg Config) (int, error) {
	text := strings.TrimPrefix(key, helloPrefix)
	node, err := strconv.Atoi(text)
	if err != nil || strconv.Itoa(node) != text {
		return 0, nonsense("key %q names no node", cut(key))
	}
	if node < 1 || node >= cfg.nodes()+cfg.Spares {
		return 0, nonsense("node %d of %d", node, cfg.nodes()+cfg.Spares)
	}
	return node, nil
}

func (h *hello) check() error {
	if n := len(h.Identity.Devices); n > mostDevices {
		return nonsense("a host with %d devices", n)
	}
	h.Host = cut(h.Host)
	return nil
}

// check says what is wrong with a message of another launcher, if anything. Whether the life that it is about
// is the present one of its task is for the job to say, which knows the plan.
func (m *message) check(cfg Config) error {
	switch {
	case m.Raised != nil:
		return m.Raised.check(cfg)
	case m.Classed != nil:
		return m.Classed.check(cfg)
	case m.Strayed != nil:
		return m.Strayed.check(cfg)
	case m.Died != nil:
		return m.Died.check(cfg)
	case m.Left != nil:
		m.Left.Last, m.Left.Err = cutLines(m.Left.Last), cut(m.Left.Err)
		return m.Left.lifetime.check(cfg)
	case m.Retiring != 0 && !(signalled{m.Retiring}).ends():
		return nonsense("a host that ends by signal %d", m.Retiring)
	}
	return nil
}

func (r *raised) check(cfg Config) error {
	if r.After < 0 {
		return nonsense("rank %d ran for %v", r.Task, r.After)
	}
	r.Text = r.Text[:min(len(r.Text), tailLineSize)]
	return r.lifetime.check(cfg)
}

func (c *classed) check(cfg Config) error {
	if c.Age < 0 || c.PID < 0 {
		return nonsense("rank %d does the same for %v", c.Task, c.Age)
	}
	c.Host = cut(c.Host)
	if p := c.Condition.Pressure; min(p.Memory, p.CPU, p.IO) < 0 || p.Worst() > 100 {
		return nonsense("rank %d waits for its host %d %% of the time", c.Task, p.Worst())
	}
	is := &c.Condition
	is.Class, is.At, is.Doing, is.Wait = diagnose.Class(cut(string(is.Class))), cut(is.At), cut(is.Doing), cut(is.Wait)
	is.File, is.Phase = cut(is.File), cut(is.Phase)
	runs := &c.Program
	runs.Name, runs.Sum, runs.Ranks, runs.By = cut(runs.Name), cut(runs.Sum), cut(runs.Ranks), cut(runs.By)
	return c.lifetime.check(cfg)
}

func (s *strayed) check(cfg Config) error {
	s.Host = cut(s.Host)
	if s.PID < 0 {
		return nonsense("process %d", s.PID)
	}
	return lifetime{Task: s.Task, Attempt: s.Attempt, Life: 1}.check(cfg)
}

func (d *died) check(cfg Config) error {
	if d.After < 0 {
		return nonsense("rank %d ran for %v", d.Task, d.After)
	}
	for _, task := range d.Also {
		if task < 0 || task >= cfg.total() {
			return nonsense("rank %d of %d", task, cfg.total())
		}
	}
	return errors.Join(d.lifetime.check(cfg), d.Cause.check())
}

func (l lifetime) check(cfg Config) error {
	switch {
	case l.Task < 0 || l.Task >= cfg.total():
		return nonsense("rank %d of %d", l.Task, cfg.total())
	case l.Attempt < 1 || l.Life < 1:
		return nonsense("attempt %d and life %d of rank %d", l.Attempt, l.Life, l.Task)
	}
	return nil
}

// check cuts the text of a cause. A code beyond that of a process would reach the exit code of the launcher,
// where the kernel keeps its last eight bits: 256 would read as success.
func (c *Cause) check() error {
	if c.Code < 0 || c.Code > mostExitCode || c.Signal < 0 || c.Signal > mostSignal {
		return nonsense("exit code %d and signal %d", c.Code, c.Signal)
	}
	c.Text = cut(c.Text)
	c.Count.check()
	return nil
}

// check says what is wrong with an order of the first launcher, if anything.
func (o *order) check(cfg Config) error {
	o.Err = cut(o.Err)
	switch {
	case o.Start != nil && !o.Start.valid(cfg):
		return nonsense("to start rank %d of %d, attempt %d", o.Start.Task, o.Start.Tasks, o.Start.Attempt)
	case o.Start != nil && len(o.Secret) > 0 && secure.Secret(o.Secret).Check() != nil: // an older launcher has none
		return nonsense("to start rank %d with a secret of %d bytes", o.Start.Task, len(o.Secret))
	case o.Start != nil:
		return checkAddress(o.Address, cfg)
	case o.Fail != nil:
		o.Fail.Why = cut(o.Fail.Why)
		return o.Fail.lifetime.check(cfg)
	case o.Signal != 0 && !passedOn(o.Signal), o.End && o.Signal == 0:
		return nonsense("to send signal %d", o.Signal)
	case o.Over != nil:
		return o.Over.check(cfg)
	case len(o.Tell) > mostTell:
		return nonsense("to tell of %d details", len(o.Tell))
	}
	return nil
}

// checkAddress says what is wrong with the address of the service that comes with an order to start a task.
// The service of an attempt is on the host of the meeting, and tasks of a service that others run reach it by
// the relay of their own host. An address elsewhere would hand the tasks to another coordinator.
func checkAddress(address string, cfg Config) error {
	if cfg.external() {
		if address != "" {
			return nonsense("a service on %q: this job has relays to one of its own", cut(address))
		}
		return nil
	}
	meeting, _, _ := net.SplitHostPort(cfg.Coordinator) // it is well formed
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 1 || n > 1<<16-1 || host != meeting {
		return nonsense("a service on %q: it must be on %s", cut(address), meeting)
	}
	return nil
}

// check says what is wrong with the report of a job that the first launcher has sent.
func (r *Report) check(cfg Config) error {
	if r.Tasks < 0 || r.Ended < 0 || r.Ended > r.Tasks || r.Attempts < 0 || r.Restarts < 0 || r.Took < 0 {
		return nonsense("%d of %d ranks, attempt %d", r.Ended, r.Tasks, r.Attempts)
	}
	if r.Interrupted < 0 || r.Interrupted > mostSignal {
		return nonsense("a job that ended by signal %d", r.Interrupted)
	}
	all := r.Later
	if r.First != nil {
		all = append([]*Failure{r.First}, all...)
	}
	for _, f := range all {
		if f == nil {
			return nonsense("a failure without a rank")
		}
		if err := f.check(cfg); err != nil {
			return err
		}
	}
	return nil
}

func (f *Failure) check(cfg Config) error {
	f.Verdict, f.Last = cut(f.Verdict), cutLines(f.Last)
	if f.Cause.Well() && f.Verdict == "" {
		return nonsense("a failure of rank %d that ended well", f.Task)
	}
	l := lifetime{f.Task, f.Attempt, f.Life}
	return errors.Join(l.check(cfg), f.Cause.check())
}

// cut limits a text that people read.
func cut(text string) string {
	if len(text) > mostTextBytes {
		return strings.ToValidUTF8(text[:mostTextBytes], "") + "..."
	}
	return text
}

// cutLines limits the last lines of a task to what a launcher keeps of one of its own.
func cutLines(lines []string) []string {
	lines = lines[max(0, len(lines)-tailLines):]
	for i, line := range lines {
		lines[i] = cut(line)
	}
	return lines
}

// nonsenseNotes limits the notes about what was dropped: a process that floods a launcher with values must not
// flood its terminal.
type nonsenseNotes struct {
	feed   *feed
	picked seldom.Limit[string]
}

func newNonsenseNotes(f *feed) *nonsenseNotes {
	return &nonsenseNotes{feed: f, picked: seldom.Limit[string]{Period: 10 * time.Second, Most: 5}}
}

// drop tells that a value was dropped. Its owner is the goroutine that reads the values.
func (n *nonsenseNotes) drop(what string, err error) {
	n.warn(fmt.Sprintf("%s was dropped: %v", what, err))
}

// warn tells something that any process at the meeting can cause.
func (n *nonsenseNotes) warn(text string) {
	if n.picked.Pick(text) {
		n.feed.note(Note{Warning: true, Text: text})
	}
}
