package launch

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

// Config describes a job. Command and Tasks must be given. What is zero has the default in brackets.
type Config struct {
	Command []string // what every task runs, with its arguments
	Dir     string   // where (here)
	Env     []string // what every task gets beside the variables of this package (our own environment)
	Tasks   int      // on this host

	Restart     Restart // (RestartNever)
	MaxRestarts int     // in the whole job; a new attempt counts as one
	Recoverable bool    // tasks may fail and come back while the others go on; RestartFailed implies it

	Grace  time.Duration // between asking a task to end and killing it (10 s)
	LogDir string        // where to write everything that tasks say, one file each (nowhere)
	NoMPI  bool          // leave out the Open MPI variables, for programs that use a real one

	Listen  string        // where the service of each attempt listens, with port 0 ("127.0.0.1:0")
	Service server.Config // its settings; the jobs are filled in

	Guard   []string // command that runs [Guard]; without one a killed launcher may leave processes behind
	Display Display  // shows people what happens (nobody)
}

// A Display shows people what a job does. Its methods are called from several goroutines and must
// not keep the bytes they get.
type Display interface {
	Line(task int, stream Stream, text []byte) // what a task wrote
	Note(Note)                                 // what the launcher has to say
}

// A Note is something that happened to the job.
type Note struct {
	Warning bool
	Text    string
}

const defaultGrace = 10 * time.Second

func (c Config) withDefaults() Config {
	c.Restart = cmp.Or(c.Restart, RestartNever)
	c.Recoverable = c.Recoverable || c.Restart == RestartFailed
	c.Grace = cmp.Or(c.Grace, defaultGrace)
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.Env = baseEnvironment(c.Env)
	if c.Display == nil {
		c.Display = nobody{}
	}
	c.Service.Cluster.Recoverable = c.Recoverable
	c.Service.Cluster.HeartbeatTimeout = cmp.Or(c.Service.Cluster.HeartbeatTimeout, server.DefaultHeartbeatTimeout)
	return c
}

// Validate says what is wrong with c, if anything.
func (c Config) Validate() error {
	switch {
	case len(c.Command) == 0:
		return errors.New("no command to run")
	case c.Tasks < 1 || c.Tasks > coord.MaxTasks:
		return fmt.Errorf("%d tasks: want 1 to %d", c.Tasks, coord.MaxTasks)
	case !slices.Contains([]Restart{"", RestartNever, RestartFailed, RestartAll}, c.Restart):
		return fmt.Errorf("restart policy %q: want %s, %s or %s", c.Restart, RestartNever, RestartFailed, RestartAll)
	case c.MaxRestarts < 0:
		return fmt.Errorf("%d restarts: want 0 or more", c.MaxRestarts)
	case c.Grace < 0:
		return fmt.Errorf("grace %v: want 0 or more", c.Grace)
	}
	return nil
}

// find looks the command up where a shell would.
func (c Config) find() (string, error) {
	path, err := exec.LookPath(c.Command[0])
	if errors.Is(err, exec.ErrDot) {
		err = nil
	}
	return path, err
}

type nobody struct{}

func (nobody) Line(int, Stream, []byte) {}
func (nobody) Note(Note)                {}

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

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
