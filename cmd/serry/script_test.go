package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/serry-dev/serry/launch"
)

func TestMain(m *testing.M) {
	// The guard of a run is this binary, too, under another name.
	testscript.Main(ownList{m}, map[string]func(){"serry": main, launch.GuardName: main, drillCommand: drillTask, leaveCommand: leaveTask, linkCommand: linkTask, evidenceCommand: evidenceTask, transferCommand: transferTask, collectiveCommand: collectiveTask})
}

// ownList gives the tests a list of jobs of their own, which the commands that they run inherit.
type ownList struct{ *testing.M }

func (m ownList) Run() int {
	dir, err := os.MkdirTemp("", "serry-test")
	if os.Getenv("GORACE") == "" { // else every command under the race detector sleeps for a second at its end
		err = errors.Join(err, os.Setenv("GORACE", "atexit_sleep_ms=20"))
	}
	if err := errors.Join(err, os.Setenv("XDG_RUNTIME_DIR", dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	return m.M.Run()
}

var rewrite = flag.Bool("rewrite", false, "write the output of commands into the golden files of the scripts")

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *rewrite,
		Setup: func(env *testscript.Env) error {
			env.Values[serverKey{}] = &running{}
			env.Values[jobKey{}] = &job{}
			data, err := filepath.Abs("testdata")
			env.Setenv("TESTDATA", data)
			env.Setenv("XDG_RUNTIME_DIR", env.WorkDir)
			env.Setenv("PYTHON", knownPython())
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return err
		},
		Condition: func(name string) (bool, error) {
			switch name {
			case "python": // one whose stacks can be read
				return knownPython() != "", nil
			case "python3": // any
				_, err := exec.LookPath(name)
				if os.Getenv("CI") == "true" {
					return true, err
				}
				return err == nil, nil
			}
			return false, fmt.Errorf("no condition %q", name)
		},
		Cmds: commands(),
	})
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	all := jobCommands()
	all["start"], all["dial"], all["end"], all["ended"], all["signal"] = start, dial, end, ended, send
	all["etcd"], all["logged"] = startEtcd, logged
	all["page"], all["fetch"], all["streams"] = findPage, fetch, streams
	all["fetches"], all["act"] = fetches, act
	all["same"], all["offer"] = same, offerAddress
	return all
}

// running is the server of a script.
type running struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
	first  string // line on stdout
	stderr *transcript
}

type serverKey struct{}

// start runs serry in the background and waits for its first line. $ADDRESS is then where it
// serves.
func start(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(serverKey{}).(*running)
	path, err := exec.LookPath("serry")
	ts.Check(err)
	*r = running{cmd: exec.Command(path, args...), stderr: new(transcript)}
	r.cmd.Dir = ts.MkAbs(".")
	r.cmd.Env = append(os.Environ(), "SERRY_TASKS="+ts.Getenv("SERRY_TASKS"), "XDG_RUNTIME_DIR="+ts.Getenv("XDG_RUNTIME_DIR"))
	r.cmd.Stderr = r.stderr
	pipe, err := r.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(r.cmd.Start())
	process := r.cmd.Process // a script may start another
	ts.Defer(func() { process.Kill() })
	r.stdout = bufio.NewReader(pipe)
	if r.first, err = r.stdout.ReadString('\n'); err != nil {
		r.cmd.Wait()
		ts.Fatalf("no first line: %v\n%s", err, r.stderr.String())
	}
	fields := strings.Fields(r.first)
	ts.Setenv("ADDRESS", fields[len(fields)-1])
}

// dial connects to the server.
func dial(ts *testscript.TestScript, neg bool, _ []string) {
	network, address := "tcp", ts.Getenv("ADDRESS")
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, address = "unix", ts.MkAbs(path)
	}
	c, err := net.Dial(network, address)
	if err == nil {
		c.Close()
	}
	if neg != (err != nil) {
		ts.Fatalf("dial %s: %v", address, err)
	}
}

// signals are those that a script can send.
var signals = map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "HUP": syscall.SIGHUP}

// send sends a signal to the server, which goes on.
func send(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Value(serverKey{}).(*running).cmd.Process.Signal(signals[args[0]]))
}

// logged waits until the server of the script has logged a line that matches.
func logged(ts *testscript.TestScript, _ bool, args []string) {
	r, want := ts.Value(serverKey{}).(*running), regexp.MustCompile("(?m)"+args[0])
	deadline := time.After(untilPatience)
	for ticks := time.Tick(50 * time.Millisecond); !want.MatchString(r.stderr.String()); {
		select {
		case <-ticks:
		case <-deadline:
			ts.Fatalf("no line of the log matches %q:\n%s", args[0], r.stderr)
		}
	}
}

// end sends a signal and checks that the server ends, and ends well unless it is killed. What it
// wrote is then in the files out and log.
func end(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(ts.Value(serverKey{}).(*running).cmd.Process.Signal(signals[args[0]]))
	ended(ts, false, args)
}

// ended waits until the server ends, and checks that it ends well unless it is said to be killed.
func ended(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(serverKey{}).(*running)
	var rest bytes.Buffer
	_, err := rest.ReadFrom(r.stdout)
	ts.Check(err)
	if err := r.cmd.Wait(); len(args) == 0 || args[0] != "KILL" {
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), append([]byte(r.first), rest.Bytes()...), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("log"), []byte(r.stderr.String()), 0o600))
}
