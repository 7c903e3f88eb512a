package mesh

import (
	"errors"
	"fmt"
)

// What can be wrong. Every error of this package is an [*Error] that wraps one
// of these. Those that JAX reports as a ValueError are also [ErrInvalid].
var (
	// ErrInvalid means that the values do not fit together.
	ErrInvalid = errors.New("invalid")
	// ErrDuplicateAxis means that one axis splits two places of a spec.
	ErrDuplicateAxis = errors.New("axis used twice")
	// ErrUnknownAxis means that a spec names an axis its mesh does not have.
	ErrUnknownAxis = fmt.Errorf("%w: unknown axis", ErrInvalid)
	// ErrIndivisible means that a dimension cannot be cut into equal shards.
	ErrIndivisible = fmt.Errorf("%w: does not divide", ErrInvalid)
	// ErrNonUniform means that tasks hold different amounts of a dimension.
	ErrNonUniform = fmt.Errorf("%w: tasks hold different parts", ErrInvalid)
	// ErrAbstract means that a mesh without devices was asked about devices.
	ErrAbstract = fmt.Errorf("%w: mesh has no devices", ErrInvalid)
	// ErrFormat means that a text or JSON form does not parse.
	ErrFormat = fmt.Errorf("%w: bad form", ErrInvalid)
	// ErrUnsupported means that the request has a meaning but no answer here.
	ErrUnsupported = errors.New("not supported")
	// ErrNotCuboid means that device coordinates leave a hole or collide.
	ErrNotCuboid = errors.New("devices are not a contiguous cuboid")
	// ErrNoDevices means that a task owns no device of the mesh.
	ErrNoDevices = errors.New("task has no device in the mesh")
	// ErrNotAddressable means that a task does not hold what was asked of it.
	ErrNotAddressable = errors.New("not held by this task")
	// ErrNoHolder means that no device is left that holds a needed slice.
	ErrNoHolder = errors.New("no holder left")
	// ErrDiffer means that copies which must be equal are not.
	ErrDiffer = errors.New("copies differ")
)

// An Error says what is wrong, where, and what to change.
type Error struct {
	Err  error  // one of the sentinels above
	Axis string // the mesh axis at fault, or ""
	Dim  int    // the array dimension at fault, or -1
	Text string // the whole sentence
}

func (e *Error) Error() string { return e.Text }

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Err }

// location says where an error was found.
type location struct {
	axis string
	dim  int
}

func atDim(dim int) location      { return location{dim: dim} }
func onAxis(name string) location { return location{axis: name, dim: -1} }

func (p location) errorf(err error, format string, args ...any) error {
	return &Error{Err: err, Axis: p.axis, Dim: p.dim, Text: fmt.Sprintf(format, args...)}
}

func errorf(err error, format string, args ...any) error {
	return atDim(-1).errorf(err, format, args...)
}
