package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A failoverJob is a jax job of testdata/failover.py: it works without a pause
// until it is told to end, and checks every answer it gets.
type failoverJob struct {
	t         *testing.T
	processes group
}

// account is the last line of one of its processes.
type account struct {
	Steps   int
	Answers [][]int // to increments by one, a list for each thread
	Count   int     // the counter of all increments, at the end
	Arrived []int   // how often the barrier was entered, by its place in a step
	Said    []string
}

// keptSteps is for how many steps the job keeps its keys.
const keptSteps = 8

// startFailoverJob starts one process for each address, and returns when they
// are at work.
func startFailoverJob(t *testing.T, v venv, addrs []string) *failoverJob {
	t.Helper()
	j := &failoverJob{t: t}
	for i, addr := range addrs {
		j.processes = append(j.processes, startJax(t, addr, v, i, "testdata/failover.py", fmt.Sprint(len(addrs)), fmt.Sprint(i)))
	}
	j.steps(1)
	return j
}

// steps returns when the job has made n more steps, and says how long that took.
// Two are one that was begun after the call, at least.
func (j *failoverJob) steps(n int) time.Duration {
	j.t.Helper()
	began := time.Now()
	p := j.processes[0]
	p.tell(fmt.Sprint("steps ", n))
	if line := p.line(); !strings.HasPrefix(line, "step ") {
		j.t.Fatalf("%s: printed %q; want a step", p.name, line)
	}
	return time.Since(began)
}

// ends ends the job. All must have made the same steps, passed every barrier
// once, and counted without a gap or a double; and exit 0.
func (j *failoverJob) ends() {
	j.t.Helper()
	j.processes[0].tell("end")
	lines := make([]string, len(j.processes))
	for i, p := range j.processes {
		lines[i] = p.line()
	}
	checkAccounts(j.t, lines)
	j.processes.leaves()
}

// checkAccounts holds the accounts of all processes to each other.
func checkAccounts(t *testing.T, lines []string) {
	t.Helper()
	accounts := make([]account, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &accounts[i]); err != nil {
			t.Fatalf("process %d: printed %q: %v", i, line, err)
		}
	}
	var counted []int
	for _, a := range accounts {
		counted = append(counted, slices.Concat(a.Answers...)...)
	}
	slices.Sort(counted)
	for i, got := range counted {
		if got != i+1 {
			t.Errorf("increment %d of all was answered %d; want each number once", i+1, got)
			break
		}
	}
	for i, a := range accounts {
		want := account{Steps: accounts[0].Steps, Answers: a.Answers, Count: len(counted)}
		want.Arrived = []int{len(accounts) * want.Steps, len(accounts) * want.Steps}
		for process := range accounts {
			for step := max(0, want.Steps-keptSteps); step < want.Steps; step++ {
				want.Said = append(want.Said, fmt.Sprintf("said/%d/%d", process, step))
			}
		}
		slices.Sort(want.Said)
		if diff := cmp.Diff(want, a); diff != "" {
			t.Errorf("process %d: account (-want +got)\n%s", i, diff)
		}
	}
	t.Logf("%d steps, %d increments", accounts[0].Steps, len(counted))
}

// relaying says how relays are started.
type relaying struct {
	upstream []string
	listen   func(i int) string // nil: on a port of its own
	enter    []string           // command that runs another one where the relays are to be
	flags    []string
}

// start starts a relay for each of four processes, and returns where they listen.
func (r relaying) start(t *testing.T) []string {
	t.Helper()
	addrs := make([]string, 4)
	for i := range addrs {
		listen := "127.0.0.1:0"
		if r.listen != nil {
			listen = r.listen(i)
		}
		command := slices.Concat(r.enter, []string{os.Getenv("SERRY_BINARY"), "relay",
			"--listen", listen, "--upstream", strings.Join(r.upstream, ",")}, r.flags)
		p := start(t, fmt.Sprintf("relay %d", i), environment(), command...)
		_, addrs[i], _ = strings.Cut(p.line(), " on ")
	}
	return addrs
}
