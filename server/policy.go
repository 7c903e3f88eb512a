package server

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// This file says who may call what. Without [Config.TaskURI] every client that gets in may make every call. With it
// a certificate says whom its holder speaks for: the tasks that it names, or, with the word operator in place of a
// number, people. Then each call, and each word of a host about a life, needs a certificate that allows it.

// A right is what a certificate must say for a call.
type right uint8

const (
	rightNone   right = iota // no certificate allows it
	rightOwn                 // it names the task that the call acts for
	rightMember              // it names any task of the job, or an operator; a task that the call names must be its own
	rightLook                // it is one of the authority
	rightRule                // it names an operator
)

// policy has the right that each call needs. A call without a line here is refused; TestPolicy compares it with
// the table of calls.
var policy = [coord.Kinds]right{
	coord.KindRegisterTask:    rightOwn,
	coord.KindHeartbeat:       rightOwn,
	coord.KindShutdownTask:    rightOwn,
	coord.KindResetTask:       rightOwn,
	coord.KindReportError:     rightOwn,
	coord.KindPollForError:    rightOwn,
	coord.KindBarrier:         rightOwn,
	coord.KindCancelBarrier:   rightOwn,
	coord.KindWaitForAllTasks: rightOwn,
	coord.KindGetAliveTasks:   rightOwn,
	coord.KindSuspect:         rightOwn,

	coord.KindInsertKeyValue:    rightMember,
	coord.KindSwapKeyValue:      rightMember,
	coord.KindIncrementKeyValue: rightMember,
	coord.KindDeleteKeyValue:    rightMember,
	coord.KindGetKeyValue:       rightMember,
	coord.KindTryGetKeyValue:    rightMember,
	coord.KindGetKeyValueDir:    rightMember,
	coord.KindListKeys:          rightMember,
	coord.KindWatchKeys:         rightMember,

	coord.KindWatchTasks:   rightLook,
	coord.KindGetTaskState: rightLook,
	coord.KindGetStatus:    rightLook,
}

// operatorName stands in the place of a number of a task in the certificate of people.
const operatorName = "operator"

// certified is a connection, or a host, whose peer may have shown a certificate. The connections of all
// transports implement it.
type certified interface {
	// PeerURIs are the URI names of the certificate.
	PeerURIs() []string
}

// A binding has the names that certificates must have to speak for tasks and for people. The zero value binds nothing.
// The names of all tasks are made once: a call then costs a look-up for each name of its certificate, and a
// certificate of another job, or for a task beyond the last one, is in no set.
type binding struct {
	template  string // Config.TaskURI
	tasks     map[string]bool
	operators map[string]bool
}

// newBinding makes the names for all tasks of the jobs, and for the people who operate them.
func newBinding(template string, jobs []coord.Job) binding {
	b := binding{template: template, tasks: make(map[string]bool), operators: make(map[string]bool)}
	if template == "" {
		return b
	}
	for _, j := range jobs {
		b.operators[nameIn(template, j.Name, operatorName)] = true
		for i := range j.Tasks {
			b.tasks[taskURI(template, serry.TaskID{Job: j.Name, Index: i})] = true
		}
	}
	return b
}

// judge says whether the peer may make a call, and takes from it what it may not say: hard evidence against a
// task that its certificate does not name counts as weak. A call that is refused leaves no trace.
//
// The handler asks this as soon as a call is decoded: before it looks at the table of heartbeats, since a
// heartbeat in the name of another task could keep a dead one alive, and before it queues the call, so that the
// machine never sees one that its sender may not make.
func (b binding) judge(c any, ev coord.Event) (coord.Event, bool) {
	if b.template == "" {
		return ev, true
	}
	caller, _ := coord.CallOf(ev)
	if !b.hold(c, policy[coord.KindOf(ev)], caller.Task) {
		return ev, false
	}
	if s, ok := ev.(coord.Suspect); ok && s.Hard && !b.mayBe(c, s.Peer.Task) {
		s.Hard = false
		ev = s
	}
	return ev, true
}

// hold says whether the certificate of the peer has a right, for a call that names a task or none. rightMember is
// where the two differ: calls about keys name no task in most clients, so any task of the job may make them; but
// one that does name a task must be allowed to speak for it, else a task could act in the name of another.
func (b binding) hold(c any, r right, t serry.TaskID) bool {
	if b.template == "" {
		return true
	}
	switch operator := shows(c, b.operators); r {
	case rightLook:
		return true
	case rightOwn:
		return b.mayBe(c, t)
	case rightMember:
		return operator || b.mayBe(c, t) || t.IsZero() && shows(c, b.tasks)
	case rightRule:
		return operator
	}
	return false
}

// mayBe says whether the peer may speak for a task: where names in certificates are bound to tasks, its
// certificate must name that one (A-TLS-10).
func (b binding) mayBe(c any, t serry.TaskID) bool {
	return b.template == "" || slices.Contains(uris(c), taskURI(b.template, t))
}

// shows says whether the certificate of the peer has one of these names.
func shows(c any, any map[string]bool) bool {
	return slices.ContainsFunc(uris(c), func(uri string) bool { return any[uri] })
}

// uris are the URI names that the peer has shown. A virtual connection has those of its host: a relay shows its
// own certificate, which must name every task that it speaks for.
func uris(c any) []string {
	if peer, ok := c.(certified); ok {
		return peer.PeerURIs()
	}
	return nil
}

// taskURI is the name that the certificate of a task must have.
func taskURI(template string, t serry.TaskID) string {
	return nameIn(template, t.Job, strconv.Itoa(t.Index))
}

// nameIn fills a template. The name of the job is escaped: it is the user's, and a slash in it would make another
// path of the URI.
func nameIn(template, job, task string) string {
	return strings.NewReplacer("{job}", url.PathEscape(job), "{task}", task).Replace(template)
}

// refusal is the answer to a call that the caller's certificate does not allow. It has no payload: stock clients
// take an error with one for a statement about the job, and would end it.
func (b binding) refusal(what string, t serry.TaskID) rpc.Status {
	text := fmt.Sprintf("the certificate names no task of this job, which %s needs: want %s", what, b.template)
	if !t.IsZero() {
		text = fmt.Sprintf("the certificate does not name task %v: want %s", t, taskURI(b.template, t))
	}
	return rpc.Status{Code: codes.PermissionDenied, Message: text}
}

// noOperator is the answer to a call of people whose certificate names no operator.
func (b binding) noOperator() error {
	return fmt.Errorf("the certificate names no operator: want %s", strings.ReplaceAll(b.template, "{task}", operatorName))
}

// checkTaskURI says what is wrong with a template.
func (c Config) checkTaskURI() error {
	switch {
	case c.TaskURI == "":
		return nil
	case c.TLS == nil:
		return fmt.Errorf("task URI %q: want TLS with it", c.TaskURI)
	case !strings.Contains(c.TaskURI, "{task}"):
		return fmt.Errorf("task URI %q: want {task} in it, and {job} where there are several", c.TaskURI)
	}
	return nil
}
