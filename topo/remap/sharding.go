package remap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
)

// A Sharding is the text that Orbax keeps for each array on how it was laid out
// (C-RMP-15): named axes over a mesh, or all on one device.
type Sharding struct {
	Mesh   Mesh        // Devices empty if the text does not list them
	Spec   []SpecEntry // one for each dimension
	Device string      // "cpu:0" of an array on a single device; then the rest is empty
}

// A SpecEntry says which axes one dimension is split over. None means not split.
type SpecEntry struct {
	Axes []string
	List bool // written as a list even if it is one name
}

// A DevicesError lists devices that a saved sharding needs and the job has not.
type DevicesError struct {
	Missing []serry.DeviceID
}

func (e *DevicesError) Error() string {
	return fmt.Sprintf("the available devices are different: %v of the saved sharding are not there; restore needs shardings of its own", e.Missing)
}

type shardingText struct {
	Type       string            `json:"sharding_type"`
	Shape      []int             `json:"shape"`
	AxisNames  []string          `json:"axis_names"`
	AxisTypes  []string          `json:"axis_types"`
	Spec       []json.RawMessage `json:"partition_spec"`
	DeviceMesh *struct {
		Mesh json.RawMessage `json:"mesh"`
	} `json:"device_mesh"`
	DeviceStr string `json:"device_str"`
}

const (
	namedSharding  = "NamedSharding"
	singleSharding = "SingleDeviceSharding"
)

// ParseSharding reads the text of a sharding.
func ParseSharding(file string, text []byte) (*Sharding, error) {
	fault := func(field, reason string, args ...any) (*Sharding, error) {
		return nil, &topo.FileError{File: file, Field: field, Reason: fmt.Sprintf(reason, args...)}
	}
	var t shardingText
	if err := topo.DecodeJSON(file, text, &t); err != nil {
		return nil, err
	}
	switch {
	case t.Type == singleSharding && t.DeviceStr != "":
		return &Sharding{Device: t.DeviceStr}, nil
	case t.Type == singleSharding:
		return fault("device_str", "missing")
	case t.Type != namedSharding:
		return fault("sharding_type", "%q is not supported", t.Type)
	case t.Shape == nil:
		return fault("shape", "missing")
	case t.AxisNames == nil:
		return fault("axis_names", "missing")
	case t.Spec == nil:
		return fault("partition_spec", "missing")
	case len(t.Shape) > maxRank || len(t.Spec) > maxRank:
		return fault("shape, partition_spec", "more than %d dimensions", maxRank)
	case !isShape(t.Shape):
		return fault("shape", "%v is no shape of a mesh", t.Shape)
	case len(t.AxisNames) != len(t.Shape):
		return fault("axis_names", "%d names for %d axes", len(t.AxisNames), len(t.Shape))
	case t.AxisTypes != nil && len(t.AxisTypes) != len(t.Shape):
		return fault("axis_types", "%d types for %d axes", len(t.AxisTypes), len(t.Shape))
	}
	s := &Sharding{Mesh: Mesh{Shape: t.Shape, AxisNames: t.AxisNames, AxisTypes: t.AxisTypes}}
	for i, raw := range t.Spec {
		e, ok := parseSpecEntry(raw, t.AxisNames)
		if !ok {
			return fault(fmt.Sprintf("partition_spec[%d]", i), "%s is not an axis, a list of axes, or null", raw)
		}
		s.Spec = append(s.Spec, e)
	}
	if t.DeviceMesh != nil {
		ids, ok := parseNested(t.DeviceMesh.Mesh, t.Shape)
		if !ok {
			return fault("device_mesh.mesh", "not device ids nested as %v", t.Shape)
		}
		s.Mesh.Devices = ids
	}
	return s, nil
}

func isShape(shape []int) bool {
	_, ok := volume(shape)
	return ok
}

