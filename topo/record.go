package topo

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
)

// A TaskRecord says what a task runs on: evidence by which hardware is known
// again when tasks and devices have other numbers (P-TOP-4). A task publishes
// it under [Keys.Identity], and every saved step keeps those of all tasks. What
// is not known is empty.
type TaskRecord struct {
	Task         serry.TaskIndex   `json:"process_id"`
	Tasks        int               `json:"num_processes,omitempty"` // how many the task believes there are
	Index        *int              `json:"process_index,omitempty"` // where a front end counts otherwise (C-TOP-38)
	Incarnation  serry.Incarnation `json:"-"`                       // written as text: see MarshalJSON
	MachineID    string            `json:"machine_id,omitempty"`
	BootID       string            `json:"boot_id,omitempty"`
	Hostname     string            `json:"hostname,omitempty"`
	Partition    *int              `json:"partition_index,omitempty"`
	NetworkNodes []string          `json:"network_nodes,omitempty"`
	Devices      []DeviceRecord    `json:"devices"`
}

// A DeviceRecord says what one device is.
type DeviceRecord struct {
	ID           serry.DeviceID `json:"global_id"`
	Ordinal      Ordinal        `json:"local_ordinal"`
	Platform     string         `json:"platform"`
	Kind         string         `json:"kind,omitempty"`
	UUID         string         `json:"uuid,omitempty"`
	PCI          string         `json:"pci,omitempty"` // bus address
	Serial       string         `json:"serial,omitempty"`
	Fabric       string         `json:"fabric_uuid,omitempty"`
	Coords       []int          `json:"coords"`       // place in a torus, or null
	Core         *int           `json:"core_on_chip"` // or null
	MeshPosition []int          `json:"mesh_coord,omitempty"`
}

type plainRecord TaskRecord

type recordText struct {
	plainRecord
	Incarnation string `json:"incarnation,omitempty"`
}

// MarshalJSON writes the incarnation as hexadecimal text, since many readers of
// JSON would round a number of that size.
func (r TaskRecord) MarshalJSON() ([]byte, error) {
	text := recordText{plainRecord: plainRecord(r)}
	if r.Incarnation != 0 {
		text.Incarnation = fmt.Sprintf("%#x", uint64(r.Incarnation))
	}
	if text.Devices == nil {
		text.Devices = []DeviceRecord{}
	}
	return json.Marshal(text)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (r *TaskRecord) UnmarshalJSON(data []byte) error {
	var text recordText
	if err := json.Unmarshal(data, &text); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok { // name fields as the text does
			wrong.Field = strings.TrimPrefix(wrong.Field, "plainRecord.")
		}
		return err
	}
	*r = TaskRecord(text.plainRecord)
	if text.Incarnation == "" {
		return nil
	}
	n, err := strconv.ParseUint(text.Incarnation, 0, 64)
	if err != nil {
		return &FileError{Field: "incarnation", Reason: fmt.Sprintf("%q is not a 64-bit number", text.Incarnation)}
	}
	r.Incarnation = serry.Incarnation(n)
	return nil
}

// ParseRecord reads a record that was published under key.
func ParseRecord(key string, value []byte) (*TaskRecord, error) {
	r := new(TaskRecord)
	if err := DecodeJSON(key, value, r); err != nil {
		return nil, err
	}
	if field, reason := r.fault(); reason != "" {
		return nil, &FileError{File: key, Field: field, Reason: reason}
	}
	return r, nil
}

// fault says what is wrong with a record, or nothing.
func (r *TaskRecord) fault() (field, reason string) {
	switch {
	case r.Task < 0:
		return "process_id", fmt.Sprintf("%d is negative", r.Task)
	case r.Task > math.MaxInt32:
		return "process_id", fmt.Sprintf("%d has more than 32 bits", r.Task)
	case r.Tasks < 0:
		return "num_processes", fmt.Sprintf("%d is negative", r.Tasks)
	case r.Tasks > 0 && int(r.Task) >= r.Tasks:
		return "process_id", fmt.Sprintf("%d in a job of %d", r.Task, r.Tasks)
	case len(r.Devices) > maxEntries:
		return "devices", fmt.Sprintf("%d; at most %d are read", len(r.Devices), maxEntries)
	}
	seen := map[serry.DeviceID]bool{}
	for i, d := range r.Devices {
		switch {
		case d.ID < 0:
			return fmt.Sprintf("devices[%d].global_id", i), fmt.Sprintf("%d is negative", d.ID)
		case d.Ordinal < 0:
			return fmt.Sprintf("devices[%d].local_ordinal", i), fmt.Sprintf("%d is negative", d.Ordinal)
		case seen[d.ID]:
			return fmt.Sprintf("devices[%d].global_id", i), fmt.Sprintf("%d is there twice", d.ID)
		}
		seen[d.ID] = true
	}
	return "", ""
}

// adopt makes the devices of a topology those of the record, each with what the
// record knows of the device with its ordinal.
func (r *TaskRecord) adopt(platform string, devices []Device) {
	said := map[Ordinal]DeviceRecord{}
	for _, d := range r.Devices {
		said[d.Ordinal] = d
	}
	r.Devices = make([]DeviceRecord, len(devices))
	for i, d := range devices {
		known := said[d.Ordinal]
		known.ID, known.Ordinal = d.ID, d.Ordinal
		known.Platform, known.Kind = cmp.Or(known.Platform, platform), cmp.Or(known.Kind, d.Kind)
		known.Fabric = cmp.Or(known.Fabric, d.Fabric)
		r.Devices[i] = known
		r.BootID = cmp.Or(r.BootID, d.BootID)
		if r.Partition == nil {
			r.Partition = &d.Partition
		}
	}
}
