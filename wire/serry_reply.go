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
		m := new(serrypb.Entries)
		for _, e := range r.Entries {
			m.Entries = append(m.Entries, &serrypb.Entry{Key: e.Key, Value: e.Value})
		}
		p.Result = &serrypb.Reply_Entries{Entries: m}
	case coord.Changes:
		m := &serrypb.Changes{Revision: r.Revision, Reset_: r.Reset}
		for _, c := range r.Changes {
			m.Changes = append(m.Changes, &serrypb.Change{Key: c.Key, Value: c.Value, Revision: c.Revision, Deleted: c.Deleted})
		}
		p.Result = &serrypb.Reply_Changes{Changes: m}
	case coord.Sizes:
		m := new(serrypb.Sizes)
		for _, k := range r.Keys {
			m.Keys = append(m.Keys, &serrypb.Size{Key: k.Key, Size: k.Size})
		}
		p.Result = &serrypb.Reply_Sizes{Sizes: m}
	case *coord.Picture:
		m := &serrypb.Picture{Version: r.Version}
		for i := range r.Tasks {
			m.Tasks = append(m.Tasks, serryInfo(&r.Tasks[i]))
		}
		p.Result = &serrypb.Reply_Picture{Picture: m}
	case *coord.Alive:
		m := &serrypb.Agreement{Tasks: serryTasks(r.Tasks), Words: r.Words}
		for _, inc := range r.Incarnations {
			m.Incarnations = append(m.Incarnations, uint64(inc))
		}
		p.Result = &serrypb.Reply_Agreement{Agreement: m}
	case coord.AllDevices:
		p.Result = &serrypb.Reply_Devices{Devices: &serrypb.Devices{Devices: r.Devices}}
	case coord.Status:
		return s.serryReply(coord.Reply{Result: Report{Status: r}})
	case Report:
		text, err := json.Marshal(NewStatus(r, s.query))
		if err != nil {
			return nil, err
		}
		p.Result = &serrypb.Reply_Status{Status: &serrypb.Status{Json: text}}
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
		var es coord.Entries
		for _, e := range r.Entries.GetEntries() {
			es.Entries = append(es.Entries, coord.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		return es, nil
	case *serrypb.Reply_Changes:
		cs := coord.Changes{Revision: r.Changes.GetRevision(), Reset: r.Changes.GetReset_()}
		for _, c := range r.Changes.GetChanges() {
			cs.Changes = append(cs.Changes, coord.Change{
				Entry: coord.Entry{Key: c.GetKey(), Value: c.GetValue()}, Revision: c.GetRevision(), Deleted: c.GetDeleted(),
			})
		}
		return cs, nil
	case *serrypb.Reply_Sizes:
		var list coord.Sizes
		for _, k := range r.Sizes.GetKeys() {
			list.Keys = append(list.Keys, coord.KeySize{Key: k.GetKey(), Size: k.GetSize()})
		}
		return list, nil
	case *serrypb.Reply_Picture:
		pic := &coord.Picture{Version: r.Picture.GetVersion()}
		for _, t := range r.Picture.GetTasks() {
			pic.Tasks = append(pic.Tasks, readSerryInfo(t))
		}
		return pic, nil
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
	alive := &coord.Alive{Words: a.GetWords()}
	for i, t := range a.GetTasks() {
		alive.Tasks = append(alive.Tasks, readSerryTask(t))
		alive.Incarnations = append(alive.Incarnations, serry.Incarnation(a.GetIncarnations()[i]))
	}
	return alive, nil
}

func readSerryTask(t *serrypb.Task) serry.TaskID {
	return serry.TaskID{Job: t.GetJob(), Index: int(t.GetIndex())}
}
