package remap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
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

// A Table lists the device ids of each task, by ordinal (C-RMP-1).
type Table [][]serry.DeviceID

// Metadata is what Orbax keeps of the devices of a step: who owned which, and
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
	rows := make([]string, len(m.Table))
	for i, row := range m.Table {
		rows[i] = FormatDevices(row)
	}
	return []File{
		{TableFile, []byte("[" + strings.Join(rows, ", ") + "]")},
		{MeshFile, []byte(FormatDevices(m.Mesh))},
	}
}

// FormatDevices prints ids as Python prints a list: "[0, 1]". It is also the
// value that a task publishes under orbax/distributed_to_device_ids (C-RMP-1).
func FormatDevices(ids []serry.DeviceID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(int(id))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// ParseDevices reads what [FormatDevices] printed, from the named key or file.
// The empty list is accepted, which the original is not able to (TC-RMP-21).
func ParseDevices(file string, text []byte) ([]serry.DeviceID, error) {
	var ids []*int64
	if err := topo.DecodeJSON(file, text, &ids); err != nil {
		return nil, err
	}
	if ids == nil {
		return nil, &topo.FileError{File: file, Reason: "null where a list of device ids belongs"}
	}
	return deviceRow(file, "", ids)
}

func parseTable(file string, text []byte) (Table, error) {
	var rows [][]*int64
	if err := topo.DecodeJSON(file, text, &rows); err != nil {
		return nil, err
	}
	if rows == nil {
		return nil, &topo.FileError{File: file, Reason: "null where a list of lists belongs"}
	}
	table := make(Table, len(rows))
	owner := map[serry.DeviceID]int{}
	for i, row := range rows {
		field := fmt.Sprintf("[%d]", i)
		if row == nil {
			return nil, &topo.FileError{File: file, Field: field, Reason: "null where a list of device ids belongs"}
		}
		ids, err := deviceRow(file, field, row)
		if err != nil {
			return nil, err
		}
		for j, id := range ids {
			if other, ok := owner[id]; ok {
				return nil, &topo.FileError{File: file, Field: fmt.Sprintf("[%d][%d]", i, j),
					Reason: fmt.Sprintf("device %d belongs to process %d already", id, other)}
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
			return nil, &topo.FileError{File: file, Field: fmt.Sprintf("%s[%d]", field, i), Reason: "not a device id"}
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

// ReadFolder reads the metadata folder of a saved step. Where a manifest is in
// it, that is what counts (P-RMP-9). Marker says that the store is one that
// shows a finished folder by a file in it. A missing folder is fs.ErrNotExist.
func ReadFolder(fsys fs.FS, folder string, marker bool) (*Folder, error) {
	if info, err := fs.Stat(fsys, folder); err != nil {
		return nil, unreadable(folder, err)
	} else if !info.IsDir() {
		return nil, &topo.FileError{File: folder, Reason: "not a folder"}
	}
	if err := checkFinal(fsys, folder, marker); err != nil {
		return nil, err
	}
	name := path.Join(folder, ManifestFile)
	text, err := readFile(fsys, name)
	if err == nil {
		m, err := ParseManifest(name, text)
		if err != nil {
			return nil, err
		}
		return &Folder{m.Metadata(), m}, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	md, err := readMetadata(fsys, folder)
	if err != nil {
		return nil, err
	}
	return &Folder{Metadata: md}, nil
}

func checkFinal(fsys fs.FS, folder string, marker bool) error {
	if strings.Contains(path.Base(folder), temporaryMarker) {
		return &topo.FileError{File: folder, Reason: "the folder was not finalized: its name is a temporary one"}
	}
	if !marker {
		return nil
	}
	if _, err := fs.Stat(fsys, path.Join(folder, commitMarker)); err != nil {
		return &topo.FileError{File: folder, Reason: "the folder was not finalized: " + commitMarker + " is not in it", Err: err}
	}
	return nil
}

func readMetadata(fsys fs.FS, folder string) (*Metadata, error) {
	name := path.Join(folder, TableFile)
	text, err := readFile(fsys, name)
	if err != nil {
		return nil, err
	}
	table, err := parseTable(name, text)
	if err != nil {
		return nil, err
	}
	name = path.Join(folder, MeshFile)
	if text, err = readFile(fsys, name); err != nil {
		return nil, err
	}
	mesh, err := ParseDevices(name, text)
	if err != nil {
		return nil, err
	}
	return &Metadata{Table: table, Mesh: mesh}, nil
}

// readFile reads no more than a file of ours can have.
func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, topo.MaxFileBytes+1))
	if err != nil {
		return nil, unreadable(name, err)
	}
	return text, nil
}

func unreadable(name string, err error) error {
	reason := err.Error()
	if pe, ok := errors.AsType[*fs.PathError](err); ok { // the name is said already
		reason = pe.Err.Error()
	}
	return &topo.FileError{File: name, Reason: reason, Err: err}
}
