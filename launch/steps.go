package launch

import (
	"io"
	"os"
	"strconv"
	"time"

	"github.com/serry-dev/serry/goodput"
)

// mostSteps is how many reports of steps may wait for the service. A host has fewer ranks.
const mostSteps = 1 << 10

// readStep passes on the step that a task has written to its file, if it is another than before (D-GP-1). What is no step, such
// as a file that is being written, is left for the next look.
func (s *sampler) readStep(t *sampledTask) {
	if t.steps == "" {
		return
	}
	text, err := readSmall(t.steps)
	if err != nil || string(text) == t.step {
		return
	}
	step, err := goodput.ReadStep(text)
	if err != nil {
		return
	}
	if t.declared != string(text) { // else the service did not take it the last time
		t.declared, t.phase, t.until = string(text), "", 0
		if step.Limit > 0 {
			t.phase, t.until = step.Phase, time.Since(s.begun)+step.Limit
		}
	}
	select {
	case s.crew.steps <- storedValue{key: goodput.StepKeys + strconv.Itoa(t.Task), value: []byte(step.String())}:
		t.step = string(text)
	default: // the service does not take them now
	}
}

// readSmall reads a file of the size of a step, and a byte more of a larger one.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, goodput.MaxStepText+1))
}
