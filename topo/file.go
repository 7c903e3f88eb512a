package topo

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxFileBytes is the largest JSON text that is read.
const MaxFileBytes = 64 << 20

// A FileError says which file, or key, could not be used, which field of it is
// at fault, and why.
type FileError struct {
	File   string
	Field  string // "processes[3].devices[0].global_id", or empty
	Reason string
	Err    error // what brought it about, such as fs.ErrNotExist, or nil
}

func (e *FileError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s: %s: %s", e.File, e.Field, e.Reason)
}

// Unwrap makes the cause visible to errors.Is.
func (e *FileError) Unwrap() error { return e.Err }

// DecodeJSON reads the JSON text of a file into a value. The text must be one
// value and nothing else, and not larger than [MaxFileBytes]. Every error is a
// [FileError] that says where reading stopped. Fields that into does not have
// are skipped, so that a later version may add some.
func DecodeJSON(file string, text []byte, into any) error {
	if len(text) > MaxFileBytes {
		return &FileError{File: file, Reason: fmt.Sprintf("%d bytes; at most %d are read", len(text), MaxFileBytes)}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(into)
	if err == nil {
		if _, err := decoder.Token(); err != io.EOF {
			return &FileError{File: file, Reason: fmt.Sprintf("more text after its end, at byte %d", decoder.InputOffset())}
		}
		return nil
	}
	if own, ok := errors.AsType[*FileError](err); ok { // from UnmarshalJSON of this package
		return &FileError{File: file, Field: own.Field, Reason: own.Reason, Err: own.Err}
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &FileError{File: file, Field: wrong.Field, Reason: fmt.Sprintf("a %s where a %s belongs", wrong.Value, wrong.Type)}
	}
	if bad, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &FileError{File: file, Reason: fmt.Sprintf("not JSON at byte %d: %v", bad.Offset, bad)}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &FileError{File: file, Reason: fmt.Sprintf("cut short: it ends after %d bytes", len(text)), Err: io.ErrUnexpectedEOF}
	}
	return &FileError{File: file, Reason: err.Error(), Err: err}
}
