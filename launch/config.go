package launch

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/relay"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

// Config describes a job. Command and Tasks must be given. What is zero has the default in brackets.
type Config struct {
	Command []string // what every task runs, with its arguments
	Dir     string   // where (here)
	Env     []string // what every task gets beside the variables of this package (our own environment)
	Tasks   int      // on this host

	// A job on several hosts has a launcher on each, all with the same Config but for Node. The one
	// with number 0 leads; Nodes to Nodes+Spares-1 wait to take the place of a host that is lost.
	Nodes       int    // how many hosts (1)
	Node        int    // number of this one
	Spares      int    // hosts beyond Nodes
	Coordinator string // host:port where launchers meet: on host 0, as all others reach it

	// Job is a name that all launchers of this job have, and those of other jobs have not. A launcher with another name
	// is not let in, so that a job which comes to the same address by mistake changes nothing (DLV-21). (Command)
	Job string

	Restart     Restart // (RestartNever)
	MaxRestarts int     // in the whole job; a new attempt counts as one
	Recoverable bool    // tasks may fail and come back while the others go on; RestartFailed implies it

	// IgnoreTracebacks lets a task that has printed a Python exception and then wants to leave wait for the
	// others, as any task does. Otherwise it has failed at once.
	IgnoreTracebacks bool

	OnHang    OnHang        // what to do when ranks are stuck (HangReport)
	HangAfter time.Duration // how long ranks that keep the others waiting may stand still (by what is usual for the job)
	NoStacks  bool          // do not look at the processes of tasks: then no hang is found

	// NoShim leaves alone what Python runs at its start. Otherwise Python programs write their stacks when StackSignal comes
	// (pystack.DumpSignal), for commands that are told to ask in that way. With NoStacks they do not either.
	NoShim      bool
	StackSignal int

	Grace time.Duration // between asking a task to end and killing it (10 s); negative: none

	// SchedulerKills says that SIGTERM comes from a scheduler, which kills what has not ended in the time that it
	// gives. Tasks that are told to end by it have that time and not Grace: a launcher that knows less than the
	// scheduler must not cut short a task that saves its work (DLV-26).
	SchedulerKills bool

	LogDir string // where to write everything that tasks say, one file each (nowhere)
	// StateDir is where to keep which task was on which machine. With it a host gets the tasks of the
	// last run back, whatever its number is now. Only host 0 uses it; where another one may be host 0
	// next time, it is on a disk that they share. (Nowhere: hosts have the tasks of their number.)
	StateDir string
	Wall     func() time.Time // what the clock on the wall of this host shows; nil: what the system says
	Identity *topo.TaskRecord // what this host is (client.Identify)

	Devices []int // accelerators of this host for its tasks to share (all)
	NoMPI   bool  // leave out the Open MPI variables, for programs that use a real one

	Service server.Config // settings of the service of each attempt; the jobs are filled in

	// Listen is the address of the services of all attempts, host:port, on host 0 (an address of its own for each
	// attempt). Processes of a former attempt have been ended when the next one begins, but on a host that is cut
	// off one may be left that knows this address.
	Listen string

	// Relay says where a service is that others run, for this number of tasks: each host then has a
	// relay to it, and Service only says what tasks should know of it. Without an upstream the job has
	// a service of its own, as Service says.
	Relay relay.Config

	// Reap lets a job reap every child of this process that ends: those that tasks leave behind become
	// children of the launcher. It is for programs that start no processes of their own.
	Reap bool

	planted planted    // fault for the tests to find
	port    *fixedPort // that listens on Listen; or nil

	Guard     []string  // command that runs [Guard]; without one a killed launcher may leave processes behind
	Display   Display   // shows people what happens (none)
	Directory Directory // is told where the service of each attempt is (none)
}

// planted is a fault that is put in on purpose: a test of whole fleets that does not find it is worth
// nothing.
type planted int

const (
	chargeEachTask  planted = iota + 1 // of a host that is lost
	notesInline                        // the loop writes its notes itself
	attemptsOverlap                    // an attempt begins when its first task is gone
	startAfterEnd                      // a follower that was told to end starts tasks
	lastIsFirst                        // the last failure is named first
	cutShortIsWell                     // a task that ends well because its host was told to end has done its work
	oneSecret                          // all attempts have the same secret
	unseenHello                        // a launcher is let in without a look at whether it is still there
	tracebackFails                     // a task that prints an exception has failed, though it goes on
)

// A Display shows people what a job does. Its methods are called one at a time and must not keep the
// bytes they get. They may block, to the cost of what is shown: see docs/OPERATING.md.
type Display interface {
	Line(task int, stream Stream, text []byte) // what a task wrote
	Note(Note)                                 // what the launcher has to say
}

// A Directory notes where the service of a job can be asked, for programs that look for it.
type Directory interface {
	// Serves is called for each attempt before the first task of it begins on this host, once at a time. Several addresses
	// have commas between them. It may block, and the task waits for it.
	Serves(address string, attempt int)

	// Closes is called on the first host when no task runs any more, and the service of the last attempt still answers. It may
	// block, and the end of the job waits for it.
	Closes()
}

// list notes where the service of an attempt can be asked: at the address that tasks are told, or, where others run it and
// tasks have a relay, at its own.
func (c Config) list(address string, attempt int) {
	if c.external() {
		address = strings.Join(c.Relay.Upstream, ",")
	}
	if c.Directory != nil {
		c.Directory.Serves(address, attempt)
	}
}

