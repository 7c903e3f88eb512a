package interop

import (
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// T-REAL-6: one process gets SIGTERM; all agree on the step after the largest
// that any has taken, and the one that was told to go lives on until then.
func TestPreemptionNoticeAgreesOnAStep(t *testing.T) {
	lab.Clause(t, "T-REAL-6", "A-PRE-4", "A-PRE-9", "A-PRE-14", "C-CLI-9")
	skipShort(t)
	t.Parallel()
	eachVenv(t, both, 2, func(t *testing.T, v venv) {
		srv := serve(t, "--tasks", "2")
		slow := startJax(t, srv.addr, v, 0, "testdata/preempt.py", "2", "0")
		fast := startJax(t, srv.addr, v, 1, "testdata/preempt.py", "2", "1")
		job := group{slow, fast}
		job.expect("joined")
		slow.tell("to 49")
		slow.expect("none")
		fast.tell("to 71")
		fast.expect("none")

		slow.signal(syscall.SIGTERM)
		slow.tell("notice")
		when := slow.line()
		fast.tell("notice")
		fast.expect(when)
		if _, err := time.Parse("notice "+time.RFC3339Nano, when); err != nil {
			t.Errorf("notice: %v; want a time of RFC 3339", err)
		}
		job.all("to 75", "72")
		job.leaves()
	})
}
