package relay

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A life is one incarnation of a task that came by this relay. It is guarded by Relay.mu.
type life struct {
	task        serry.TaskID // as the client writes it
	known       serry.TaskID // as the service does; zero until it has spoken of it
	incarnation serry.Incarnation
	service     serry.Incarnation // the epoch that took it, or 0
	said        bool              // the service has spoken: state and err are its words
	state       serry.TaskState
	err         error // with Failed: why
	open        int   // connections that carry it
	order       uint64
	polls       map[pollKey]struct{} // error polls that wait
	poll        pollKey              // the last one, while the service has not answered it; or zero
	resumes     bool                 // the client is one of serry's own: it may come back on another connection
	reported    bool                 // the service was told that its last connection has closed
}

// A pollKey is where an error poll waits.
type pollKey struct {
	client *client
	call   rpc.CallID
}

// name is how the service knows the life.
func (l *life) name() stream.Life {
	task := l.known
	if task.IsZero() {
		task = l.task
	}
	return stream.Life{Task: task, Incarnation: l.incarnation}
}

// maxGone is how many lives without a connection are remembered: a process is seen to end after its
// connections are.
const maxGone = 1 << 10

// lives is the table of the lives that came by the relay. Incarnations are random, so one alone names a
// life, also where the client and the service call the job by different names.
type lives struct {
	max   int // set once
	of    map[serry.Incarnation]*life
	order uint64
	gone  []*life // without a connection, the longest gone first
}

func newLives(max int) lives { return lives{max: max, of: make(map[serry.Incarnation]*life)} }

// register notes that a life registers on a connection. One that does not fit in is not remembered; its
// heartbeats are for the service to answer.
func (t *lives) register(c *client, who wire.Caller) *life {
	l := t.meet(who)
	if l == nil {
		return nil
	}
	t.order++
	l.order = t.order
	c.forget(l)
	c.lives = append(c.lives, l)
	return l
}

// meet makes room for a life that names itself, or returns nil: one that registers, or that registered by
// another relay and sends its heartbeats here now.
func (t *lives) meet(who wire.Caller) *life {
	l := t.of[who.Incarnation]
	switch {
	case who.Incarnation == 0:
		return nil
	case l == nil && len(t.of) >= t.max:
		return nil
	case l == nil:
		l = &life{task: who.Task, incarnation: who.Incarnation, polls: make(map[pollKey]struct{})}
		t.of[who.Incarnation] = l
	}
	return l
}

// leave notes that a connection of a life has closed, and says whether it was the last.
func (t *lives) leave(l *life) bool {
	if l.open--; l.open > 0 {
		return false
	}
	t.gone = append(t.gone, l)
	return true
}

// evict takes out a life that has been gone for long, if there are too many, or returns nil.
func (t *lives) evict() *life {
	for len(t.gone) > maxGone {
		old := t.gone[0]
		t.gone = t.gone[1:]
		if old.open == 0 && t.of[old.incarnation] == old {
			delete(t.of, old.incarnation)
			return old
		}
	}
	return nil
}

// last is the life of a task that registered last, or nil. The task may be named as the service or as
// the client does; clients of dialect XLA name no job.
func (t *lives) last(task serry.TaskID) *life {
	var found *life
	for _, l := range t.of {
		same := l.task.Index == task.Index && (l.known == task || l.known.IsZero() && (l.task.Job == "" || l.task == task))
		if same && (found == nil || found.order < l.order) {
			found = l
		}
	}
	return found
}

// standing takes over what the service says of a life (C-HB-8).
func (t *lives) standing(s stream.Standing) {
	l := t.of[s.Incarnation]
	if l == nil {
		return
	}
	l.known, l.said, l.state, l.err = s.Task, true, s.State, nil
	if s.State == serry.Failed {
		l.err = wire.UnmarshalError(s.Error)
	}
	if s.Service != 0 && l.service == 0 && s.State == serry.Connected {
		l.service = s.Service
	}
}

// beat says how a heartbeat is answered here, if it is (A-SIDE-3). Whatever the table cannot tell, and
// what would change something, is for the service.
func (l *life) beat(who wire.Caller, service serry.Incarnation, down bool) (body []byte, st rpc.Status, ok bool) {
	shape := who.Known(l.name().Task)
	switch {
	case !l.said:
		return nil, rpc.Status{}, false
	case l.state == serry.Failed:
		err := &serry.TaskError{Task: l.known, Incarnation: l.incarnation, Reason: l.err, Err: serry.ErrAlreadyFailed}
		body, st = shape.Encode(coord.Reply{Err: err})
	case l.state == serry.Connected, down: // who has left may still call for a while (C-SHUT-10)
		body, st = shape.Encode(coord.Reply{Result: coord.Registered{Service: service}})
	default:
		return nil, rpc.Status{}, false
	}
	return body, st, true
}
