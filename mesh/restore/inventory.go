package restore

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/topo"
)

// InventoryFile is the name of an [Inventory] in a task's copy of a step.
const InventoryFile = "shards.json"

// An Inventory lists what one task holds of a step, by content: a restore asks
// which task has a block of an array, never what a task with some number wrote
// (P-RMP-2).
type Inventory struct {
	Format int             `json:"format"`
	Step   int64           `json:"step"`
	Task   serry.TaskIndex `json:"process_id"` // the number the task had when it saved
	Arrays []StoredArray   `json:"parameters"`
}

// A StoredArray is one array with the blocks of it that are held.
type StoredArray struct {
	Name   string        `json:"name"`
	Shape  []int         `json:"global_shape"`
	Type   string        `json:"dtype"`
	Shards []StoredShard `json:"shards"`
}

// A StoredShard is one block of an array in a file.
type StoredShard struct {
	Index  mesh.Index `json:"index"`
	File   string     `json:"file"` // below the folder of the step
	Bytes  int64      `json:"bytes"`
	Digest string     `json:"digest"` // of the bytes, with the name of the method: "sha256:…"
}

// Encode checks the inventory and gives its text.
func (x *Inventory) Encode() ([]byte, error) {
	x.Format = format
	if err := x.check(InventoryFile); err != nil {
		return nil, err
	}
	return json.MarshalIndent(x, "", " ")
}

// ParseInventory reads the text of an inventory and checks that every shard is
// within its array and every file within the step.
func ParseInventory(file string, text []byte) (*Inventory, error) {
	x := new(Inventory)
	if err := topo.DecodeJSON(file, text, x); err != nil {
		return nil, err
	}
	if x.Format != format {
		return nil, fault(file, "format", "%d; this version reads %d", x.Format, format)
	}
	return x, x.check(file)
}

func (x *Inventory) check(file string) error {
	if x.Step < 0 || x.Task < 0 || x.Task >= maxTasks {
		return fault(file, "step, process_id", "%d, %d are not of a step", x.Step, x.Task)
	}
	names := map[string]bool{}
	for i, a := range x.Arrays {
		field := fmt.Sprintf("parameters[%d]", i)
		if names[a.Name] {
			return fault(file, field+".name", "%q is there twice", a.Name)
		}
		names[a.Name] = true
		if err := a.check(file, field); err != nil {
			return err
		}
	}
	return nil
}

func (a *StoredArray) check(file, field string) error {
	if mesh.CheckShape(a.Shape) != nil {
		return fault(file, field+".global_shape", "%v is no shape", a.Shape)
	}
	if a.Type == "" {
		return fault(file, field+".dtype", "empty")
	}
	for j, s := range a.Shards {
		part := fmt.Sprintf("%s.shards[%d]", field, j)
		switch {
		case !s.Index.Within(a.Shape):
			return fault(file, part+".index", "%v is not within %v", s.Index, a.Shape)
		case !isBelow(s.File):
			return fault(file, part+".file", "%q is not a file below the step", s.File)
		case s.Bytes < 0:
			return fault(file, part+".bytes", "%d is negative", s.Bytes)
		case s.Digest == "":
			return fault(file, part+".digest", "empty")
		}
	}
	return nil
}

// isBelow says whether a name stays within the folder it is looked up in.
func isBelow(name string) bool {
	return name != "" && name != "." && name != ".." && !path.IsAbs(name) && path.Clean(name) == name &&
		!strings.HasPrefix(name, "../") && !strings.ContainsAny(name, "\\\x00")
}
