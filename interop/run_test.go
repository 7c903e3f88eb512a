package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-12: a script that calls jax.distributed.initialize() without arguments
// finds its rank, and has all devices; one with ids of its own keeps them.
func TestRunUnmodifiedScript(t *testing.T) {
	lab.Clause(t, "T-REAL-12", "A-ATT-11", "A-ATT-1")
	skipShort(t)
	t.Parallel()
	for _, v := range []venv{jaxNew, jax092, jax082} {
		for _, how := range []string{"none", "own"} {
			t.Run(string(v)+"/"+how, func(t *testing.T) {
				beside(t, 4)
				r := launch(t, []string{"XLA_FLAGS=--xla_force_host_platform_device_count=2"},
					"-n", "4", "--", v.python(t), "testdata/run.py", how)
				r.ends(0, "serry: all 4 ranks ended well")
				for task := range 4 {
					process := task
					if how == "own" {
						process = 3 - task
					}
					r.saidOn(task,
						fmt.Sprintf("attempt 1 process %d of 4 devices 2 of 8", process),
						"attempt 1 gathered [0, 1, 2, 3]", "attempt 1 again [0, 1, 2, 3]")
				}
			})
		}
	}
}

// A killed rank is named first, with its last words, although the others abort
// because of it.
func TestRunNamesTheKilledRank(t *testing.T) {
	lab.Clause(t, "C-LOST-3", "A-SIDE-16", "TD-RC-2")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		r := launch(t, nil, "-n", "4", "--", v.python(t), "testdata/run.py", "victim")
		r.ends(128+9,
			"serry: the last lines of rank 2, which failed first:", "    these are my last words",
			"serry: error: rank 2: signal 9 (KILL), first of 4 ranks")
	})
}

// A rank that raises an exception while the others wait for it in a collective
// has failed as soon as it wants to leave: jax makes it wait for them, which
// would wait for it until the shutdown times out.
func TestRunFailsTheRankThatRaised(t *testing.T) {
	lab.Clause(t, "D-RC-6", "TD-RC-2")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		r := launch(t, nil, "-n", "4", "--", v.python(t), "testdata/run_leave.py", "raise")
		r.ends(1, "serry: rank 2 raised ValueError: bad sample 17 in shard 2; ending the job",
			"in load_batch\n", "    ValueError: bad sample 17 in shard 2\nserry: ",
			"serry: error: rank 2: raised ValueError: bad sample 17 in shard 2, first of 4 ranks")
	})
}

// A rank that leaves early, with exit code 0, is named long before the shutdown
// times out.
func TestRunNamesTheRankThatLeavesEarly(t *testing.T) {
	lab.Clause(t, "D-RC-6")
	skipShort(t)
	beside(t, 4)
	r := launch(t, nil, "-n", "4", "--shutdown-timeout", "30s", "--", jaxNew.python(t), "testdata/run_leave.py", "exit")
	r.ends(128+6, "serry: rank 2 wants to leave; ranks 0, 1 and 3 do not")
}

// T-REAL-15: a job with CPU collectives that loses a rank completes in a second
// attempt.
func TestRunRestartsAll(t *testing.T) {
	lab.Clause(t, "T-REAL-15", "A-RES-5", "C-EPOCH-6")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		r := launch(t, nil, "-n", "4", "--restart", "all", "--", v.python(t), "testdata/run.py", "victim")
		r.ends(0, "serry: rank 2 ended: signal 9 (KILL); starting all again", "ended well", "in attempt 2")
		for task := range 4 {
			r.saidOn(task, "attempt 2 again [0, 1, 2, 3]")
		}
	})
}

// T-REAL-15: a job that lives on keys, barriers and live sets goes on while one
// rank is started again, and takes it back.
func TestRunRestartsOne(t *testing.T) {
	lab.Clause(t, "T-REAL-15", "A-RES-5", "A-RES-1")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		r := launch(t, nil, "-n", "4", "--restart", "failed", "--", v.python(t), "testdata/run_live.py")
		r.ends(0, "serry: rank 2 ended: signal 9 (KILL); starting it again", "ended well", "with 1 restart")
		for _, task := range []int{0, 1, 3} {
			r.saidOn(task, fmt.Sprintf("task %d goes on with [0, 1, 3]", task), fmt.Sprintf("task %d life 1 is done", task))
		}
		r.saidOn(2, "task 2 life 2 is done")
	})
}

