package slurm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// A batch is a job of Slurm.
type batch struct {
	t   *testing.T
	id  string
	dir string // where it runs
	out string // file with all that it writes
}

// submit hands a script to sbatch, for a number of nodes. The script finds in its environment the program to test
// (SERRY) and one that meets the other ranks of its job (MEET). It begins when Slurm says so.
func submit(t *testing.T, nodes int, script string) *batch {
	t.Helper()
	lab.Clause(t, "DLVT-6")
	if testing.Short() {
		t.Skip("real clients take minutes; not run with -short")
	}
	if cannot != "" && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, NOTHING TESTED: no Slurm on this machine\n%s", cannot)
	}
	if cannot != "" {
		t.Fatal(cannot)
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &batch{t: t, dir: t.TempDir()}
	b.out = filepath.Join(b.dir, "out")
	file := filepath.Join(b.dir, "job.sbatch")
	text := fmt.Sprintf("#!/bin/bash\nSERRY=%s MEET='env %s=1 %s'\n%s", os.Getenv("SERRY_BINARY"), rankVariable, self, script)
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	b.id, err = said("sbatch", "--parsable", fmt.Sprintf("--nodes=%d", nodes), "--chdir="+b.dir, "--output="+b.out, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.clear)
	return b
}

// clear ends the job, if it runs, and shows what it wrote where the test has failed.
func (b *batch) clear() {
	_ = exec.Command("scancel", "--signal=KILL", b.id).Run() // it fails where the job has ended
	if b.t.Failed() {
		b.t.Logf("job %s wrote\n%s", b.id, b.wrote())
	}
}

func (b *batch) wrote() string {
	text, err := os.ReadFile(b.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // it has not begun
		b.t.Error(err)
	}
	return string(text)
}

// says waits until the job has written a text.
func (b *batch) says(text string) {
	b.t.Helper()
	if err := await("job says "+text, func() bool { return strings.Contains(b.wrote(), text) }); err != nil {
		b.t.Fatal(err)
	}
}

