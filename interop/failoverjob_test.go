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
func startFailoverJob(t *testing.T, addrs []string, env ...string) *failoverJob {
	t.Helper()
	j := &failoverJob{t: t}
	for i, addr := range addrs {
		env := environment(append(env, "JAX_COORDINATOR_ADDRESS="+addr, "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:0")...)
		j.processes = append(j.processes, start(t, fmt.Sprintf("jax process %d", i), env,
			jaxNew.python(t), "testdata/failover.py", fmt.Sprint(len(addrs)), fmt.Sprint(i)))
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

// relays starts n relays, one for each process of a job, and returns where they
// listen. Command is what a relay is started with, before its own words.
func relays(t *testing.T, n int, command []string, listen func(i int) string, upstream ...string) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		p := start(t, fmt.Sprintf("relay %d", i), environment(), append(slices.Clone(command),
			os.Getenv("SERRY_BINARY"), "relay", "--listen", listen(i), "--upstream", strings.Join(upstream, ","))...)
		_, addrs[i], _ = strings.Cut(p.line(), " on ")
	}
	return addrs
}

// loopback lets every relay choose a port.
func loopback(int) string { return "127.0.0.1:0" }
