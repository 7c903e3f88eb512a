package wire

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/serrypb"
)

// encodeOwn puts result and error alike into the message.
func (s Shape) encodeOwn(r coord.Reply) ([]byte, rpc.Status) {
	m, err := s.serryReply(r)
	if err != nil {
		return nil, s.Refuse(err)
	}
	body, err := proto.Marshal(m)
	if err != nil {
		return nil, s.Refuse(err)
	}
	return body, rpc.Status{}
}

// serryReply makes the reply of serry's own dialect. It carries errors, too.
func (s Shape) serryReply(r coord.Reply) (*serrypb.Reply, error) {
	p := new(serrypb.Reply)
	if r.Err != nil {
		p.Result = &serrypb.Reply_Error{Error: serryError(r.Err)}
		return p, nil
	}
	switch r := r.Result.(type) {
	case nil, coord.Done:
		p.Result = &serrypb.Reply_Done{Done: new(serrypb.Empty)}
	case coord.Registered:
		p.Result = &serrypb.Reply_Registered{Registered: &serrypb.Registered{Service: uint64(r.Service)}}
	case coord.Passed:
		p.Result = &serrypb.Reply_Passed{Passed: &serrypb.Passed{Counter: r.Counter}}
	case coord.Value:
		p.Result = &serrypb.Reply_Value{Value: &serrypb.Entry{Key: r.Key, Value: r.Value}}
	case coord.Entries:
		p.Result = &serrypb.Reply_Entries{Entries: &serrypb.Entries{Entries: each(r.Entries, func(e coord.Entry) *serrypb.Entry {
			return &serrypb.Entry{Key: e.Key, Value: e.Value}
		})}}
	case coord.Changes:
		m := &serrypb.Changes{Revision: r.Revision, Reset_: r.Reset}
		m.Changes = each(r.Changes, func(c coord.Change) *serrypb.Change {
			return &serrypb.Change{Key: c.Key, Value: c.Value, Revision: c.Revision, Deleted: c.Deleted}
		})
		p.Result = &serrypb.Reply_Changes{Changes: m}
	case coord.Sizes:
		p.Result = &serrypb.Reply_Sizes{Sizes: &serrypb.Sizes{Keys: each(r.Keys, func(k coord.KeySize) *serrypb.Size {
			return &serrypb.Size{Key: k.Key, Size: k.Size}
		})}}
	case *coord.Picture:
		m := &serrypb.Picture{Version: r.Version}
		for i := range r.Tasks {
			m.Tasks = append(m.Tasks, serryInfo(&r.Tasks[i]))
		}
		p.Result = &serrypb.Reply_Picture{Picture: m}
	case *coord.Alive:
		p.Result = &serrypb.Reply_Agreement{Agreement: &serrypb.Agreement{
			Tasks: serryTasks(r.Tasks), Words: r.Words, Incarnations: each(r.Incarnations, plainIncarnation),
		}}
	case coord.AllDevices:
		p.Result = &serrypb.Reply_Devices{Devices: &serrypb.Devices{Devices: r.Devices}}
	case coord.Status:
		return s.serryReply(coord.Reply{Result: Report{Status: r}})
	case Report:
		status := NewStatus(r, s.query)
		rows := status.takeRows(s.query)
		text, err := json.Marshal(status)
		if err != nil {
			return nil, err
		}
		p.Result = &serrypb.Reply_Status{Status: &serrypb.Status{Json: text, Tasks: rows}}
	default:
		return nil, fmt.Errorf("no form for a result of type %T", r)
	}
	return p, nil
}

func serryInfo(t *coord.TaskInfo) *serrypb.TaskInfo {
	info := &serrypb.TaskInfo{Task: serryTask(t.Task), State: int32(t.State), Incarnation: uint64(t.Incarnation)}
	if t.Err != nil {
		info.Error = serryError(t.Err)
	}
	return info
}

// readSerryReply is the way back: what the server said, as a result or an error of package serry.
func readSerryReply(body []byte) (coord.Result, error) {
	p := new(serrypb.Reply)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, p); err != nil {
		return nil, fmt.Errorf("reply of the server: %w", err)
	}
	switch r := p.GetResult().(type) {
	case *serrypb.Reply_Error:
		return nil, readSerryError(r.Error)
	case *serrypb.Reply_Done:
		return coord.Done{}, nil
	case *serrypb.Reply_Registered:
		return coord.Registered{Service: serry.Incarnation(r.Registered.GetService())}, nil
	case *serrypb.Reply_Passed:
		return coord.Passed{Counter: r.Passed.GetCounter()}, nil
	case *serrypb.Reply_Value:
		return coord.Value{Key: r.Value.GetKey(), Value: r.Value.GetValue()}, nil
	case *serrypb.Reply_Entries:
		return coord.Entries{Entries: each(r.Entries.GetEntries(), func(e *serrypb.Entry) coord.Entry {
			return coord.Entry{Key: e.GetKey(), Value: e.GetValue()}
		})}, nil
	case *serrypb.Reply_Changes:
		cs := coord.Changes{Revision: r.Changes.GetRevision(), Reset: r.Changes.GetReset_()}
		for _, c := range r.Changes.GetChanges() {
			cs.Changes = append(cs.Changes, coord.Change{
				Entry: coord.Entry{Key: c.GetKey(), Value: c.GetValue()}, Revision: c.GetRevision(), Deleted: c.GetDeleted(),
			})
		}
		return cs, nil
	case *serrypb.Reply_Sizes:
		return coord.Sizes{Keys: each(r.Sizes.GetKeys(), func(k *serrypb.Size) coord.KeySize {
			return coord.KeySize{Key: k.GetKey(), Size: k.GetSize()}
		})}, nil
	case *serrypb.Reply_Picture:
		return &coord.Picture{Version: r.Picture.GetVersion(), Tasks: each(r.Picture.GetTasks(), readSerryInfo)}, nil
	case *serrypb.Reply_Agreement:
		return readSerryAgreement(r.Agreement)
	case *serrypb.Reply_Devices:
		return coord.AllDevices{Devices: r.Devices.GetDevices()}, nil
	}
	return nil, fmt.Errorf("reply of the server: a result that this client does not know")
}

func readSerryInfo(t *serrypb.TaskInfo) coord.TaskInfo {
	info := coord.TaskInfo{Task: readSerryTask(t.GetTask()), State: serry.TaskState(t.GetState()), Incarnation: serry.Incarnation(t.GetIncarnation())}
	if t.GetError() != nil {
		info.Err = readSerryError(t.GetError())
	}
	return info
}

func readSerryAgreement(a *serrypb.Agreement) (coord.Result, error) {
	n := len(a.GetTasks())
	if len(a.GetIncarnations()) != n || len(a.GetWords()) != n {
		return nil, fmt.Errorf("reply of the server: %d tasks with %d incarnations and %d words", n, len(a.GetIncarnations()), len(a.GetWords()))
	}
	return &coord.Alive{
		Tasks: each(a.GetTasks(), readSerryTask), Words: a.GetWords(),
		Incarnations: each(a.GetIncarnations(), func(i uint64) serry.Incarnation { return serry.Incarnation(i) }),
	}, nil
}

func readSerryTask(t *serrypb.Task) serry.TaskID {
	return serry.TaskID{Job: t.GetJob(), Index: int(t.GetIndex())}
}
