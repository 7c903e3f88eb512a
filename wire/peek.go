package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
)

// A Caller is what a request says of its sender, and which call it is. A relay decides by it, without
// decoding the rest; see [Peek].
type Caller struct {
	Shape       Shape        // of errors; what a result needs of the request is not in it
	Kind        coord.Kind   // of the call; or zero
	Task        serry.TaskID // as the caller writes it, so without a job in dialect XLA; or zero
	Incarnation serry.Incarnation
	Identified  bool              // it has a request id inside, as calls of serry's own dialect may
	Service     serry.Incarnation // the epoch it means; or zero
	Version     int64             // of a watch
	Job         string            // of a watch in dialect TF
}

// Peek reads of a request what a relay must know and nothing else: values, lists and fields it has
// never heard of are passed over, and nothing of body is kept. ok is false for a request that cannot
// be read; it may be passed on all the same, for the service to refuse.
func Peek(path string, body []byte) (c Caller, ok bool) {
	m, known := methods[path]
	if !known {
		return Caller{}, false
	}
	c = Caller{Shape: Shape{Dialect: m.dialect, Op: m.op}, Kind: kindOf(m.op)}
	switch m.dialect {
	case XLA:
		ok = c.peekXLA(body, xlaPlaces[m.op])
	case TF:
		ok = c.peekTF(body, tfPlaces[m.op])
	case Serry:
		ok = c.peekOwn(body)
	}
	c.Shape.task = c.Task
	return c, ok && len(c.Task.Job) <= coord.MaxNameBytes && len(c.Job) <= coord.MaxNameBytes
}

// kindOf is the kind of an operation that the machine knows, or zero.
func kindOf(o Op) coord.Kind {
	if o < coord.Kinds {
		return coord.Kind(o)
	}
	return 0
}

// Watches says whether the request waits for a change of the tasks in the dialect XLA or TF. A relay can
// ask that once for all who ask the same; see [Caller.Watch].
func (c Caller) Watches() bool { return c.Kind == coord.KindWatchTasks && c.Shape.Dialect != Serry }

// Known is the shape of the request once the service has said how it calls the task. Where the two
// names of the job differ the cluster has one job, which replies call as the caller does (C-VER-1).
func (c Caller) Known(task serry.TaskID) Shape {
	s := c.Shape
	if c.Task.Job != task.Job {
		s.oneJob, s.job = true, c.Task.Job
	}
	return s
}

// Watch is the caller's question for the tasks with another version, as a request of its own: asked
// on behalf of all callers that ask the same.
func (c Caller) Watch(version int64, service serry.Incarnation) (body []byte) {
	if c.Shape.Dialect == XLA {
		var who []byte
		who = protowire.AppendTag(who, xlaServiceField, protowire.Fixed64Type)
		who = protowire.AppendFixed64(who, uint64(service))
		body = protowire.AppendTag(body, xlaWhoField, protowire.BytesType)
		body = protowire.AppendBytes(body, who)
	} else {
		body = protowire.AppendTag(body, tfJobField, protowire.BytesType)
		body = protowire.AppendString(body, c.Job)
	}
	body = protowire.AppendTag(body, versionField, protowire.VarintType)
	return protowire.AppendVarint(body, uint64(version))
}

// OutOfReach is the answer to calls that wait at a relay which has given up on the service
// (A-SIDE-10).
func OutOfReach() rpc.Status { return Shape{}.Refuse(outOfReach) }

// Where requests of both dialects have what a relay looks at. A place is the number of a field, 0 for
// none.
type places struct{ task, own, version protowire.Number }

const (
	xlaWhoField     = 1 // Incarnations, of every request but RegisterTask
	xlaLifeField    = 2 // within it
	xlaServiceField = 3 // within it
	tfJobField      = 1 // of a watch
	versionField    = 2 // of a watch, in both dialects
)

var xlaPlaces = map[Op]places{
	opRegister: {task: 5, own: 3}, opHeartbeat: {task: 3, own: 2}, opPoll: {task: 2}, opReport: {task: 2},
	opShutdown: {task: 2}, opBarrier: {task: 5}, opCancel: {task: 4}, opAlive: {task: 2}, opWatch: {version: versionField},
}

