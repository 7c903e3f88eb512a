package launch

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// A process of the first attempt that is found during the second is named, once, also to the service.
func TestStrays(t *testing.T) {
	clause.Cite(t, "D-SC-22")
	synctest.Test(t, func(t *testing.T) {
		s := new(scene)
		var read *diagnose.HangReport
		works := func(p *actorProcess) {
			task, attempt, _ := p.seat()
			if attempt == 1 && task == 0 {
				p.end(Cause{Code: 1}, byItself)
				return
			}
			if attempt == 2 && task == 0 {
				s.sky.mu.Lock()
				s.sky.straying = []stray{{Task: 2, Attempt: 1, PID: 640}, {Task: 1, Attempt: 2, PID: 641}}
				s.sky.mu.Unlock()
			}
			standsIn(20*time.Second, "", 0)(p)
			if attempt == 2 && task == 0 {
				s.service.mu.Lock()
				defer s.service.mu.Unlock()
				read, _ = diagnose.ReadHang(s.service.published)
			}
		}
		if r := s.play(t, Config{Restart: RestartAll, MaxRestarts: 1}, works, works, works); !r.Well() {
			t.Errorf("Wait() = %+v; want success", r)
		}
		said := slices.DeleteFunc(slices.Clone(s.display.said), func(text string) bool { return !strings.Contains(text, "a process of attempt") })
		host, _ := os.Hostname()
		want := "a process of attempt 1 (rank 2, pid 640 on " + host + ") tried to join attempt 2 and was refused; the job is not affected"
		if !slices.Equal(said, []string{want}) {
			t.Errorf("said %q; want %q", said, want)
		}
		if read == nil || len(read.Strays) != 1 || read.Strays[0].PID != 640 {
			t.Errorf("published %+v; want process 640", read)
		}
	})
}

// Among the real processes of this machine the one with the variables of an older attempt is found, once.
func TestStraySearch(t *testing.T) {
	clause.Cite(t, "D-SC-22")
	run := newRun()
	env := func(attempt string) []string {
		return append(os.Environ(), EnvRun+"="+run, EnvTask+"=2", EnvAttempt+"="+attempt)
	}
	var pids []int
	for _, attempt := range []string{"1", "2", "x"} {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = env(attempt)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		pids = append(pids, cmd.Process.Pid)
	}
	search := straySearch{run: run}
	var found []stray
	for range 2 * strayLooks {
		found = append(found, search.find(2)...)
	}
	if want := []stray{{Task: 2, Attempt: 1, PID: pids[0]}}; !slices.Equal(found, want) {
		t.Errorf("find() = %+v; want %+v", found, want)
	}
}
