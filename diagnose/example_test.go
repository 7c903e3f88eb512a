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
	// rank 1 is stalled: 1 rank waits for it at barrier "step" since 1m15s
	// - see where in its code rank 1 is: serry stacks 1 on its host
}
