package launch

import (
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// A person ends a rank, and the policy of the job says what follows. An order that cannot be carried out changes nothing.
func TestFailByOrder(t *testing.T) {
	clause.Cite(t, "D-WEB-14")
	s := newStage(t)
	cfg := s.config(2)
	cfg.Restart, cfg.MaxRestarts = RestartAll, 1
	j := s.start(cfg)
	first := s.all(2, 1)
	do(first, "join")
	if said, err := j.Fail(2, "was ended by a person", true); err == nil {
		t.Errorf("Fail(2) = %q; want an error: there are two ranks", said)
	}
	said, err := j.Fail(1, "was ended by a person", true)
	if err != nil || said != "starting all again, 0 restarts left" {
		t.Fatalf("Fail(1) = %q, %v; want all started again", said, err)
	}
	second := s.all(2, 2)
	for _, a := range first {
		a.gone()
	}
	do(second, "join")
	if said, err := j.Fail(0, "was ended by a person", true); err == nil || !strings.Contains(err.Error(), "no restarts are left") {
		t.Errorf("Fail(0), to be started again = %q, %v; want that no restarts are left", said, err)
	}
	if said, err := j.Fail(0, "was ended by a person", false); err != nil || said != "ending the job" {
		t.Errorf("Fail(0) = %q, %v; want the end of the job", said, err)
	}
	r := j.Wait()
	if r.First == nil || r.First.Task != 0 || r.First.String() != "rank 0: was ended by a person" || r.ExitCode() != 1 {
		t.Errorf("Wait() = %+v, first %v; want rank 0, ended by a person", r, r.First)
	}
	if said, err := j.Fail(0, "was ended by a person", false); err == nil {
		t.Errorf("Fail() after the end = %q; want an error", said)
	}
}

// Without a restart policy a rank is not ended that was to be started again.
func TestFailWithoutPolicy(t *testing.T) {
	clause.Cite(t, "D-WEB-14")
	s := newStage(t)
	j := s.start(s.config(1))
	first := s.all(1, 1)
	do(first, "join")
	if said, err := j.Fail(0, "was ended by a person", true); err == nil || !strings.Contains(err.Error(), "no rank is started again") {
		t.Errorf("Fail() = %q, %v; want an error: the policy is never", said, err)
	}
	do(first, "leave")
	exit(first, 0)
	if r := j.Wait(); !r.Well() {
		t.Errorf("Wait() = %+v; want success: nothing was ended", r)
	}
}
