package launch

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// The limit of a phase counts from when it is first read, also while the service does not take the step; the next step ends it.
func TestDeclaredPhase(t *testing.T) {
	clause.Cite(t, "D-GP-2", "D-HG-9")
	path := filepath.Join(t.TempDir(), "step")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := &sampler{crew: &crew{steps: make(chan storedValue, 1)}, begun: time.Now()}
		task := &sampledTask{steps: path}
		expect := func(phase string, until time.Duration) {
			t.Helper()
			if s.readStep(task); task.phase != phase || task.until != until {
				t.Errorf("readStep: phase %q until %v; want %q until %v", task.phase, task.until, phase, until)
			}
		}
		time.Sleep(10 * time.Second)
		write("812")
		expect("", 0)
		write("812 checkpoint 300") // the service has not taken the step before: there is no room
		expect("checkpoint", 310*time.Second)
		time.Sleep(10 * time.Second)
		expect("checkpoint", 310*time.Second)
		<-s.crew.steps
		expect("checkpoint", 310*time.Second)
		if got := string((<-s.crew.steps).value); got != "812 checkpoint 300" {
			t.Errorf("the service was told %q", got)
		}
		write("812 checkpoint") // without a limit
		expect("", 0)
		write("garb")
		expect("", 0)
	})
}
