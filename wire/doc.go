// Package wire translates between what clients of the coordination service send and the events and
// errors that the rest of serry speaks of. It is the only place that knows a dialect, a status code,
// or a text that some client matches on.
//
// There are two dialects, told apart by the path of a call alone: [XLA], spoken by jaxlib from 0.10.0
// on, where a task is a number; and [TF], spoken by TensorFlow and by jaxlib up to 0.9.2, where it is
// a job and a number. Both mean the same.
//
// Start with [Codec.Decode], which turns the bytes of a request into an event for a coord.Machine and
// a [Shape], and with [Shape.Encode], which turns the machine's reply into bytes or a status in the
// form the caller reads. [Dialect.Error] is the way back for clients: status in, the errors of
// package serry out. What a client sees for which cause is one table, in answers.go.
//
// Everything here may be called from any goroutine. No input makes it panic.
package wire

import "strconv"

// A Dialect is one of the two ways in which clients speak.
type Dialect int8

// The dialects.
const (
	XLA Dialect = iota // package xla.coordination
	TF                 // package tensorflow
)

// String is the proto package of the dialect.
func (d Dialect) String() string {
	switch d {
	case XLA:
		return "xla.coordination"
	case TF:
		return "tensorflow"
	}
	return "dialect " + strconv.Itoa(int(d))
}
