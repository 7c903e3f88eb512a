package launch

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/secure"
)

// secretOf reads the secret of a task as its program would.
func secretOf(a *actor) (path string, s secure.Secret) {
	a.t.Helper()
	path = a.tell("env " + secure.EnvSecretFile)
	s, err := secure.Read(path)
	if err != nil {
		a.t.Fatalf("task %d: %v", a.task, err)
	}
	return path, s
}

// All tasks of an attempt have one secret, on all hosts, and no other attempt has it. The files go with
// the attempt.
func TestJobSecret(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	s := newStage(t)
	t.Setenv(secure.EnvSecretFile, "/dev/null") // what the launcher itself was given is not for its tasks
	cfg := s.several(RestartAll)
	jobs := []*Job{s.startNode(cfg, 0), s.startNode(cfg, 1)}
	var files []string
	var before secure.Secret
	for attempt := 1; attempt <= 2; attempt++ {
		tasks := s.all(2, attempt)
		first, secret := secretOf(tasks[0])
		second, same := secretOf(tasks[1])
		if !bytes.Equal(secret, same) || first == second {
			t.Errorf("attempt %d: hosts have equal secrets: %v, in %s and %s; want one secret in two files", attempt, bytes.Equal(secret, same), first, second)
		}
		if bytes.Equal(secret, before) {
			t.Errorf("attempt %d has the secret of the attempt before", attempt)
		}
		for _, path := range files {
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s outlives its attempt: %v", path, err)
			}
		}
		before, files = secret, []string{first, second}
		exit(tasks, 2-attempt)
	}
	for _, j := range jobs {
		if r := j.Wait(); !r.Well() {
			t.Errorf("node %d: Wait() = %+v; want success", j.cfg.Node, r)
		}
	}
	for _, path := range files {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s outlives the job: %v", path, err)
		}
	}
	s.shown("note the secret of the job goes to other hosts in plain text")
}

// A secret that cannot be written fails the task, with the reason.
func TestNoPlaceForSecret(t *testing.T) {
	clause.Cite(t, "CL-TRN-30")
	s := newStage(t)
	t.Setenv("TMPDIR", "/nowhere")
	r := s.start(s.config(1)).Wait()
	if r.First == nil || r.First.Cause.Text == "" || r.ExitCode() != 1 {
		t.Errorf("Wait() = %+v; want a task that was not started", r.First)
	}
}
