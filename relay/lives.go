package relay

import (
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A life is one incarnation of a task that came by this relay: what the relay must know to answer its
// heartbeats, and to tell the service how it ended. It is guarded by Relay.mu.
type life struct {
	// The task, as the client names it, and as the service does. Clients of dialect XLA name no job, and in a
	// cluster of one job any name will do, so the two may differ; the second is zero until the service has
	// told it.
	task, serviceTask serry.TaskID
	incarnation       serry.Incarnation
	service           serry.Incarnation // the epoch that accepted it, or 0

	// What the service has told of the life. Before told is set, the relay cannot answer for it.
	told  bool
	state serry.TaskState
	err   error // with Failed: why

	open  int    // connections that carry it
	order uint64 // of its last registration, among all of the relay

	// Error polls. The client dies if its connection breaks under a poll, so the last poll that the service
	// has not answered says what the end of the last connection means (C-LOST-4).
	polls    map[pollKey]struct{} // that wait
	poll     pollKey              // the last one, while it has no answer; or zero
	resumes  bool                 // the client is one of serry's own: it may come back on another connection
	reported bool                 // the service was told that the last connection has closed
}

// A pollKey is where an error poll waits.
type pollKey struct {
	client *client
	call   rpc.CallID
}

// name is how the service knows the life, as far as the relay can tell.
func (l *life) name() serry.Life {
	task := l.serviceTask
	if task.IsZero() {
		task = l.task
	}
	return serry.Life{Task: task, Incarnation: l.incarnation}
}

// maxGone is how many lives without a connection are remembered: the end of a process is seen after the end of
// its connections, and must still find its life.
const maxGone = 1 << 10

// lives is the table of the lives that came by the relay. Incarnations are random, so one alone names a
// life, also where the client and the service call the job by different names.
type lives struct {
	max   int // set once: of those in the table
	of    map[serry.Incarnation]*life
	order uint64  // of the last registration
	gone  []*life // lives that lost their last connection, the oldest first; some have come back
}

func newLives(max int) lives { return lives{max: max, of: make(map[serry.Incarnation]*life)} }

// register notes that a life registers on a connection. It returns nil if the table is full: then the service
// answers its heartbeats.
func (t *lives) register(c *client, who wire.Caller) *life {
	l := t.find(who)
	if l == nil {
		return nil
	}
	t.order++
	l.order = t.order
	c.forget(l)
	c.lives = append(c.lives, l)
	return l
}

// find returns the life that a call names, and adds it to the table if it is new: it registers here, or it
// registered by another relay and sends its heartbeats here now. It returns nil if the call names none, or
// the table is full.
func (t *lives) find(who wire.Caller) *life {
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
		same := l.task.Index == task.Index && (l.serviceTask == task || l.serviceTask.IsZero() && (l.task.Job == "" || l.task == task))
		if same && (found == nil || found.order < l.order) {
			found = l
		}
	}
	return found
}

// standing takes over what the service says of a life (C-HB-8), and returns the life, or nil if it is forgotten.
func (t *lives) standing(s stream.Standing) *life {
	l := t.of[s.Incarnation]
	if l == nil {
		return nil
	}
	l.serviceTask, l.told, l.state, l.err = s.Task, true, s.State, nil
	if s.State == serry.Failed {
		l.err = wire.UnmarshalError(s.Error)
	}
	if s.Service != 0 && l.service == 0 && s.State == serry.Connected {
		l.service = s.Service
	}
	return l
}

// beat says how the relay answers a heartbeat, if it can (A-SIDE-3). A heartbeat that the table cannot answer, or
// that would change something at the service, goes there.
func (l *life) beat(who wire.Caller, service serry.Incarnation, down bool) (body []byte, st rpc.Status, ok bool) {
	shape := who.Known(l.name().Task)
	switch {
	case !l.told:
		return nil, rpc.Status{}, false
	case l.state == serry.Failed:
		err := &serry.TaskError{Task: l.serviceTask, Incarnation: l.incarnation, Reason: l.err, Err: serry.ErrAlreadyFailed}
		body, st = shape.Encode(coord.Reply{Err: err})
	case l.state == serry.Connected, down:
		// A client that has left may still beat for a while (C-SHUT-10); while the service is out of reach,
		// the relay answers in its place.
		body, st = shape.Encode(coord.Reply{Result: coord.Registered{Service: service}})
	default:
		return nil, rpc.Status{}, false
	}
	return body, st, true
}