// ends waits for the end of the job, and returns its state and its exit code.
func (b *batch) ends() (state string, code int) {
	b.t.Helper()
	err := await("job ends", func() bool {
		text, err := said("scontrol", "show", "job", "--oneliner", b.id)
		if err != nil {
			return false
		}
		fields := make(map[string]string)
		for _, f := range strings.Fields(text) {
			key, value, _ := strings.Cut(f, "=")
			fields[key] = value
		}
		state = fields["JobState"]
		exit, _, _ := strings.Cut(fields["ExitCode"], ":")
		code, err = strconv.Atoi(exit)
		return err == nil && state != "PENDING" && state != "RUNNING" && state != "COMPLETING"
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return state, code
}

// ended fails the test unless the job ends with an exit code and has written some texts.
func (b *batch) ended(code int, texts ...string) {
	b.t.Helper()
	if state, got := b.ends(); got != code {
		b.t.Errorf("the job ended as %s with exit code %d; want %d", state, got, code)
	}
	for _, text := range texts {
		if !strings.Contains(b.wrote(), text) {
			b.t.Errorf("the job did not write %q", text)
		}
	}
}

// scancel sends a signal to the steps of the job, or ends it.
func (b *batch) scancel(options ...string) {
	b.t.Helper()
	if _, err := said(append([]string{"scancel", b.id}, options...)...); err != nil {
		b.t.Fatal(err)
	}
}

// One step on two nodes is one job of two hosts.
func TestStep(t *testing.T) {
	b := submit(t, 2, `srun --ntasks-per-node=1 $SERRY run -n 2 -- $MEET`)
	b.ended(0, "[0] rank 0 of 4 has met the others", "[3] rank 3 of 4 has met the others", "all 4 ranks ended well")
}

// DLV-21: two steps that run on the same nodes at the same time are two jobs. No rank ends before all of both have met.
func TestTwoSteps(t *testing.T) {
	lab.Clause(t, "DLV-21")
	b := submit(t, 2, `
rank() { $MEET && touch met-$SLURM_STEP_ID-$SERRY_TASK && until test $(ls met-* | wc -l) = 4; do sleep 0.1; done; }
export -f rank
export MEET
for step in 0 1; do
	srun --overlap --ntasks-per-node=1 $SERRY run -- bash -c rank & pids[$step]=$!
done
wait ${pids[0]} && wait ${pids[1]}`)
	b.ended(0)
	if n := strings.Count(b.wrote(), "all 2 ranks ended well"); n != 4 {
		t.Errorf("%d of 4 launchers say that their job has ended well", n)
	}
}

// DLV-21: a launcher that comes to the meeting of another step is refused there, and the job of that step goes on.
func TestStepAtTheMeetingOfAnother(t *testing.T) {
	lab.Clause(t, "DLV-21")
	b := submit(t, 2, `
srun --overlap --ntasks-per-node=1 $SERRY run -- bash -c 'touch here-$SERRY_TASK; until test -e over; do sleep 0.1; done' &
until test -e here-0 -a -e here-1; do sleep 0.1; done
port=$((61440 + SLURM_JOB_ID % 4096))
JAX_COORDINATOR_PORT=$port srun --overlap --ntasks-per-node=1 bash -c '
	test $SLURM_PROCID = 0 || exec '$SERRY' run --register-timeout 20s -- true'
echo intruder $?
touch over
wait %1`)
	b.ended(0, "the launcher there refuses this one", "intruder 73", "serry: warning: a launcher at 10.213.1.", "all 2 ranks ended well")
}

// DLV-20: without srun the batch script would run the job on one of its nodes.
func TestForgottenStep(t *testing.T) {
	lab.Clause(t, "DLV-20")
	b := submit(t, 2, `$SERRY run -- true`)
	b.ended(2, "serry: error: this Slurm job has 2 nodes", "serry: hint: srun")
}

// DLV-22: a name that does not resolve is said while the launcher waits.
func TestNameThatDoesNotResolve(t *testing.T) {
	lab.Clause(t, "DLV-22")
	b := submit(t, 2, `srun --ntasks-per-node=1 $SERRY run --coordinator nowhere:$((40000 + SLURM_JOB_ID)) -- true`)
	b.says("waiting for node 0 at nowhere:")
	b.says("nowhere does not resolve")
	b.says("waiting for node 1: no launcher has come from there")
	b.scancel()
	b.ends()
}

// DLV-26: a rank that saves for longer than the grace of serry run is not cut short by it. What ranks have left behind, in
// sessions of their own, ends with the job.
func TestScancelLetsRanksSave(t *testing.T) {
	lab.Clause(t, "DLV-26", "DLVT-7")
	b := submit(t, 2, `
srun --ntasks-per-node=1 $SERRY run -- bash -c '
	setsid sleep 1000 <&- >&- 2>&- &
	trap "sleep 12; touch saved-$SERRY_TASK; exit 0" TERM
	touch here-$SERRY_TASK
	while true; do sleep 0.1; done'`)
	for rank := range 2 {
		b.exists(fmt.Sprintf("here-%d", rank))
	}
	b.scancel()
	begun := time.Now()
	b.ends()
	for rank := range 2 {
		b.exists(fmt.Sprintf("saved-%d", rank))
	}
	t.Logf("over %v after scancel", time.Since(begun))
	if err := await("no process of the job runs", func() bool { return len(b.processes()) == 0 }); err != nil {
		t.Errorf("%v: %v run", err, b.processes())
	}
}

// exists waits for a file of the job.
func (b *batch) exists(name string) {
	b.t.Helper()
	if err := await(name+" exists", func() bool { _, err := os.Stat(filepath.Join(b.dir, name)); return err == nil }); err != nil {
		b.t.Fatal(err)
	}
}

// processes lists the processes that have the job in their environment.
func (b *batch) processes() (pids []string) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, path := range all {
		if env, err := os.ReadFile(path); err == nil && strings.Contains("\x00"+string(env), "\x00SLURM_JOB_ID="+b.id+"\x00") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// A signal that Slurm sends before the end of a job reaches every rank.
func TestSignalReachesRanks(t *testing.T) {
	lab.Clause(t, "DLVT-7")
	b := submit(t, 2, `
srun --ntasks-per-node=1 $SERRY run -n 2 -- bash -c '
	trap "touch told-$SERRY_TASK; exit 0" USR1
	touch here-$SERRY_TASK
	while true; do sleep 0.1; done'`)
	for rank := range 4 {
		b.exists(fmt.Sprintf("here-%d", rank))
	}
	b.scancel("--signal=USR1")
	for rank := range 4 {
		b.exists(fmt.Sprintf("told-%d", rank))
	}
	b.ended(0, "all 4 ranks ended well")
}

// A jax program on two nodes with two processes each computes across all of them, also after one was killed.
func TestJax(t *testing.T) {
	lab.Clause(t, "DLVT-7")
	b := submit(t, 2, `srun --ntasks-per-node=1 $SERRY run -n 2 --restart all -- `+python(t)+` `+program(t)+` victim`)
	b.ended(0, "rank 2 ended: signal 9 (KILL); starting all again", "attempt 2 again [0, 1, 2, 3]", "in attempt 2")
}

// python is the interpreter of the newest jax that is tried.
func python(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../scripts/venvs.sh", "jax-new").CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 3 && os.Getenv("CI") != "true" {
		t.Skipf("SKIPPED, NOTHING TESTED: no jax on this machine\n%s", out)
	}
	if err != nil {
		t.Fatalf("scripts/venvs.sh jax-new = %v\n%s", err, out)
	}
	return absolute(t, "../../.cache/venv/jax-new/bin/python")
}

// program is the jax program.
func program(t *testing.T) string {
	t.Helper()
	return absolute(t, "../testdata/run.py")
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	full, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return full
}