func parseSpecEntry(raw json.RawMessage, axes []string) (SpecEntry, bool) {
	var e SpecEntry
	switch {
	case string(raw) == "null":
	case len(raw) > 0 && raw[0] == '[':
		e.List = true
		if json.Unmarshal(raw, &e.Axes) != nil {
			return e, false
		}
	default:
		e.Axes = make([]string, 1)
		if json.Unmarshal(raw, &e.Axes[0]) != nil {
			return e, false
		}
	}
	for _, axis := range e.Axes {
		if !slices.Contains(axes, axis) {
			return e, false
		}
	}
	return e, true
}

// parseNested reads {"id": n} nested as deep as shape, and exactly of it.
func parseNested(raw json.RawMessage, shape []int) ([]serry.DeviceID, bool) {
	if len(shape) == 0 {
		var d struct {
			ID *int32 `json:"id"`
		}
		if json.Unmarshal(raw, &d) != nil || d.ID == nil || *d.ID < 0 {
			return nil, false
		}
		return []serry.DeviceID{serry.DeviceID(*d.ID)}, true
	}
	var rows []json.RawMessage
	if json.Unmarshal(raw, &rows) != nil || rows == nil || len(rows) != shape[0] {
		return nil, false
	}
	ids := []serry.DeviceID{}
	for _, row := range rows {
		inner, ok := parseNested(row, shape[1:])
		if !ok {
			return nil, false
		}
		ids = append(ids, inner...)
	}
	return ids, true
}

// String writes the sharding as Orbax does.
func (s *Sharding) String() string {
	if s.Device != "" {
		return fmt.Sprintf(`{"sharding_type": %s, "device_str": %s}`, quote(singleSharding), quote(s.Device))
	}
	sizes := make([]string, len(s.Mesh.Shape))
	for i, n := range s.Mesh.Shape {
		sizes[i] = strconv.Itoa(n)
	}
	entries := make([]string, len(s.Spec))
	for i, e := range s.Spec {
		switch {
		case e.List:
			entries[i] = quoteAll(e.Axes)
		case len(e.Axes) == 1:
			entries[i] = quote(e.Axes[0])
		default:
			entries[i] = "null"
		}
	}
	text := fmt.Sprintf(`{"sharding_type": %s, "shape": %s, "axis_names": %s`, quote(namedSharding), bracket(sizes), quoteAll(s.Mesh.AxisNames))
	if s.Mesh.AxisTypes != nil {
		text += `, "axis_types": ` + quoteAll(s.Mesh.AxisTypes)
	}
	text += `, "partition_spec": ` + bracket(entries)
	if s.Mesh.Devices != nil {
		nested, _ := nest(s.Mesh.Devices, s.Mesh.Shape)
		text += `, "device_mesh": {"mesh": ` + nested + `}`
	}
	return text + "}"
}

// Check says whether the devices of the sharding are all present.
func (s *Sharding) Check(present []serry.DeviceID) error {
	there := map[serry.DeviceID]bool{}
	for _, id := range present {
		there[id] = true
	}
	var missing []serry.DeviceID
	for _, id := range s.Mesh.Devices {
		if !there[id] {
			missing = append(missing, id)
		}
	}
	if len(missing) > 0 {
		return &DevicesError{Missing: missing}
	}
	return nil
}

// On says whether a single-device sharding is on the named device. Older names
// of CPU devices mean the same as newer ones.
func (s *Sharding) On(device string) bool {
	return s.Device != "" && newerName(s.Device) == newerName(device)
}

func newerName(device string) string {
	if n, ok := strings.CutPrefix(device, "TFRT_CPU_"); ok {
		return "cpu:" + n
	}
	return device
}

func nest(ids []serry.DeviceID, shape []int) (text string, rest []serry.DeviceID) {
	if len(shape) == 0 {
		if len(ids) == 0 {
			return "null", nil
		}
		return fmt.Sprintf(`{"id": %d}`, ids[0]), ids[1:]
	}
	rows := make([]string, shape[0])
	for i := range rows {
		rows[i], ids = nest(ids, shape[1:])
	}
	return bracket(rows), ids
}

func bracket(items []string) string { return "[" + strings.Join(items, ", ") + "]" }

func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil { // a string always encodes
		panic(err)
	}
	return string(text)
}

func quoteAll(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return bracket(quoted)
}