// A Note is something that happened to the job.
type Note struct {
	Warning bool
	Text    string
}

const (
	defaultGrace    = 10 * time.Second
	defaultPatience = time.Hour // for tasks and hosts that have not come yet
)

func (c Config) withDefaults() Config {
	c.Restart = cmp.Or(c.Restart, RestartNever)
	c.Recoverable = c.Recoverable || c.Restart == RestartFailed
	c.OnHang = cmp.Or(c.OnHang, HangReport)
	c.Grace = max(0, cmp.Or(c.Grace, defaultGrace))
	c.Env = baseEnvironment(c.Env)
	if c.Display == nil {
		c.Display = noDisplay{}
	}
	c.Service.Cluster.Recoverable = c.Recoverable
	c.Service.Cluster.RegisterTimeout = cmp.Or(c.Service.Cluster.RegisterTimeout, defaultPatience)
	c.Service.Cluster.HeartbeatTimeout = cmp.Or(c.Service.Cluster.HeartbeatTimeout, server.DefaultHeartbeatTimeout)
	return c
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	switch {
	case len(c.Command) == 0:
		return errors.New("no command to run")
	case c.Tasks < 1 || c.Tasks > coord.MaxTasks:
		return fmt.Errorf("%d ranks: want 1 to %d", c.Tasks, coord.MaxTasks)
	case !slices.Contains([]Restart{"", RestartNever, RestartFailed, RestartAll}, c.Restart):
		return fmt.Errorf("restart policy %q: want %s, %s or %s", c.Restart, RestartNever, RestartFailed, RestartAll)
	case !slices.Contains([]OnHang{"", HangReport, HangAbort, HangRestart}, c.OnHang):
		return fmt.Errorf("after a hang %q: want %s, %s or %s", c.OnHang, HangReport, HangAbort, HangRestart)
	case c.OnHang == HangRestart && (c.Restart == "" || c.Restart == RestartNever):
		return fmt.Errorf("a job that restarts after a hang needs a restart policy: %s or %s", RestartFailed, RestartAll)
	case c.HangAfter < 0:
		return fmt.Errorf("a hang after %v: want 0 or more", c.HangAfter)
	case c.MaxRestarts < 0:
		return fmt.Errorf("%d restarts: want 0 or more", c.MaxRestarts)
	case c.Listen != "" && c.external():
		return errors.New("a job that uses a service that runs elsewhere has none that could listen")
	}
	return c.validateNodes()
}

func (c Config) validateNodes() error {
	switch host, port, err := net.SplitHostPort(c.Coordinator); {
	case c.Nodes < 0 || c.Spares < 0 || c.nodes()+c.Spares > coord.MaxTasks:
		return fmt.Errorf("%d nodes and %d spares: want 0 or more, and not more than %d", c.Nodes, c.Spares, coord.MaxTasks)
	case c.total() > coord.MaxTasks:
		return fmt.Errorf("%d ranks on each of %d nodes: want not more than %d in all", c.Tasks, c.Nodes, coord.MaxTasks)
	case c.Node < 0 || c.Node >= c.nodes()+c.Spares:
		return fmt.Errorf("node %d: want 0 to %d", c.Node, c.nodes()+c.Spares-1)
	case c.nodes() == 1 && c.Spares == 0:
	case c.Coordinator == "":
		return errors.New("a job on several hosts needs the address of a coordinator")
	case err != nil || host == "" || port == "" || port == "0":
		return fmt.Errorf("coordinator %q: want host:port", c.Coordinator)
	}
	return nil
}

// nodes is how many hosts have tasks.
func (c Config) nodes() int { return max(1, c.Nodes) }

// external says whether others run the service.
func (c Config) external() bool { return len(c.Relay.Upstream) > 0 }

// several says whether there are other launchers than this one.
func (c Config) several() bool { return c.nodes()+c.Spares > 1 }

// total is how many tasks there are on all nodes.
func (c Config) total() int { return c.Tasks * c.nodes() }

// launcher names a launcher at the meeting. The service of the meeting refuses a task of a job that it does not
// have, and the name of this job tells it from others.
func (c Config) launcher(node int) serry.TaskID {
	return serry.TaskID{Job: c.launchers(), Index: node}
}

// launchers names the job that the launchers are tasks of.
func (c Config) launchers() string {
	name := c.Job
	if name == "" {
		name = strings.Join(c.Command, "\x00")
	}
	sum := sha256.Sum256([]byte(name))
	return "launcher-" + hex.EncodeToString(sum[:8])
}

// unlimited says whether tasks that are told to end by a signal may take as long as they need.
func (c Config) unlimited(sig syscall.Signal) bool { return c.SchedulerKills && sig == syscall.SIGTERM }

// find looks the command up where a shell would.
func (c Config) find() (string, error) {
	path, err := exec.LookPath(c.Command[0])
	switch {
	case errors.Is(err, exec.ErrDot):
		return path, nil
	case errors.Is(err, fs.ErrPermission):
		return "", &startError{codeNotExecutable, err}
	case err != nil:
		return "", &startError{codeNotFound, err}
	}
	return path, nil
}

type noDisplay struct{}

func (noDisplay) Line(int, Stream, []byte) {}
func (noDisplay) Note(Note)                {}

// newRun draws the name of a run: short enough to read, long enough to be the only one on a host.
func newRun() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func has[V any](m map[string]V, key string) bool {
	_, ok := m[key]
	return ok
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
