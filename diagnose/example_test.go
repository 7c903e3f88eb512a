package diagnose_test

import (
	"fmt"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire"
)

func ExampleJudge() {
	report := diagnose.Judge(diagnose.Evidence{Status: wire.Status{
		Size:   2,
		Counts: map[string]int{wire.StateConnected: 2},
		Tasks:  []wire.TaskStatus{{Task: "worker/0", State: wire.StateConnected}, {Task: "worker/1", State: wire.StateConnected}},
		Barriers: []wire.BarrierStatus{{
			ID: "step", Arrived: 1, Members: 2, First: "worker/0", Missing: []string{"worker/1"}, ForSeconds: 75,
		}},
	}})
	fmt.Println(report.Verdict)
	for _, advice := range report.Advice {
		fmt.Println("-", advice)
	}
	// Output:
	// barrier "step", with 1 of 2 ranks there, waits for rank 1 since 1m15s: it is connected, and has not arrived
	// - see what rank 1 is doing on its host: py-spy dump for a Python process
}
