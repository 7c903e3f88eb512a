package remap

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
)

// IndexFile is the name of an [Index] in a task's copy of a step.
const IndexFile = "shards.json"

// maxRank is how many dimensions an array may have.
const maxRank = 32

// An Index lists what one task holds of a step, by content: a restore asks who
// has a range of an array, never what a task with some number wrote (P-RMP-2).
type Index struct {
	Format int             `json:"format"`
	Step   int64           `json:"step"`
	Task   serry.TaskIndex `json:"process_id"` // the number the task had when it saved
	Arrays []Stored        `json:"parameters"`
}

// Stored is one array with the parts of it that are held.
type Stored struct {
	Name   string  `json:"name"`
	Shape  []int64 `json:"global_shape"`
	Type   string  `json:"dtype"`
	Shards []Shard `json:"shards"`
}

// A Shard is one part of an array in a file.
type Shard struct {
	Box    Box    `json:"index"`
	File   string `json:"file"` // below the folder of the step
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"` // of the bytes, with the name of the method: "sha256:…"
}

// Encode checks the index and gives its text.
func (x *Index) Encode() ([]byte, error) {
	x.Format = format
	if err := x.check(IndexFile); err != nil {
		return nil, err
	}
	return json.MarshalIndent(x, "", " ")
}

// ParseIndex reads the text of an index file and checks that every shard lies
// within its array and every file within the step.
func ParseIndex(file string, text []byte) (*Index, error) {
	x := new(Index)
	if err := topo.DecodeJSON(file, text, x); err != nil {
		return nil, err
	}
	if x.Format != format {
		return nil, &topo.FileError{File: file, Field: "format", Reason: fmt.Sprintf("%d; this version reads %d", x.Format, format)}
	}
	return x, x.check(file)
}

func (x *Index) check(file string) error {
	if x.Step < 0 || x.Task < 0 || x.Task >= maxTasks {
		return &topo.FileError{File: file, Field: "step, process_id", Reason: fmt.Sprintf("%d, %d are not of a step", x.Step, x.Task)}
	}
	names := map[string]bool{}
	for i, a := range x.Arrays {
		field := fmt.Sprintf("parameters[%d]", i)
		if names[a.Name] {
			return &topo.FileError{File: file, Field: field + ".name", Reason: fmt.Sprintf("%q is there twice", a.Name)}
		}
		names[a.Name] = true
		if err := a.check(file, field); err != nil {
			return err
		}
	}
	return nil
}

func (a *Stored) check(file, field string) error {
	fault := func(part, reason string, args ...any) error {
		return &topo.FileError{File: file, Field: field + part, Reason: fmt.Sprintf(reason, args...)}
	}
	if _, ok := elements(a.Shape); !ok || len(a.Shape) > maxRank {
		return fault(".global_shape", "%v is no shape", a.Shape)
	}
	if a.Type == "" {
		return fault(".dtype", "empty")
	}
	for j, s := range a.Shards {
		part := fmt.Sprintf(".shards[%d]", j)
		switch {
		case !s.Box.within(a.Shape):
			return fault(part+".index", "%v is not within %v", s.Box, a.Shape)
		case !isBelow(s.File):
			return fault(part+".file", "%q is not a file below the step", s.File)
		case s.Bytes < 0:
			return fault(part+".bytes", "%d is negative", s.Bytes)
		case s.Digest == "":
			return fault(part+".digest", "empty")
		}
	}
	return nil
}

// isBelow says whether a name stays within the folder it is looked up in.
func isBelow(name string) bool {
	return name != "" && name != "." && name != ".." && !path.IsAbs(name) && path.Clean(name) == name &&
		!strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\\\x00")
}
