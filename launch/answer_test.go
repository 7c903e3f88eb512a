package launch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire"
)

// What a relay that no launcher has started says of the processes of its host.
func TestAnswerStacks(t *testing.T) {
	clause.Cite(t, "D-ST-12")
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	all := []TaskProcess{{worker(1), cmd.Process.Pid}, {worker(2), cmd.Process.Pid}, {worker(3), 1 << 30}}
	found := AnswerStacks(t.Context(), client.Question{Kind: wire.StacksEvidence, Tasks: []serry.TaskID{worker(1), worker(2)}}, all)
	var tasks []serry.TaskID
	for _, f := range found { // one, unless the process fell asleep between the two looks at it
		tasks = append(tasks, f.Tasks...)
		if !strings.Contains(string(f.Body), "no Python runs in it") {
			t.Errorf("AnswerStacks() says %s; want that no Python runs in it", f.Body)
		}
	}
	if !slices.Equal(tasks, []serry.TaskID{worker(1), worker(2)}) {
		t.Errorf("AnswerStacks() is about %v; want the two tasks that were asked for", tasks)
	}
	if found := AnswerStacks(t.Context(), client.Question{Kind: "weather"}, all); found != nil {
		t.Errorf("AnswerStacks() of another kind = %+v; want none", found)
	}
}
