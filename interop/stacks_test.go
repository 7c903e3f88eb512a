package interop

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// oneHangs is what serry stacks says of a job in which rank 2 sleeps before a collective.
var oneHangs = regexp.MustCompile(`(?s)^2 groups, 4 ranks

  rank 2 +alone
    load_batch +run_leave\.py:\d+ +asleep \(clock_nanosleep\)
    main +run_leave\.py:\d+
    <module> +run_leave\.py:\d+

  ranks 0-1,3 +3 ranks, equal
    \S+ +multihost_utils\.py:\d+ +asleep \(futex\).*
    main +run_leave\.py:\d+
    <module> +run_leave\.py:\d+
$`)

// TestStacksNameTheRankThatHangs has four unmodified processes of jax, of which one does not come to a collective.
func TestStacksNameTheRankThatHangs(t *testing.T) {
	lab.Clause(t, "D-ST-1", "D-ST-14")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 4, func(t *testing.T, v venv) {
		list := "XDG_RUNTIME_DIR=" + t.TempDir() // a list of jobs of its own
		r := launch(t, []string{list}, "-n", "4", "--", v.python(t), "testdata/run_leave.py", "hang")
		r.await("leaving at")
		for end := time.Now().Add(patience); ; { // the others come to where they wait
			cmd := exec.Command(os.Getenv("SERRY_BINARY"), "stacks")
			cmd.Env = environment(list)
			out, _ := cmd.CombinedOutput()
			if oneHangs.Match(out) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("serry stacks:\n%s", out)
			}
		}
	})
}

// stuckWords are what serry run says when it ends a job in which rank 2 sleeps before a collective.
var stuckWords = regexp.MustCompile(`serry: error: rank 2: stuck since \d\d:\d\d:\d\d \(\S+\); ranks 0-1,3 wait for it in Gloo all-\w+; it is at load_batch \(run_leave\.py:\d+\)`)

// TestScenarios plays three rows of make scenarios at the same time, since each of them waits most of its time: a rank that does not
// come to a collective, one that exits in the midst of the work, and barriers in another order.
func TestScenarios(t *testing.T) {
	lab.Clause(t, "D-SC-6", "D-SC-7", "D-SC-9", "D-HG-8", "D-RC-4", "D-RC-9", "TD-ST-5", "TD-HG-3")
	skipShort(t)
	t.Parallel()
	eachVenv(t, []venv{jaxNew}, 12, func(t *testing.T, v venv) {
		play := func(program, what string) *launched {
			return launch(t, nil, "-n", "4", "--on-hang", "abort", "--hang-after", "5s", "--", v.python(t), program, what)
		}
		const train = "../bench/scenarios/train.py"
		hangs, crossed, exits := play("testdata/run_leave.py", "hang"), play(train, "crossed"), play(train, "hard-exit")
		exits.ends(1, "with code 0 without saying goodbye")
		hangs.ends(75, "rank 2 is stalled since ")
		if !stuckWords.MatchString(hangs.stderr.String()) {
			t.Errorf("serry run: stderr does not match %v", stuckWords)
		}
		crossed.ends(75, `: ranks 0-1 wait at barrier "a", ranks 2-3 at barrier "b"`)
	})
}
