package launch

import (
	"errors"
	"fmt"
)

// errJobOver is the answer to an order that comes too late.
var errJobOver = errors.New("the job is over")

// A failOrder says that a person wants the process of a task to end.
type failOrder struct {
	task    int
	why     string
	restart bool // only where it is started again then
	answer  chan<- failAnswer
}

// A failAnswer says what has become of a failOrder.
type failAnswer struct {
	said string
	err  error
}

// Fail ends the process of a task of a job, on whatever host, as if it had failed; Config.Restart says what follows. With restart it
// does so only if the task is started again then. said says what follows, and why is what people are told.
func (j *Job) Fail(task int, why string, restart bool) (said string, err error) {
	if j.cfg.Node > 0 {
		return "", errors.New("only the launcher of the first host can end a rank")
	}
	answer := make(chan failAnswer, 1)
	select {
	case j.inbox <- failOrder{task, why, restart, answer}:
	case <-j.over:
		return "", errJobOver
	}
	select {
	case a := <-answer:
		return a.said, a.err
	case <-j.ended:
		return "", errJobOver
	}
}

// failOrdered ends a task as a person wants.
func (j *Job) failOrdered(o failOrder) step {
	refuse := func(format string, args ...any) step {
		o.answer <- failAnswer{err: fmt.Errorf(format, args...)}
		return step{}
	}
	switch {
	case o.task < 0 || o.task >= len(j.plan.tasks):
		return refuse("the job has no rank %d", o.task)
	case j.plan.ending != notEnding || j.opening:
		return refuse("the attempt is ending")
	case j.plan.tasks[o.task].phase != running:
		return refuse("rank %d does not run", o.task)
	case o.restart && j.plan.restart == RestartNever:
		return refuse("no rank is started again: serry run was not given --restart failed or --restart all")
	case o.restart && j.plan.left == 0:
		return refuse("no restarts are left")
	}
	hand := j.places.hands[j.places.taskOn[o.task]]
	if hand == nil {
		return refuse("rank %d waits for a host", o.task)
	}
	l := j.lifetime(o.task)
	s := j.died(died{lifetime: l, Cause: Cause{Text: o.why, Code: 1}, raised: true, hung: true})
	said := j.consequence(o.task)
	j.warn("rank %d %s; %s", o.task, o.why, said)
	hand.fail(l, o.why)
	o.answer <- failAnswer{said: said}
	return s
}
