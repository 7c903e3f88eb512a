package launch

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// This binary is also what the tests start: a guard, or what mode says.
const mode = "LAUNCH_TEST_MODE"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(guardRun) != "":
		if err := Guard(); err != nil {
			fmt.Fprintln(os.Stderr, "guard:", err)
			os.Exit(1)
		}
	case os.Getenv(mode) == "task":
		os.Exit(beTask())
	case os.Getenv(mode) == "launcher":
		os.Exit(beLauncher())
	case os.Getenv(mode) == "small":
		os.Exit(beSmall())
	default:
		os.Setenv("GORACE", "atexit_sleep_ms=0") // processes with the race detector take a second to end, else
		goleak.VerifyTestMain(m)
	}
}

// itself is the command line of this binary, as processes that are started from it find it.
var itself = []string{"/proc/self/exe"}

// What a launcher is told by environment.
const (
	nodeVariable        = "LAUNCH_TEST_NODE"
	coordinatorVariable = "LAUNCH_TEST_COORDINATOR"
)

// beLauncher runs a job of two tasks, or its part of one on two hosts with a spare.
func beLauncher() int {
	if os.Getenv(EnvRun) != "" {
		return 95 // a launcher that was started as a task
	}
	cfg := Config{Command: itself, Tasks: 2, Guard: itself, Env: append(os.Environ(), mode+"=task")}
	if cfg.Coordinator = os.Getenv(coordinatorVariable); cfg.Coordinator != "" {
		cfg.Tasks, cfg.Nodes, cfg.Spares = 1, 2, 1
		cfg.Node, _ = strconv.Atoi(os.Getenv(nodeVariable))
	}
	j, err := Start(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 96
	}
	r := j.Wait()
	return r.ExitCode()
}
