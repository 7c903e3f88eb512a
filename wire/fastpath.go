package wire

import (
	"bytes"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// Nearly all requests of a running job are of five kinds: heartbeats, arrivals at barriers, and keys
// set and read. They are read by hand here, which takes a third of the time and of the memory that
// generated code takes.
//
// Only the form that every client writes is read here: known fields, each once, in the order of their
// numbers. A request of any other form, right or wrong, is left to the generated code. So this file
// need not know the rules of protobuf for repeated or unknown fields, and cannot get them wrong; a fuzz
// test holds both ways of reading to the same result.

// fastPath reads a request of the usual form. If it is not, ok is false. The calls are plain ones, so that
// the decoder needs no memory.
func (c *Codec) fastPath(m method, body []byte, o Origin) (ev coord.Event, s Shape, ok bool) {
	d := c.decoder(m, o)
	switch m.op {
	case opHeartbeat:
		ev, ok = d.fastHeartbeat(body)
	case opBarrier:
		ev, ok = d.fastBarrier(body)
	case opInsert:
		ev, ok = d.fastInsert(body)
	case opGet:
		var call coord.Call
		var key string
		call, key, ok = d.fastKey(body)
		ev = coord.GetKeyValue{Call: call, Key: key}
	case opTryGet:
		var call coord.Call
		var key string
		call, key, ok = d.fastKey(body)
		ev = coord.TryGetKeyValue{Call: call, Key: key}
	}
	return ev, d.shape, ok
}

// A fastField is a field and where it goes. One of the pointers is set, and the field has its type.
type fastField struct {
	number protowire.Number
	varint *uint64
	fixed  *uint64
	bytes  *[]byte // of a string, a message, or bytes; it lies in the request
}

// fastFields reads a message that has some of these fields, in this order, and nothing else.
func fastFields(b []byte, fields ...fastField) bool {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		for len(fields) > 0 && fields[0].number != number {
			fields = fields[1:]
		}
		if len(fields) == 0 {
			return false
		}
		size := fields[0].read(typ, b[n:])
		if size < 0 {
			return false
		}
		b, fields = b[n+size:], fields[1:]
	}
	return true
}

// read takes the value at the start of b and returns its length, negative if it is not of the type.
func (f *fastField) read(typ protowire.Type, b []byte) (n int) {
	switch {
	case f.varint != nil && typ == protowire.VarintType:
		*f.varint, n = protowire.ConsumeVarint(b)
	case f.fixed != nil && typ == protowire.Fixed64Type:
		*f.fixed, n = protowire.ConsumeFixed64(b)
	case f.bytes != nil && typ == protowire.BytesType:
		*f.bytes, n = protowire.ConsumeBytes(b)
	default:
		n = -1
	}
	return n
}

// fastLives is message Incarnations of dialect XLA. The service does not use the task in it.
func (d *decoder) fastLives(b []byte) (call coord.Call, ok bool) {
	var task, own, service uint64
	ok = fastFields(b, fastField{number: 1, varint: &task}, fastField{number: 2, fixed: &own}, fastField{number: 3, fixed: &service})
	return coord.Call{Req: d.origin.Req, ID: d.origin.ID, Service: serry.Incarnation(service), Incarnation: serry.Incarnation(own)}, ok
}

// fastSource is message CoordinatedTask of dialect TF: who calls.
func (d *decoder) fastSource(b []byte) (call coord.Call, recoverable, ok bool) {
	var name []byte
	var id, flag uint64
	ok = fastFields(b, fastField{number: 1, bytes: &name}, fastField{number: 2, varint: &id}, fastField{number: 3, varint: &flag})
	if !ok || !fastName(name) {
		return coord.Call{}, false, false
	}
	job := d.jobName(name)
	task := serry.TaskID{Job: job, Index: int(int32(id))}
	if d.shape.oneJob {
		task.Job = d.codec.jobs[0].Name
		d.shape.job = job
	}
	d.shape.task = task
	call = coord.Call{Req: d.origin.Req, ID: d.origin.ID, Task: task}
	if d.origin.Identify != nil {
		call.Incarnation, call.Service = d.origin.Identify(task)
	}
	return call, flag != 0, true
}

