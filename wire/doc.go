// Package wire translates between what clients of the coordination service send and the events and
// errors that the rest of serry speaks of. It is the only place that knows a dialect, a status code,
// or a text that some client matches on.
//
// There are two dialects of clients in the field, told apart by the path of a call alone: [XLA],
// spoken by jaxlib from 0.10.0 on, where a task is a number; and [TF], spoken by TensorFlow and by
// jaxlib up to 0.9.2, where it is a job and a number. Both mean the same. serry's own clients speak a
// third, [Serry], whose messages have the form of the events.
//
// Start with [Codec.Decode], which turns the bytes of a request into an event for a coord.Machine and
// a [Shape], and with [Shape.Encode], which turns the machine's reply into bytes or a status in the
// form the caller reads. Clients go the other way: [Dialect.Request] makes the bytes of a call,
// [Dialect.Result] and [Dialect.Error] read what came back. What a client sees for which cause is one
// table, in answers.go.
//
// Everything here may be called from any goroutine. No input makes it panic.
package wire

import "strconv"

// A Dialect is one of the ways in which clients speak.
type Dialect int8

// The dialects.
const (
	XLA   Dialect = iota // package xla.coordination
	TF                   // package tensorflow
	Serry                // package serry
)

// String is the proto package of the dialect.
func (d Dialect) String() string {
	switch d {
	case XLA:
		return "xla.coordination"
	case TF:
		return "tensorflow"
	case Serry:
		return "serry"
	}
	return "dialect " + strconv.Itoa(int(d))
}