var tfPlaces = map[Op]places{
	opRegister: {task: 5, own: 3}, opHeartbeat: {task: 4, own: 3}, opPoll: {task: 1}, opWaitAll: {task: 5},
	opShutdown: {task: 1}, opReset: {task: 1}, opReport: {task: 5}, opBarrier: {task: 4}, opCancel: {task: 2},
	opAlive: {task: 1}, opWatch: {version: versionField},
}

func (c *Caller) peekXLA(body []byte, at places) bool {
	if c.Shape.Op == opRegister {
		at.version = -1 // no Incarnations: a field 1 of another meaning stays unread
	}
	return eachField(body, func(f field) bool {
		switch {
		case f.number == at.own && f.typ == protowire.Fixed64Type:
			c.Incarnation = serry.Incarnation(f.value)
		case f.number == at.task && f.typ == protowire.VarintType:
			c.Task.Index = int(int32(f.value))
		case f.number == at.version && f.typ == protowire.VarintType:
			c.Version = int64(f.value)
		case f.number == xlaWhoField && f.typ == protowire.BytesType && at.version >= 0:
			return eachField(f.bytes, func(f field) bool { c.readLife(f, at.own == 0); return true })
		}
		return true
	})
}

// readLife reads a field of Incarnations. The life of a heartbeat stands beside it, too, and counts
// there.
func (c *Caller) readLife(f field, own bool) {
	switch {
	case f.typ != protowire.Fixed64Type:
	case f.number == xlaLifeField && own:
		c.Incarnation = serry.Incarnation(f.value)
	case f.number == xlaServiceField:
		c.Service = serry.Incarnation(f.value)
	}
}

func (c *Caller) peekTF(body []byte, at places) bool {
	return eachField(body, func(f field) bool {
		switch {
		case f.number == at.own && f.typ == protowire.Fixed64Type:
			c.Incarnation = serry.Incarnation(f.value)
		case f.number == at.task && f.typ == protowire.BytesType:
			return c.readTask(f.bytes)
		case f.number == at.version && f.typ == protowire.VarintType:
			c.Version = int64(f.value)
		case f.number == tfJobField && at.version > 0 && f.typ == protowire.BytesType:
			c.Job = string(f.bytes)
			return utf8.Valid(f.bytes)
		}
		return true
	})
}

// readTask reads a task with its job, which has the same form in two dialects.
func (c *Caller) readTask(b []byte) bool {
	return eachField(b, func(f field) bool {
		switch {
		case f.number == 1 && f.typ == protowire.BytesType:
			c.Task.Job = string(f.bytes)
			return utf8.Valid(f.bytes)
		case f.number == 2 && f.typ == protowire.VarintType:
			c.Task.Index = int(int32(f.value))
		}
		return true
	})
}

func (c *Caller) peekOwn(body []byte) bool {
	return eachField(body, func(f field) bool {
		switch {
		case f.number == 2 && f.typ == protowire.Fixed64Type:
			c.Service = serry.Incarnation(f.value)
		case f.number == 3 && f.typ == protowire.BytesType:
			return c.readTask(f.bytes)
		case f.number == 4 && f.typ == protowire.Fixed64Type:
			c.Incarnation = serry.Incarnation(f.value)
		case f.number == 1 && f.typ == protowire.BytesType:
			c.Identified = true
		case f.typ == protowire.BytesType:
			if call, ok := serryCalls[f.number]; ok {
				c.Shape.Op, c.Kind = Op(call.kind), call.kind
			}
		}
		return true
	})
}

// A field of a message. Of value and bytes one counts, by typ.
type field struct {
	number protowire.Number
	typ    protowire.Type
	value  uint64
	bytes  []byte
}

// eachField visits the fields of a message until visit says no. It says whether all were visited.
func eachField(b []byte, visit func(field) bool) bool {
	for len(b) > 0 {
		f := field{}
		var n int
		if f.number, f.typ, n = protowire.ConsumeTag(b); n < 0 {
			return false
		}
		b = b[n:]
		switch f.typ {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(f.number, f.typ, b)
		}
		if n < 0 || !visit(f) {
			return false
		}
		b = b[n:]
	}
	return true
}
