package restore

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh/internal/notation"
	"github.com/serry-dev/serry/topo"
)

// Where Orbax keeps what it knows of devices, in every saved step (C-RMP-4).
const (
	MetadataFolder = "process_metadata"
	TableFile      = "global_process_metadata.json"
	MeshFile       = "mesh_metadata.json"
)

// How a folder shows that it is whole: by a file in it on stores that cannot
// rename, by not having a temporary name elsewhere.
const (
	commitMarker    = "commit_success.txt"
	temporaryMarker = ".orbax-checkpoint-tmp"
)

// ErrMissing means that a file or folder of a saved step is not there.
var ErrMissing = errors.New("it is not there")

// A Table lists the device ids of each task, by ordinal (C-RMP-1).
type Table [][]serry.DeviceID

// Metadata is what Orbax keeps of the devices of a step: which task owned which, and
// the ids of the user's mesh, row by row. The shape of the mesh is not kept.
type Metadata struct {
	Table Table
	Mesh  []serry.DeviceID
}

// A File is a name and what belongs into it.
type File struct {
	Name string
	Text []byte
}

// Files gives the two files as Python's encoder would write them, for the
// folder [MetadataFolder]. Write each to a temporary name, sync, and rename.
func (m *Metadata) Files() []File {
	return []File{
		{TableFile, []byte("[" + notation.JoinFunc(m.Table, ", ", formatDevices) + "]")},
		{MeshFile, []byte(formatDevices(m.Mesh))},
	}
}

// formatDevices prints ids as Python prints a list: "[0, 1]" (C-RMP-1).
func formatDevices(ids []serry.DeviceID) string { return "[" + notation.Join(ids, ", ") + "]" }

// parseDevices reads what formatDevices printed, from the named key or file.
// The empty list is accepted, which the original is not able to (TC-RMP-21).
func parseDevices(file string, text []byte) ([]serry.DeviceID, error) {
	var ids []*int64
	if err := topo.DecodeJSON(file, text, &ids); err != nil {
		return nil, err
	}
	if ids == nil {
		return nil, fault(file, "", "null where a list of device ids belongs")
	}
	return deviceRow(file, "", ids)
}

func parseTable(file string, text []byte) (Table, error) {
	var rows [][]*int64
	if err := topo.DecodeJSON(file, text, &rows); err != nil {
		return nil, err
	}
	if rows == nil {
		return nil, fault(file, "", "null where a list of lists belongs")
	}
	table := make(Table, len(rows))
	owner := map[serry.DeviceID]int{}
	for i, row := range rows {
		field := fmt.Sprintf("[%d]", i)
		if row == nil {
			return nil, fault(file, field, "null where a list of device ids belongs")
		}
		ids, err := deviceRow(file, field, row)
		if err != nil {
			return nil, err
		}
		for j, id := range ids {
			if other, ok := owner[id]; ok {
				return nil, fault(file, fmt.Sprintf("[%d][%d]", i, j), "device %d belongs to process %d already", id, other)
			}
			owner[id] = i
		}
		table[i] = ids
	}
	return table, nil
}

func deviceRow(file, field string, row []*int64) ([]serry.DeviceID, error) {
	ids := make([]serry.DeviceID, len(row))
	for i, id := range row {
		if id == nil || *id < 0 || *id > 1<<31-1 {
			return nil, fault(file, fmt.Sprintf("%s[%d]", field, i), "not a device id")
		}
		ids[i] = serry.DeviceID(*id)
	}
	return ids, nil
}

// A Folder is what a saved step says about its devices.
type Folder struct {
	*Metadata
	Manifest *Manifest // or nil for a step that only Orbax wrote
}

// ParseFolder reads the metadata folder of a saved step, given the contents of
// its files by name; nil stands for a folder that is not there. Where a manifest
// is in it, that is what counts (P-RMP-9). Marker says that the store is one that
// shows a finished folder by a file in it.
func ParseFolder(folder string, files map[string][]byte, marker bool) (*Folder, error) {
	_, marked := files[commitMarker]
	switch {
	case files == nil:
		return nil, &topo.FileError{File: folder, Reason: ErrMissing.Error(), Err: ErrMissing}
	case strings.Contains(path.Base(folder), temporaryMarker):
		return nil, fault(folder, "", "the folder was not finalized: its name is a temporary one")
	case marker && !marked:
		return nil, fault(folder, "", "the folder was not finalized: %s is not in it", commitMarker)
	}
	if text, ok := files[ManifestFile]; ok {
		m, err := ParseManifest(path.Join(folder, ManifestFile), text)
		if err != nil {
			return nil, err
		}
		return &Folder{m.Metadata(), m}, nil
	}
	for _, name := range []string{TableFile, MeshFile} {
		if _, ok := files[name]; !ok {
			return nil, &topo.FileError{File: path.Join(folder, name), Reason: ErrMissing.Error(), Err: ErrMissing}
		}
	}
	table, err := parseTable(path.Join(folder, TableFile), files[TableFile])
	if err != nil {
		return nil, err
	}
	mesh, err := parseDevices(path.Join(folder, MeshFile), files[MeshFile])
	if err != nil {
		return nil, err
	}
	return &Folder{Metadata: &Metadata{Table: table, Mesh: mesh}}, nil
}
