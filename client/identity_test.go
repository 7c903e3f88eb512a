package client

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// gpu is what the driver says of a device, with the spaces and tabs it puts there.
func gpu(uuid, pci string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t " + uuid +
		"\nBus Type: \t PCIe\nBus Location: \t " + pci + "\nDevice Minor: \t 0\nGPU Excluded:\t No\n")}
}

// twoGPUs is a host with everything there.
func twoGPUs() fstest.MapFS {
	return fstest.MapFS{
		"etc/machine-id":                                     {Data: []byte("c0ffee\n")},
		"proc/sys/kernel/random/boot_id":                     {Data: []byte("b-1\n")},
		"sys/class/dmi/id/product_uuid":                      {Data: []byte("4C4C4544-0001\n")},
		"proc/driver/nvidia/gpus/0000:1b:00.0/information":   gpu("GPU-bb", "0000:1b:00.0"),
		"proc/driver/nvidia/gpus/0000:06:00.0/information":   gpu("GPU-aa", "0000:06:00.0"),
		"proc/driver/nvidia/gpus/0000:06:00.0/registry":      {Data: []byte("Binary: \"\"\n")},
		"proc/driver/nvidia/gpus/0000:ff:00.0/not-this-file": {Data: []byte("GPU UUID: GPU-zz\n")},
	}
}

func seenBy(files fstest.MapFS, env map[string]string) host {
	return host{files: files, env: func(k string) string { return env[k] }, hostname: func() (string, error) { return "h-1", nil }}
}

func uuids(r topo.TaskRecord) (all []string) {
	for i, d := range r.Devices {
		if d.Ordinal != topo.Ordinal(i) {
			all = append(all, "out of order")
		}
		all = append(all, d.UUID)
	}
	return all
}

func TestIdentifyReadsTheHost(t *testing.T) {
	clause.Cite(t, "P-TOP-4", "C-TOP-9", "C-TOP-10")
	want := topo.TaskRecord{
		MachineID: "4c4c4544-0001", BootID: "b-1", Hostname: "h-1", NetworkNodes: []string{"spine", "rack"},
		Devices: []topo.DeviceRecord{
			{Ordinal: 0, Platform: "cuda", Kind: "NVIDIA H200", UUID: "GPU-aa", PCI: "0000:06:00.0"},
			{Ordinal: 1, Platform: "cuda", Kind: "NVIDIA H200", UUID: "GPU-bb", PCI: "0000:1b:00.0"},
		},
	}
	got := seenBy(twoGPUs(), map[string]string{"XLA_DISTRIBUTED_TOPOLOGY_NETWORK_NODES": "spine, ,rack"}).identify()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("identify() (-want +got)\n%s", diff)
	}
	nothing := host{files: fstest.MapFS{}, env: func(string) string { return "" },
		hostname: func() (string, error) { return "", errors.New("no name") }}
	if diff := cmp.Diff(topo.TaskRecord{}, nothing.identify()); diff != "" {
		t.Errorf("identify() of a host that tells nothing (-want +got)\n%s", diff)
	}
}

// What is set by hand comes first: it is how hosts that look alike are told apart.
func TestIdentifyIsOverridden(t *testing.T) {
	clause.Cite(t, "P-TOP-4")
	got := seenBy(twoGPUs(), map[string]string{
		EnvMachineID: "m-7", EnvBootID: "b-7", EnvHostname: "seven", EnvDeviceUUIDs: "GPU-70, GPU-71,GPU-72",
	}).identify()
	if got.MachineID != "m-7" || got.BootID != "b-7" || got.Hostname != "seven" {
		t.Errorf("identify() = machine %q, boot %q, host %q; want those of the environment", got.MachineID, got.BootID, got.Hostname)
	}
	if diff := cmp.Diff([]string{"GPU-70", "GPU-71", "GPU-72"}, uuids(got)); diff != "" {
		t.Errorf("devices (-want +got)\n%s", diff)
	}
}

