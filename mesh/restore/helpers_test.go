package restore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/mesh"
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

func containsText(err error, want string) bool {
	return err != nil && strings.Contains(err.Error(), want)
}

// block makes an index of the starts and stops of its dimensions.
func block(bounds ...int) mesh.Index {
	x := make(mesh.Index, len(bounds)/2)
	for d := range x {
		x[d] = mesh.Range{Start: bounds[2*d], Stop: bounds[2*d+1]}
	}
	return x
}