// jobName is the name as a string, without a new one for a job that is known.
func (d *decoder) jobName(name []byte) string {
	for _, j := range d.codec.jobs {
		if j.Name == string(name) {
			return j.Name
		}
	}
	return string(name)
}

func (d *decoder) fastHeartbeat(body []byte) (coord.Event, bool) {
	var own, id uint64
	var source []byte
	if d.shape.Dialect == TF {
		ok := fastFields(body, fastField{number: 3, fixed: &own}, fastField{number: 4, bytes: &source})
		call, _, good := d.fastSource(source)
		if own := serry.Incarnation(own); own != call.Incarnation {
			call.Incarnation, call.Service = own, 0
		}
		return coord.Heartbeat{Call: call}, ok && good
	}
	ok := fastFields(body, fastField{number: 1, bytes: &source}, fastField{number: 2, fixed: &own}, fastField{number: 3, varint: &id})
	call, good := d.fastLives(source)
	call.Task, call.Incarnation = d.xlaTask(int32(id)), serry.Incarnation(own)
	d.shape.task = call.Task
	return coord.Heartbeat{Call: call}, ok && good
}

// fastBarrier leaves barriers of some tasks alone to the generated code.
func (d *decoder) fastBarrier(body []byte) (coord.Event, bool) {
	var source, id []byte
	var timeout, task, counter uint64
	var call coord.Call
	var recoverable, ok, good bool
	if d.shape.Dialect == TF {
		ok = fastFields(body, fastField{number: 1, bytes: &id}, fastField{number: 2, varint: &timeout},
			fastField{number: 4, bytes: &source}, fastField{number: 5, varint: &counter})
		call, recoverable, good = d.fastSource(source)
	} else {
		ok = fastFields(body, fastField{number: 1, bytes: &source}, fastField{number: 2, bytes: &id}, fastField{number: 3, varint: &timeout},
			fastField{number: 5, varint: &task}, fastField{number: 6, varint: &counter})
		call, good = d.fastLives(source)
		call.Task = d.xlaTask(int32(task))
		d.shape.task = call.Task
	}
	if !ok || !good || !fastName(id) {
		return nil, false
	}
	d.shape.barrier, d.shape.counter = string(id), int64(counter)
	return coord.Barrier{Call: call, ID: d.shape.barrier, Counter: int64(counter), Timeout: millis(int64(timeout)), Recoverable: recoverable}, true
}

func (d *decoder) fastInsert(body []byte) (coord.Event, bool) {
	var lives, entry, key, value []byte
	var overwrite uint64
	var call coord.Call
	var ok, good bool
	if d.shape.Dialect == TF {
		ok = fastFields(body, fastField{number: 1, bytes: &entry}, fastField{number: 2, varint: &overwrite})
		call, good = d.tfCall(), true
	} else {
		ok = fastFields(body, fastField{number: 1, bytes: &lives}, fastField{number: 2, bytes: &entry}, fastField{number: 3, varint: &overwrite})
		call, good = d.fastLives(lives)
	}
	if !ok || !good || !fastFields(entry, fastField{number: 1, bytes: &key}, fastField{number: 2, bytes: &value}) || !utf8.Valid(key) {
		return nil, false
	}
	return coord.InsertKeyValue{Call: call, Key: string(key), Value: bytes.Clone(value), Overwrite: overwrite != 0}, true
}

// fastKey reads a call that names a key and nothing else.
func (d *decoder) fastKey(body []byte) (call coord.Call, key string, ok bool) {
	var lives, name []byte
	good := true
	if d.shape.Dialect == TF {
		ok = fastFields(body, fastField{number: 1, bytes: &name})
		call = d.tfCall()
	} else {
		ok = fastFields(body, fastField{number: 1, bytes: &lives}, fastField{number: 2, bytes: &name})
		call, good = d.fastLives(lives)
	}
	return call, string(name), ok && good && utf8.Valid(name)
}

// fastName says whether a name is in order.
func fastName(b []byte) bool { return len(b) <= coord.MaxNameBytes && utf8.Valid(b) }
