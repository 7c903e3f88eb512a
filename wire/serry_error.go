package wire

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/wire/serrypb"
)

// sentinels are the errors that can cross the wire by name.
var sentinels = byText(serry.Sentinels()...)

func byText(all ...error) map[string]error {
	m := make(map[string]error, len(all))
	for _, err := range all {
		m[err.Error()] = err
	}
	return m
}

// sentinel finds the error of that text. One that a newer peer knows keeps its words.
func sentinel(text string) error {
	if err, ok := sentinels[text]; ok {
		return err
	}
	return errors.New(text)
}

// maxMissing bounds how many missing tasks an error names.
const maxMissing = 1024

// serryError puts an error of package serry into a message.
func serryError(err error) *serrypb.Error {
	switch e := err.(type) {
	case *serry.TaskError:
		return &serrypb.Error{What: e.Err.Error(), Facts: &serrypb.Error_Task{Task: serryTaskFacts(e)}}
	case *serry.LostError:
		lost := &serrypb.LostFacts{Lost: each(e.Lost, serryTaskFacts)}
		return &serrypb.Error{What: serry.ErrTaskDead.Error(), Facts: &serrypb.Error_Lost{Lost: lost}}
	case *serry.BarrierError:
		return &serrypb.Error{What: e.Err.Error(), Facts: &serrypb.Error_Barrier{Barrier: serryBarrierFacts(e)}}
	case *serry.KeyError:
		return &serrypb.Error{What: e.Err.Error(), Facts: &serrypb.Error_Key{Key: &serrypb.KeyFacts{Key: e.Key, Value: e.Value}}}
	case *serry.LimitError:
		return &serrypb.Error{What: serry.ErrLimit.Error(), Facts: &serrypb.Error_Limit{Limit: &serrypb.LimitFacts{Limit: e.Limit, Max: e.Max}}}
	case *serry.MismatchError:
		return &serrypb.Error{What: serry.ErrMismatch.Error(), Facts: &serrypb.Error_Mismatch{
			Mismatch: &serrypb.MismatchFacts{Requested: uint64(e.Requested), Current: uint64(e.Current)},
		}}
	case *serry.InvalidError:
		return &serrypb.Error{What: serry.ErrInvalid.Error(), Facts: &serrypb.Error_Invalid{Invalid: e.What}}
	}
	return &serrypb.Error{What: err.Error()}
}

func serryTaskFacts(e *serry.TaskError) *serrypb.TaskFacts {
	f := &serrypb.TaskFacts{
		Task: serryTask(e.Task), Incarnation: uint64(e.Incarnation), Evidence: e.Evidence,
		Code: int32(e.Code), Text: e.Text, Was: uint64(e.Was), Now: uint64(e.Now),
	}
	if e.Reason != nil {
		f.Reason = serryError(e.Reason)
	}
	return f
}

func serryBarrierFacts(e *serry.BarrierError) *serrypb.BarrierFacts {
	f := &serrypb.BarrierFacts{
		Id: e.ID, Counter: e.Counter, Sent: e.Sent, Task: serryTask(e.Task), First: serryTask(e.First),
		Missing: serryTasks(e.Missing[:min(len(e.Missing), maxMissing)]), Arrived: int64(e.Arrived), Members: int64(e.Members),
	}
	if e.Reason != nil {
		f.Reason = serryError(e.Reason)
	}
	return f
}

// maxReasons bounds how deep a chain of reasons is read.
const maxReasons = 8

// readSerryError is the inverse of serryError.
func readSerryError(m *serrypb.Error) error { return readReason(m, maxReasons) }

func readReason(m *serrypb.Error, depth int) error {
	if m == nil || depth == 0 {
		return nil
	}
	switch f := m.GetFacts().(type) {
	case *serrypb.Error_Task:
		return readTaskFacts(f.Task, sentinel(m.GetWhat()), depth)
	case *serrypb.Error_Lost:
		return &serry.LostError{Lost: each(f.Lost.GetLost(), func(l *serrypb.TaskFacts) *serry.TaskError {
			return readTaskFacts(l, serry.ErrTaskDead, depth)
		})}
	case *serrypb.Error_Barrier:
		b := f.Barrier
		return &serry.BarrierError{
			ID: b.GetId(), Counter: b.GetCounter(), Sent: b.GetSent(), Task: readSerryTask(b.GetTask()), First: readSerryTask(b.GetFirst()),
			Arrived: int(b.GetArrived()), Members: int(b.GetMembers()), Reason: readReason(b.GetReason(), depth-1), Err: sentinel(m.GetWhat()),
			Missing: each(b.GetMissing(), readSerryTask),
		}
	case *serrypb.Error_Key:
		return &serry.KeyError{Key: f.Key.GetKey(), Value: f.Key.GetValue(), Err: sentinel(m.GetWhat())}
	case *serrypb.Error_Limit:
		return &serry.LimitError{Limit: f.Limit.GetLimit(), Max: f.Limit.GetMax()}
	case *serrypb.Error_Mismatch:
		return &serry.MismatchError{Requested: serry.Incarnation(f.Mismatch.GetRequested()), Current: serry.Incarnation(f.Mismatch.GetCurrent())}
	case *serrypb.Error_Invalid:
		return &serry.InvalidError{What: f.Invalid}
	}
	return sentinel(m.GetWhat())
}

func readTaskFacts(f *serrypb.TaskFacts, what error, depth int) *serry.TaskError {
	return &serry.TaskError{
		Task: readSerryTask(f.GetTask()), Incarnation: serry.Incarnation(f.GetIncarnation()), Evidence: f.GetEvidence(),
		Code: int(f.GetCode()), Text: f.GetText(), Was: serry.Incarnation(f.GetWas()), Now: serry.Incarnation(f.GetNow()),
		Reason: readReason(f.GetReason(), depth-1), Err: what,
	}
}

// MarshalError writes an error of package serry with its facts, as serry's own dialect does.
func MarshalError(err error) []byte { return marshal(serryError(err)) }

// UnmarshalError is the inverse of [MarshalError]. Bytes that are none of its make an error without
// facts, never nil.
func UnmarshalError(b []byte) error {
	var m serrypb.Error
	if err := proto.Unmarshal(b, &m); err != nil {
		return errors.New("an error that cannot be read")
	}
	return readSerryError(&m)
}