// T-TF-4: workers of a strategy exit 0 without a word to the service, one after
// the other; that fails nobody.
func TestRunTensorFlowWithoutGoodbye(t *testing.T) {
	lab.Clause(t, "T-TF-4", "A-TF-7")
	skipShort(t)
	beside(t, 2)
	r := runTensorFlow(t, "testdata/tf_strategy.py", "") // stdin is empty: each ends when it is done
	r.ends(0, "serry: all 2 ranks ended well")
	for task := range 2 {
		r.saidOn(task, "serry: weight 4")
	}
}

// T-TF-5: one worker is told to end; both save, and both exit 0.
func TestRunTensorFlowPreempted(t *testing.T) {
	lab.Clause(t, "T-TF-5", "A-TF-8")
	skipShort(t)
	beside(t, 2)
	r := runTensorFlow(t, "testdata/tf_preempt.py", t.TempDir())
	var pid int
	for range 2 {
		task, rest, _ := strings.Cut(r.await("ready "), " ready ")
		if task == "[1]" {
			pid, _ = strconv.Atoi(rest)
		}
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatalf("kill(%d) = %v", pid, err)
	}
	r.ends(0, "serry: all 2 ranks ended well")
	for task := range 2 {
		r.saidOn(task, "saved")
	}
}

// A launched job is a running `serry run`.
type launched struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string // of stdout
	said   []string    // lines that were taken
	stderr tail
}

// launch starts `serry run` with more variables and arguments. Nothing of the job
// is left when the test ends.
func launch(t *testing.T, env []string, args ...string) *launched {
	t.Helper()
	r := &launched{t: t, cmd: exec.Command(os.Getenv("SERRY_BINARY"), append([]string{"run"}, args...)...), lines: make(chan string, 1024)}
	r.cmd.Env = environment(env...)
	r.cmd.Stderr = &r.stderr
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.lines)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			r.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill() // its guard ends all the rest
		for range r.lines {
		}
		r.cmd.Wait()
		if t.Failed() {
			t.Logf("stdout:\n%s\nstderr:\n%s", strings.Join(r.said, "\n"), r.stderr.String())
		}
	})
	return r
}

// runTensorFlow runs a script in two workers. Their addresses have to be known
// before they listen.
func runTensorFlow(t *testing.T, script, more string) *launched {
	t.Helper()
	python, err := filepath.Abs(tensorflow.python(t))
	if err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf("exec %s %s $SERRY_ADDRESS %s,%s $SERRY_TASK %s", python, script, unusedAddress(t), unusedAddress(t), more)
	return launch(t, nil, "-n", "2", "--", "sh", "-c", command)
}

// await takes lines until one has a word in it.
func (r *launched) await(word string) string {
	r.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("serry run: ended; want a line with %q", word)
			}
			if r.said = append(r.said, line); strings.Contains(line, word) {
				return line
			}
		case <-timer.C:
			r.t.Fatalf("serry run: no line with %q after %v", word, patience)
		}
	}
}

// ends waits for the end, and holds it to an exit code and to words on stderr.
func (r *launched) ends(code int, words ...string) {
	r.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for open := true; open; {
		var line string
		select {
		case line, open = <-r.lines:
			r.said = append(r.said, line)
		case <-timer.C:
			r.t.Fatalf("serry run: still runs after %v", patience)
		}
	}
	r.cmd.Wait() // the status is read from ProcessState
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("serry run: exit code %d; want %d", got, code)
	}
	for _, w := range words {
		if !strings.Contains(r.stderr.String(), w) {
			r.t.Errorf("serry run: stderr lacks %q", w)
		}
	}
}

// saidOn holds the output of a task to have some lines.
func (r *launched) saidOn(task int, lines ...string) {
	r.t.Helper()
	mark := fmt.Sprintf("[%d] ", task)
	for _, line := range lines {
		// Gloo prints its lines in several pieces, and one of them may come before the line of the program.
		printed := func(said string) bool {
			return said == mark+line || strings.HasPrefix(said, mark+"[Gloo] Rank ") && strings.HasSuffix(said, line)
		}
		if !slices.ContainsFunc(r.said, printed) {
			r.t.Errorf("task %d did not print %q", task, line)
		}
	}
}
