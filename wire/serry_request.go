package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/serrypb"
)

// serry's own messages have the form of events, so that nothing has to be guessed: who calls stands
// in every request, a call sent again has its id, and errors come back with their facts.

// serryRequest turns an event into a request of serry's own dialect.
func serryRequest(ev coord.Event) (*serrypb.Request, error) {
	c, isCall := coord.CallOf(ev)
	field := serryFields[coord.KindOf(ev)]
	if !isCall || field == 0 {
		return nil, fmt.Errorf("%T is not a call", ev)
	}
	r := new(serrypb.Request)
	serryCaller(r, c)
	serryCalls[field].write(r, ev)
	return r, nil
}

func serryCaller(r *serrypb.Request, c coord.Call) {
	r.Service, r.Incarnation, r.Task = uint64(c.Service), uint64(c.Incarnation), serryTask(c.Task)
	if c.ID != (coord.RequestID{}) {
		r.Id = &serrypb.RequestID{Requester: c.ID.Requester, Number: c.ID.Number, Watermark: c.ID.Watermark}
	}
}

func serryTask(t serry.TaskID) *serrypb.Task {
	if t.IsZero() {
		return nil
	}
	return &serrypb.Task{Job: t.Job, Index: int32(t.Index)}
}

func serryTasks(ids []serry.TaskID) []*serrypb.Task {
	return each(ids, func(t serry.TaskID) *serrypb.Task { return &serrypb.Task{Job: t.Job, Index: int32(t.Index)} })
}

// serryDo reads a request of serry's own dialect.
func (d *decoder) serryDo(body []byte) (coord.Event, error) {
	field, listed := scanOwn(body)
	if err := d.checkList(listed); err != nil {
		return nil, err
	}
	r := new(serrypb.Request)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, r); err != nil {
		return nil, &serry.InvalidError{What: "not a request of serry"}
	}
	call := coord.Call{
		Req:         d.origin.Req,
		ID:          coord.RequestID{Requester: r.GetId().GetRequester(), Number: r.GetId().GetNumber(), Watermark: r.GetId().GetWatermark()},
		Service:     serry.Incarnation(r.GetService()),
		Task:        d.serryTask(r.GetTask()),
		Incarnation: serry.Incarnation(r.GetIncarnation()),
	}
	if r.GetId() == nil { // it may have one beside it: from a relay
		call.ID = d.origin.ID
	}
	d.shape.task = call.Task
	known, ok := serryCalls[field]
	if !ok {
		return nil, &serry.InvalidError{What: "a call that this server does not know"}
	}
	ev, err := known.read(d, r, call)
	if err != nil {
		return nil, err
	}
	d.shape.Op = Op(known.kind)
	return ev, nil
}

// scanOwn finds the call of a request, as the number of the field that it is in, and counts the tasks that
// the request lists, before memory is spent on them. Where there are several calls the last one counts, as
// for the generated code.
func scanOwn(body []byte) (call protowire.Number, listed int) {
	eachField(body, func(f field) bool {
		known, ok := serryCalls[f.number]
		if ok && f.typ == protowire.BytesType {
			call = f.number
			if known.tasks != 0 {
				listed += list{field: known.tasks}.len(f.bytes)
			}
		}
		return true
	})
	return call, listed
}

// serryTask reads a task. Where the cluster has one job its name need not be given.
func (d *decoder) serryTask(t *serrypb.Task) serry.TaskID {
	if t == nil {
		return serry.TaskID{}
	}
	id := serry.TaskID{Job: t.GetJob(), Index: int(t.GetIndex())}
	if id.Job == "" && len(d.codec.jobs) == 1 {
		id.Job = d.codec.jobs[0].Name
	}
	return id
}

func (d *decoder) serryTasks(list []*serrypb.Task) []serry.TaskID { return each(list, d.serryTask) }
