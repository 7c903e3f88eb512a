// Package form has the forms in which meshes, specs and shardings are written
// down: the text that JAX prints ([ParseMesh], [ParseSpec], [ParseSharding],
// [ParseTile] and [Shardy]), JSON ([EncodeSharding], [DecodeSharding]), and
// pictures for a terminal or a browser ([Draw], [DrawLinks] and their SVG
// siblings). What is written as text is the String method of the value itself.
//
// Everything that is read is bounded and checked. Bad input is a [mesh.Error]
// that says what to change. Fields and versions that this package does not know
// are refused.
//
// Read parse.go first, then draw.go.
package form

import (
	"fmt"

	"github.com/serry-dev/serry/mesh"
)

// Bounds on what is read. They are far above any real job and keep a hostile
// text from taking the memory of its reader.
const (
	maxText    = 1 << 24 // the mesh of a million devices fits
	maxDevices = 1 << 20
	maxName    = 256
)

func errorf(err error, format string, args ...any) error {
	return &mesh.Error{Err: err, Dim: -1, Text: fmt.Sprintf(format, args...)}
}
