package export

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/mesh"
)

// What can be wrong. Every error of this package wraps one of these.
var (
	// ErrFormat means that a file is not of the form it should have.
	ErrFormat = errors.New("bad form")
	// ErrVersion means that a file needs a newer or a much older reader.
	ErrVersion = errors.New("unknown version")
	// ErrMismatch means that a mesh is not the one the program was exported for.
	ErrMismatch = errors.New("mesh does not match")
	// ErrBinding means that the program does not fit the devices, sizes or memories it is bound to.
	ErrBinding = errors.New("cannot be bound")
	// ErrNoVariant means that the program was not exported for the devices that are left.
	ErrNoVariant = errors.New("no exported variant fits")
	// ErrUnsupported means that a form cannot express what the manifest says.
	ErrUnsupported = errors.New("not representable")
	// ErrDisagree means that tasks bound the same program in different ways.
	ErrDisagree = errors.New("tasks disagree")
)

// A MismatchError says which mesh of a manifest a given mesh does not match, and why.
type MismatchError struct {
	Mesh   string // id in the manifest
	Want   []mesh.Axis
	Got    []mesh.Axis
	Axis   string // the first axis at fault, or "" where the lists differ as a whole
	Reason string // what differs, and what to change
	Option string // the field of [Options] that may help, such as "AllowReorder", or ""
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("mesh %q: exported over %s, bound to %s: %s", e.Mesh, axesText(e.Want), axesText(e.Got), e.Reason)
}

// Unwrap gives [ErrMismatch].
func (e *MismatchError) Unwrap() error { return ErrMismatch }

// A ValueError says which argument or result cannot be bound, and in which dimension.
type ValueError struct {
	Value string // name in the manifest
	Dim   int    // the dimension at fault, or -1
	Axis  string // the mesh axis at fault, or ""
	Err   error
}

func (e *ValueError) Error() string { return fmt.Sprintf("%s: %v", plain(e.Value), e.Err) }

// Unwrap gives the cause, and [ErrBinding].
func (e *ValueError) Unwrap() []error { return []error{ErrBinding, e.Err} }

// valueError joins the name of an argument or result with an error about it.
func valueError(name string, err error) error {
	out := &ValueError{Value: name, Dim: -1, Err: err}
	if at, ok := errors.AsType[*mesh.Error](err); ok {
		out.Dim, out.Axis = at.Dim, at.Axis
	}
	return out
}

// plain quotes a text of a file if it holds anything that does not print. Such a text could move the
// cursor of a terminal or add a line to a log.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// axesText writes axes as the command line takes them.
func axesText(axes []mesh.Axis) string {
	return "(" + joined(axes, func(a mesh.Axis) string { return fmt.Sprintf("%s=%d", a.Name, a.Size) }) + ")"
}

// joined writes elements with commas between them.
func joined[T any](list []T, text func(T) string) string {
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = text(v)
	}
	return strings.Join(parts, ",")
}

// bindErrorf makes an error of the whole binding.
func bindErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBinding, fmt.Sprintf(format, args...))
}

// formErrorf makes an error about the form of a file.
func formErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// A fault keeps the first error of a reader. Readers that embed one go on with zero values after it, and
// look at err once, at their end.
type fault struct{ err error }

// fail keeps the first error; nil is none.
func (f *fault) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}
