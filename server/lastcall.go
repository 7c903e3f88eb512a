package server

import (
	"strings"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
)

// A lastCall is the newest call of a task that its program has caused. For a job that stands still in a place
// that the service does not see, such as a collective, it is the last trace of what each task did: the task that
// made its last call first is often the one that the others wait for.
//
// It is no part of the machine and is not journaled. A server that takes over knows no last calls until tasks call
// again, and says so by leaving them out, since a stale one would name the wrong task.
type lastCall struct {
	kind coord.Kind // 0: there was none since this server leads
	of   string     // the barrier or the key that it is about
	at   coord.Time // on the clock
	req  coord.Req  // by which owner.waiting finds it while it is not answered
}

// lastOf bounds the name that is kept of a barrier or a key, in bytes. Clients choose names, and each task keeps
// one for as long as the server leads.
const lastOf = 200

// noteCall keeps a call as the newest one of its task. Clients send heartbeats, polls and watches by themselves,
// whatever their program does, so these are left out; so are questions of people.
//
// It runs after the step. By then a registration may have opened another epoch, and only then is it known
// whether the call was answered.
func (o *owner) noteCall(it *item, kind coord.Kind, task serry.TaskID) {
	switch kind {
	case coord.KindHeartbeat, coord.KindPollForError, coord.KindWatchTasks, coord.KindGetStatus:
		return
	}
	p := it.from.peer
	if task.IsZero() {
		task = p.onlyTask()
	}
	s := o.epoch.task(task)
	if s == nil {
		return
	}
	o.epoch.wrote(it.event, task)
	s.last = lastCall{kind: kind, of: subject(it.event), at: o.now, req: it.req}
	if w := p.calls[it.from.call]; !o.answered && w != nil {
		s.last.req = w.req // a get may have joined an equal one
	}
}

// maxFolders bounds the folders whose last writers are kept. Clients choose names.
const maxFolders = 1 << 10

// wrote keeps a task as the last writer of a folder. Keys outside of folders have nothing in common. The answer
// to the write does not matter: a task whose key exists already is still the task that writes in the folder.
func (e *epoch) wrote(ev coord.Event, task serry.TaskID) {
	switch ev.(type) {
	case coord.InsertKeyValue, coord.SwapKeyValue, coord.IncrementKeyValue:
	default:
		return
	}
	folder, ok := wire.FolderOf(subject(ev))
	if _, known := e.writers[folder]; !ok || !known && len(e.writers) >= maxFolders {
		return
	}
	e.writers[folder] = task
}

// subject is the barrier or the key that a call is about, or empty. A long name is cut, and its copy does not hold
// the bytes of the whole request in memory.
func subject(ev coord.Event) string {
	name := ""
	switch ev := ev.(type) {
	case coord.Barrier:
		name = ev.ID
	case coord.InsertKeyValue:
		name = ev.Key
	case coord.SwapKeyValue:
		name = ev.Key
	case coord.IncrementKeyValue:
		name = ev.Key
	case coord.DeleteKeyValue:
		name = ev.Key
	case coord.GetKeyValue:
		name = ev.Key
	case coord.TryGetKeyValue:
		name = ev.Key
	case coord.GetKeyValueDir:
		name = ev.Dir
	}
	if len(name) > lastOf {
		return strings.Clone(name[:lastOf]) // the rest can go
	}
	return name
}

// onlyTask is the task that registered on this connection, if it is one: calls about keys do not name their task.
// With several tasks on a connection, as behind a plain proxy, such a call counts for none of them: a guess could
// make a task that hangs look busy.
func (p *peer) onlyTask() serry.TaskID {
	var found serry.TaskID
	for _, c := range p.carried() {
		switch {
		case !c.registered || c.Task == found:
		case !found.IsZero():
			return serry.TaskID{}
		default:
			found = c.Task
		}
	}
	return found
}

// addBooks adds what the account of the job says.
//
// The account numbers tasks as the epoch does, in the order in which the jobs were configured. The machine
// sorts jobs by name. So an index into the tasks of the view is not the number of a task, and each task is
// looked up by its name.
func (o *owner) addBooks(r *wire.Report, v coord.View) {
	b := o.accountant.books(o.now)
	r.Goodput = b.goodput
	for _, s := range b.stragglers {
		who := wire.Straggler{Straggler: s}
		if s.Rank >= 0 && s.Rank < len(o.epoch.tasks) {
			who.Task = o.epoch.tasks[s.Rank].task
		}
		r.Stragglers = append(r.Stragglers, who)
	}
	if b.steps == nil {
		return
	}
	r.Steps = make([]int64, len(v.Tasks))
	for i := range v.Tasks {
		if r.Steps[i] = -1; o.epoch.task(v.Tasks[i].Task) != nil {
			r.Steps[i] = b.steps[o.epoch.task(v.Tasks[i].Task).number]
		}
	}
}

// status adds to the status of the machine what the server knows besides: who leads, when each task was seen, how
// long barriers take as a rule, and the last calls. The last calls cost an entry a task, so they are added only
// where the question asks for them. Sight is a function because heartbeats go on while the reply waits for the
// journal; it is evaluated when the reply is written.
func (o *owner) status(s coord.Status, shape wire.Shape) wire.Report {
	r := o.history.report(s, time.Now())
	r.Leader, r.Term, r.Takeover = o.handler.address, o.handler.term, o.handler.takeover
	e, clock := o.epoch, o.clock
	r.Sight = func(task serry.TaskID) (time.Duration, string) { return e.sight(task, clock.now()) }
	for _, b := range s.View.Barriers {
		r.Usual = append(r.Usual, o.usual.of(b.ID))
	}
	o.addBooks(&r, s.View)
	if !shape.AsksForCalls() {
		return r
	}
	r.Calls, r.Writers = make([]wire.LastCall, len(s.View.Tasks)), make(map[string]string)
	for i := range s.View.Tasks {
		if t := o.epoch.task(s.View.Tasks[i].Task); t != nil && t.last.kind != 0 {
			r.Calls[i] = wire.LastCall{
				Kind: t.last.kind, Of: t.last.of, Ago: o.now - t.last.at, Waits: o.waiting[t.last.req] != nil,
			}
			// A get waits for a key that no task has written. The task that wrote last in the same folder is
			// likely to write this key, too, so people are told its name (D-EV-4).
			if folder, ok := wire.FolderOf(t.last.of); ok && r.Calls[i].Waits && t.last.kind == coord.KindGetKeyValue {
				if task, ok := e.writers[folder]; ok {
					r.Writers[folder] = task.String()
				}
			}
		}
	}
	return r
}
