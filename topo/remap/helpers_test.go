package remap

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
)

// host makes the record of a task on a machine of that name, with two GPUs that
// are known by uuid and have the ids 2t and 2t+1.
func host(t serry.TaskIndex, name string) topo.TaskRecord {
	r := topo.TaskRecord{Task: t, MachineID: name, Hostname: name}
	for o := range topo.Ordinal(2) {
		r.Devices = append(r.Devices, topo.DeviceRecord{
			ID: serry.DeviceID(2*t) + serry.DeviceID(o), Ordinal: o, Platform: "cuda", Kind: "H200",
			UUID: fmt.Sprintf("GPU-%s-%d", name, o), PCI: fmt.Sprintf("0000:%d:00.0", o),
		})
	}
	return r
}

func hosts(names ...string) []topo.TaskRecord {
	var all []topo.TaskRecord
	for i, name := range names {
		all = append(all, host(serry.TaskIndex(i), name))
	}
	return all
}

// bare takes from records what lies above a level of evidence.
func bare(records []topo.TaskRecord, level Level) []topo.TaskRecord {
	out := slices.Clone(records)
	for i := range out {
		out[i].Devices = slices.Clone(out[i].Devices)
		for j := range out[i].Devices {
			d := &out[i].Devices[j]
			if level > ByDevice {
				d.UUID, d.Serial = "", ""
			}
			if level > BySlot {
				d.PCI = ""
			}
		}
		if level > ByOrdinal {
			out[i].MachineID = ""
		}
	}
	return out
}

func numbers(n int) []serry.DeviceID {
	ids := make([]serry.DeviceID, n)
	for i := range ids {
		ids[i] = serry.DeviceID(i)
	}
	return ids
}

// wantFault fails unless err is a FileError whose text holds want.
func wantFault(t *testing.T, call string, err error, want string) {
	t.Helper()
	if _, ok := errors.AsType[*topo.FileError](err); !ok || !containsText(err, want) {
		t.Errorf("%s = %v; want a fault with %q", call, err, want)
	}
}
