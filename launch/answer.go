package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/pystack"
	"github.com/serry-dev/serry/wire"
)

// The launcher of a host answers what the service of the job asks about the processes that it has started (D-ST-12): a
// command on another host, or in another container, cannot look at them itself. Ranks with equal answers are one part
// (D-ST-15).

// attendAt answers questions of the service that tasks find at an address, and of no other any more. Only crew.work calls it.
func (c *crew) attendAt(address string) {
	if c.cfg.NoStacks || c.asked == address {
		return
	}
	c.unattend()
	host, _ := os.Hostname() // for people to read
	c.asked, c.attended = address, c.kernel.attend(address, client.Attendant{Name: host, Answer: c.answer}, c.steps)
}

// unattend answers no more questions. It does not wait for the service, which may be gone.
func (c *crew) unattend() {
	if c.attended != nil {
		c.watch.Go(c.attended)
		c.attended = nil
	}
}

// answer says where the ranks of this host are, or what they have written.
func (c *crew) answer(ctx context.Context, q client.Question) []client.Finding {
	if q.Kind == wire.LogsEvidence {
		return c.answerLogs(q)
	}
	return answerStacks(ctx, q, c.processes(), c.kernel.stacks)
}

// AnswerStacks answers a question about the stacks of tasks whose processes are on this host. A relay that no launcher has started
// answers by it.
func AnswerStacks(ctx context.Context, q client.Question, all []TaskProcess) []client.Finding {
	return answerStacks(ctx, q, all, readStacks)
}

func answerStacks(ctx context.Context, q client.Question, all []TaskProcess, read func(pid int) (pystack.Stacks, error)) []client.Finding {
	if q.Kind != wire.StacksEvidence {
		return nil
	}
	var found []client.Finding
	for _, p := range all {
		if ctx.Err() == nil && (len(q.Tasks) == 0 || slices.Contains(q.Tasks, p.Task)) {
			s, err := read(p.PID)
			found = addFinding(found, p.Task, stacksBody(s, err, q.Argument == wire.AllThreads))
		}
	}
	return found
}

// addFinding adds a task to the finding with the same words.
func addFinding(all []client.Finding, task serry.TaskID, body []byte) []client.Finding {
	for i := range all {
		if string(all[i].Body) == string(body) {
			all[i].Tasks = append(all[i].Tasks, task)
			return all
		}
	}
	return append(all, client.Finding{Tasks: []serry.TaskID{task}, Body: body})
}

// A TaskProcess is the process of a task on this host.
type TaskProcess struct {
	Task serry.TaskID
	PID  int
}

// processes lists the tasks of this host that run.
func (c *crew) processes() (all []TaskProcess) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, task := range sortedKeys(c.mu.living) {
		if l := c.mu.living[task]; l.process != nil {
			all = append(all, TaskProcess{worker(task), l.process.pid()})
		}
	}
	return all
}

// stacksBody is where the threads of a process are, in the words of an answer.
func stacksBody(s pystack.Stacks, err error, all bool) []byte {
	var list []wire.ThreadStack
	for i := range s.Threads {
		t := &s.Threads[i]
		stack := wire.ThreadStack{Doing: t.Doing(), Deeper: t.Deeper, Error: t.Unread}
		for _, f := range t.Frames {
			stack.Frames = append(stack.Frames, wire.StackFrame(f))
		}
		if all {
			stack.Name = fmt.Sprintf("thread %d %s", t.ID, t.Name)
		}
		if t.ID == s.PID && all {
			stack.Name = "main " + stack.Name
		}
		if t.ID == s.PID || all {
			list = append(list, stack)
		}
	}
	if len(list) == 0 {
		list = []wire.ThreadStack{{Error: "its main thread has ended"}}
	}
	if err != nil {
		list[0].Error = err.Error()
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(fmt.Sprintf("launch: %v", err)) // texts and numbers always have a text
	}
	return b
}

func (m *local) stacks(pid int) (pystack.Stacks, error) { return readStacks(pid) }

// readStacks reads the first Python in a process or below it.
func readStacks(pid int) (pystack.Stacks, error) {
	return pystack.First(append([]int{pid}, descendants(pid)...))
}

func (m *local) attend(address string, a client.Attendant, values <-chan storedValue) (stop func()) {
	t, err := client.Dial(address, client.DialOptions{})
	if err != nil {
		return func() {} // tasks cannot reach it either
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		// It ends with ctx, or because the service asks no questions.
		_ = client.Attend(ctx, t, a)
	})
	work.Go(func() {
		for {
			select {
			case v := <-values:
				storeValue(ctx, t, v)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
		t.Close()
	}
}
