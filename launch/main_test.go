package launch

import (
	"fmt"
	"os"
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
	default:
		goleak.VerifyTestMain(m)
	}
}

// itself is the command line of this binary, as processes that are started from it find it.
var itself = []string{"/proc/self/exe"}

// beLauncher runs a job of two tasks.
func beLauncher() int {
	if os.Getenv(EnvRun) != "" {
		return 95 // a launcher that was started as a task
	}
	j, err := Start(Config{Command: itself, Tasks: 2, Guard: itself, Env: append(os.Environ(), mode+"=task")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 96
	}
	r := j.Wait()
	return r.ExitCode()
}