func TestIdentifyTakesMachineIDOfBoardsThatSayNothing(t *testing.T) {
	clause.Cite(t, "P-TOP-4")
	for _, board := range []string{"", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009"} {
		files := twoGPUs()
		files["sys/class/dmi/id/product_uuid"] = &fstest.MapFile{Data: []byte(board + "\n")}
		if got := seenBy(files, nil).identify().MachineID; got != "c0ffee" {
			t.Errorf("machine with board %q = %q; want that of /etc/machine-id", board, got)
		}
	}
}

func TestIdentifyCountsAsCUDADoes(t *testing.T) {
	clause.Cite(t, "P-TOP-4")
	for list, want := range map[string][]string{
		"":             {"GPU-aa", "GPU-bb"},
		"1,0":          {"GPU-bb", "GPU-aa"},
		"1":            {"GPU-bb"},
		"GPU-b,GPU-aa": {"GPU-bb", "GPU-aa"},
		"0,2,1":        {"GPU-aa"},
		"-1":           nil,
		"0,,1":         {"GPU-aa"},
		"MIG-aa":       nil,
	} {
		got := uuids(seenBy(twoGPUs(), map[string]string{"CUDA_VISIBLE_DEVICES": list}).identify())
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q (-want +got)\n%s", list, diff)
		}
	}
}

func TestDriverThatTellsLittle(t *testing.T) {
	clause.Cite(t, "P-TOP-4")
	for name, c := range map[string]struct {
		text string
		want topo.DeviceRecord
		ok   bool
	}{
		"not used yet": {"Model: Tesla\nGPU UUID: GPU-????????-????\nBus Location: 0000:01:00.0\n", topo.DeviceRecord{Platform: "cuda", Kind: "Tesla", PCI: "0000:01:00.0"}, true},
		"excluded":     {"GPU UUID: GPU-1\nGPU Excluded: Yes\n", topo.DeviceRecord{Platform: "cuda", UUID: "GPU-1"}, false},
		"cut short":    {"Mod", topo.DeviceRecord{Platform: "cuda"}, false},
		"empty":        {"", topo.DeviceRecord{Platform: "cuda"}, false},
	} {
		got, ok := nvidiaDevice(c.text)
		if diff := cmp.Diff(c.want, got); ok != c.ok || diff != "" {
			t.Errorf("%s: ok %v, want %v (-want +got)\n%s", name, ok, c.ok, diff)
		}
	}
}

// What a task publishes has the devices of its topology, each with what the host knows of it.
func TestRecordOfATopology(t *testing.T) {
	clause.Cite(t, "P-TOP-4")
	h := seenBy(twoGPUs(), nil)
	local := &topopb.LocalTopologyProto{ProcessId: 3, BootId: "b-of-topology", Devices: []*topopb.DeviceProto{
		{LocalDeviceOrdinal: 1, DeviceKind: "H200", FabricUuid: "f/0"}, {LocalDeviceOrdinal: 4, Name: "other"},
	}}
	got := h.record(topo.Exchange{Keys: topo.JAXKeys("cuda"), Tasks: 4, Assign: true}, local)
	want := []topo.DeviceRecord{
		{ID: 0, Ordinal: 1, Platform: "cuda", Kind: "H200", UUID: "GPU-bb", PCI: "0000:1b:00.0", Fabric: "f/0"},
		{ID: 1, Ordinal: 4, Platform: "cuda", Kind: "other"},
	}
	if diff := cmp.Diff(want, got.Devices); diff != "" || got.Task != 3 || got.Tasks != 4 || got.BootID != "b-of-topology" {
		t.Errorf("record() of task %d of %d, boot %q (-want +got)\n%s", got.Task, got.Tasks, got.BootID, diff)
	}
	cpu, err := topo.CPULocal(1, "b", nil, 2)
	if err != nil {
		t.Fatal(err)
	}
	got = h.record(topo.Exchange{Keys: topo.JAXKeys("cpu"), Tasks: 4}, cpu)
	want = []topo.DeviceRecord{{ID: 2048, Platform: "cpu", Kind: "cpu"}, {ID: 2049, Ordinal: 1, Platform: "cpu", Kind: "cpu"}}
	if diff := cmp.Diff(want, got.Devices); diff != "" {
		t.Errorf("record() on CPU (-want +got)\n%s", diff)
	}
}
