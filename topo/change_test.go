package topo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/topopb"
)

func gpu() *topopb.LocalTopologyProto {
	return &topopb.LocalTopologyProto{ProcessId: 3, BootId: "b", NetworkNodes: []string{"s"}, Devices: []*topopb.DeviceProto{{
		Name: "H200", Vendor: "NVIDIA", CoreCount: 132, DeviceKind: "gpu", ComputeCapability: "9.0",
		FabricUuid: "f/1", NumaNode: 1, DeviceMemoryBytesLimit: 100, ToString: "x", DebugString: "y",
		Attributes: map[string]*topopb.DeviceAttributeProto{
			"coords": {Value: &topopb.DeviceAttributeProto_IntValues{IntValues: &topopb.IntValuesProto{Values: []int64{0, 1}}}},
		},
	}}}
}

// Each field that decides over a rejoin is compared, and no other.
func TestChanges(t *testing.T) {
	clause.Cite(t, "C-TOP-17", "A-KEY-4", "C-DINC-11", "TC-TOP-27")
	hard := map[string]func(*topopb.LocalTopologyProto){
		"process_id":           func(l *topopb.LocalTopologyProto) { l.ProcessId = 4 },
		"number of devices":    func(l *topopb.LocalTopologyProto) { l.Devices = nil },
		"name":                 func(l *topopb.LocalTopologyProto) { l.Devices[0].Name = "B200" },
		"vendor":               func(l *topopb.LocalTopologyProto) { l.Devices[0].Vendor = "" },
		"local_device_ordinal": func(l *topopb.LocalTopologyProto) { l.Devices[0].LocalDeviceOrdinal = 1 },
		"core_count":           func(l *topopb.LocalTopologyProto) { l.Devices[0].CoreCount = 1 },
		"device_kind":          func(l *topopb.LocalTopologyProto) { l.Devices[0].DeviceKind = "" },
		"partition_index":      func(l *topopb.LocalTopologyProto) { l.Devices[0].PartitionIndex = 1 },
		"global_device_id":     func(l *topopb.LocalTopologyProto) { l.Devices[0].GlobalDeviceId = 1 },
		"compute_capability":   func(l *topopb.LocalTopologyProto) { l.Devices[0].ComputeCapability = "10.0" },
	}
	for field, change := range hard {
		now := gpu()
		change(now)
		events := Changes(Publication{Local: gpu()}, Publication{Local: now})
		if len(events) != 1 || events[0].Change != Conflict || !strings.HasSuffix(events[0].Field, field) {
			t.Errorf("Changes with another %s = %v; want one conflict in that field", field, events)
		}
	}
	one := int32(1)
	soft := []struct {
		want   Event
		change func(*topopb.LocalTopologyProto)
	}{
		{Event{3, Moved, "boot_id", "b", "c"}, func(l *topopb.LocalTopologyProto) { l.BootId = "c" }},
		{Event{3, Rewired, "network_nodes", "s", "s,t"}, func(l *topopb.LocalTopologyProto) { l.NetworkNodes = []string{"s", "t"} }},
		{Event{3, Rewired, "partition_index", "none", "1"}, func(l *topopb.LocalTopologyProto) { l.PartitionIndex = &one }},
		{Event{3, Refabric, "devices[0].fabric_uuid", "f/1", "f/2"}, func(l *topopb.LocalTopologyProto) { l.Devices[0].FabricUuid = "f/2" }},
		{Event{3, Resized, "devices[0].numa_node", "1", "-1"}, func(l *topopb.LocalTopologyProto) { l.Devices[0].NumaNode = -1 }},
		{Event{3, Resized, "devices[0].device_memory_bytes_limit", "100", "50"}, func(l *topopb.LocalTopologyProto) { l.Devices[0].DeviceMemoryBytesLimit = 50 }},
		{Event{3, Resized, "devices[0].attributes.coords", "[0 1]", "none"}, func(l *topopb.LocalTopologyProto) { l.Devices[0].Attributes = nil }},
	}
	for _, test := range soft {
		now := gpu()
		test.change(now)
		got := Changes(Publication{Local: gpu()}, Publication{Local: now})
		if len(hardChanges(gpu(), now)) > 0 || !slices.Equal(got, []Event{test.want}) {
			t.Errorf("%s: Changes = %v; want %v and no conflict", test.want.Field, got, test.want)
		}
	}
	silent := gpu()
	silent.Devices[0].ToString, silent.Devices[0].DebugString = "", ""
	if got := Changes(Publication{Local: gpu()}, Publication{Local: silent}); len(got) != 0 {
		t.Errorf("Changes of texts only = %v; want none", got)
	}
}

func TestChangesOfMachine(t *testing.T) {
	clause.Cite(t, "P-TOP-3", "C-DINC-12")
	record := func(machine, uuid, serial string) *TaskRecord {
		return &TaskRecord{Task: 3, MachineID: machine, Devices: []DeviceRecord{{UUID: uuid, Serial: serial}}}
	}
	rebooted := gpu()
	rebooted.BootId = "c"
	tests := []struct {
		name     string
		was, now Publication
		want     []Change
	}{
		{"nothing", Publication{gpu(), record("m", "u", "")}, Publication{gpu(), record("m", "u", "")}, nil},
		{"another boot of a known machine", Publication{gpu(), record("m", "u", "")}, Publication{rebooted, record("m", "u", "")}, []Change{Rebooted}},
		{"another machine", Publication{gpu(), record("m", "u", "")}, Publication{rebooted, record("n", "v", "")}, []Change{Moved}},
		{"another machine with the same boot id", Publication{gpu(), record("m", "", "")}, Publication{gpu(), record("n", "", "")}, []Change{Moved}},
		{"a machine that was not known before", Publication{gpu(), nil}, Publication{rebooted, record("n", "", "")}, []Change{Moved}},
		{"a device exchanged", Publication{gpu(), record("m", "u", "")}, Publication{gpu(), record("m", "v", "")}, []Change{Replaced}},
		{"a device exchanged, by serial", Publication{gpu(), record("m", "", "1")}, Publication{gpu(), record("m", "", "2")}, []Change{Replaced}},
		{"evidence that was not there before", Publication{gpu(), record("m", "", "")}, Publication{gpu(), record("m", "v", "2")}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []Change
			for _, e := range Changes(test.was, test.now) {
				got = append(got, e.Change)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("Changes() = %v; want %v", got, test.want)
			}
		})
	}
	if got, want := (Event{3, Moved, "boot_id", "b", "c"}).String(), `task 3 moved: boot_id was "b", is "c"`; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
}

// A large message that differs everywhere does not make as many events.
func TestChangesAreBounded(t *testing.T) {
	clause.Cite(t, "P-TOP-3")
	was, now := local(0, ""), local(0, "")
	for range 1000 {
		was.Devices = append(was.Devices, &topopb.DeviceProto{Name: "a"})
		now.Devices = append(now.Devices, &topopb.DeviceProto{Name: "b"})
	}
	if got := len(Changes(Publication{Local: was}, Publication{Local: now})); got != maxEvents {
		t.Errorf("Changes of 1000 devices gives %d events; want %d", got, maxEvents)
	}
}

func TestRecord(t *testing.T) {
	clause.Cite(t, "P-TOP-4", "P-RMP-1")
	core, part := 1, 2
	want := &TaskRecord{
		Task: 2, Tasks: 4, Index: &core, Incarnation: 0x9f3c000000000001, MachineID: "c41d", BootID: "b", Hostname: "h-c",
		Partition: &part, NetworkNodes: []string{"spine"},
		Devices: []DeviceRecord{{ID: 4, Platform: "cuda", Kind: "H200", UUID: "GPU-8d", PCI: "0000:1b:00.0", Serial: "7",
			Fabric: "f/1", Coords: []int{0, 1}, Core: &core, MeshPosition: []int{2, 0}}},
	}
	text, err := want.MarshalJSON()
	if err != nil || !strings.Contains(string(text), `"incarnation":"0x9f3c000000000001"`) {
		t.Fatalf("MarshalJSON() = %s, %v; want the incarnation as text", text, err)
	}
	got, err := ParseRecord("k", text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseRecord(MarshalJSON()) = %v, difference (-want +got)\n%s", err, diff)
	}
}

func TestRecordNamesItsFaults(t *testing.T) {
	clause.Cite(t, "P-TOP-4", "P-RMP-11")
	tests := []struct{ text, want string }{
		{`{"process_id": 1, "devi`, "host_identity/1: cut short: it ends after 23 bytes"},
		{``, "host_identity/1: cut short: it ends after 0 bytes"},
		{`{"process_id": 1}}`, "host_identity/1: more text after its end, at byte 17"},
		{`{"process_id": "1"}`, "host_identity/1: process_id: a string where a"},
		{`{"devices": [{"global_id": 1.5}]}`, "devices.global_id: a number 1.5 where a"},
		{`{"incarnation": "0xzz"}`, `incarnation: "0xzz" is not a 64-bit number`},
		{`{"process_id": -1}`, "process_id: -1 is negative"},
		{`{"process_id": 4294967296}`, "process_id: 4294967296 has more than 32 bits"},
		{`{"process_id": 4, "num_processes": 4}`, "process_id: 4 in a job of 4"},
		{`{"devices": [{"global_id": -7}]}`, "devices[0].global_id: -7 is negative"},
		{`{"devices": [{"local_ordinal": -1}]}`, "devices[0].local_ordinal: -1 is negative"},
		{`{"devices": [{"global_id": 7}, {"global_id": 7}]}`, "devices[1].global_id: 7 is there twice"},
	}
	for _, test := range tests {
		_, err := ParseRecord("host_identity/1", []byte(test.text))
		if fe, ok := errors.AsType[*FileError](err); !ok || !strings.Contains(err.Error(), test.want) || fe.File != "host_identity/1" {
			t.Errorf("ParseRecord(%s) = %v; want %q", test.text, err, test.want)
		}
	}
	if _, err := ParseRecord("k", []byte("[")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("ParseRecord of half a text = %v; want it known as such", err)
	}
}

func FuzzParseRecord(f *testing.F) {
	text, _ := TaskRecord{Task: 1, Incarnation: 7, Devices: []DeviceRecord{{ID: 3}}}.MarshalJSON()
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseRecord("k", text)
		if err != nil {
			return
		}
		first, err := r.MarshalJSON()
		if err != nil {
			t.Fatalf("MarshalJSON of a parsed record = %v", err)
		}
		again, err := ParseRecord("k", first)
		if err != nil {
			t.Fatalf("ParseRecord(%s) = %v", first, err)
		}
		if second, _ := again.MarshalJSON(); string(first) != string(second) {
			t.Errorf("not stable: %s, then %s", first, second)
		}
	})
}

func TestBoard(t *testing.T) {
	clause.Cite(t, "P-TOP-2", "C-DINC-12")
	b := NewBoard(3)
	keys := JAXKeys("cuda")
	put := func(key string, m proto.Message) {
		t.Helper()
		value, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Insert(key, value)
	}
	put(keys.Local(0), local(0, "a", 0))
	put(keys.Local(1), local(1, "b", 0, 1))
	put("cpu:local_topology/cpu/1", local(1, "b"))
	put("program/1", local(1, "b"))
	want := []Progress{{Keys: JAXKeys("cpu"), Missing: []serry.TaskIndex{0, 2}}, {Keys: keys, Missing: []serry.TaskIndex{2}}}
	if diff := cmp.Diff(want, b.Progress()); diff != "" {
		t.Errorf("Progress() (-want +got)\n%s", diff)
	}
	put(keys.Local(2), local(2, "c"))
	if top, err := b.topology(keys); top != nil || err != nil {
		t.Errorf("topology() before task 0 built one = %v, %v; want none", top, err)
	}
	g, _ := build(locals{local(0, "a", 0), local(1, "b", 0, 1), local(2, "c")}, true)
	put(keys.Global(), g)
	top, err := b.topology(keys)
	if err != nil || len(top.Devices()) != 3 {
		t.Errorf("topology() = %v, %v; want three devices", top, err)
	}
	if got := b.Progress()[1]; !got.Global || len(got.Missing) != 0 {
		t.Errorf("Progress() = %+v; want a whole platform", got)
	}
}

// What a task says of its machine and what the topology says of its devices
// come together; a task of jaxlib has only the latter.
func TestBoardRecords(t *testing.T) {
	clause.Cite(t, "P-TOP-4", "P-TOP-2")
	b, keys := NewBoard(2), JAXKeys("cuda")
	if got, err := b.Records(keys); got != nil || err != nil {
		t.Errorf("Records() of nothing = %v, %v; want nothing", got, err)
	}
	said, err := TaskRecord{Task: 1, MachineID: "m1", Hostname: "h1", Devices: []DeviceRecord{
		{ID: 77, Ordinal: 1, UUID: "GPU-1"}, {ID: 78, Ordinal: 9, UUID: "GPU-9"}}}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	b.Insert(keys.Identity(1), said)
	global, err := build([]*topopb.LocalTopologyProto{local(0, "a", 0), local(1, "b", 0, 1)}, true)
	if err != nil {
		t.Fatal(err)
	}
	value, err := Encode(global)
	if err != nil {
		t.Fatal(err)
	}
	b.Insert(keys.Global(), value)
	zero, one := 0, 1
	want := []TaskRecord{
		{Task: 0, Tasks: 2, BootID: "a", Partition: &zero, Devices: []DeviceRecord{
			{ID: 0, Ordinal: 0, Platform: "cuda", Kind: global.Processes[0].Devices[0].GetDeviceKind()}}},
		{Task: 1, MachineID: "m1", Hostname: "h1", BootID: "b", Partition: &one, Devices: []DeviceRecord{
			{ID: 1, Ordinal: 0, Platform: "cuda", Kind: global.Processes[1].Devices[0].GetDeviceKind()},
			{ID: 2, Ordinal: 1, Platform: "cuda", Kind: global.Processes[1].Devices[1].GetDeviceKind(), UUID: "GPU-1"}}},
	}
	got, err := b.Records(keys)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Records() = %v (-want +got)\n%s", err, diff)
	}
	for key, want := range map[string]bool{keys.Local(3): true, keys.Global(): true, keys.Identity(0): true, "host_identity/0": true, "program/1": false} {
		if got := WantsKey(key); got != want {
			t.Errorf("WantsKey(%q) = %v; want %v", key, got, want)
		}
	}
}

// Whatever tasks write, a board stays small.
func TestBoardIsBounded(t *testing.T) {
	clause.Cite(t, "P-TOP-2")
	b := NewBoard(4)
	for i := range 1000 {
		b.Insert(fmt.Sprintf("p%d:local_topology/p/0", i), nil)
		b.Insert(fmt.Sprintf("local_topology/cpu/%d", i), nil)
		b.Insert(fmt.Sprintf("p%d:host_identity/x", i), nil)
	}
	if p, r := len(b.platforms), len(b.records); p > maxPlatforms || r > 4*maxPlatforms {
		t.Errorf("%d platforms and %d records; want at most %d and %d", p, r, maxPlatforms, 4*maxPlatforms)
	}
	for _, p := range b.platforms {
		for task := range p.published {
			if task >= 4 {
				t.Errorf("task %d of 4 is on the board", task)
			}
		}
	}
}

func FuzzBoard(f *testing.F) {
	f.Add("cuda:local_topology/cuda/1", []byte{0x08, 1}, []byte{0x08, 1, 0x12, 1, 'b'})
	f.Add("cuda:global_topology/cuda", []byte{0x0a, 0}, []byte{})
	f.Add("host_identity/0", []byte("{}"), []byte("["))
	f.Fuzz(func(t *testing.T, key string, one, two []byte) {
		b := NewBoard(4)
		b.Insert("host_identity/1", two)
		b.Insert(key, one)
		b.Insert(key, two)
		b.Progress()
		if keys, _, ok := parseKey(key); ok {
			_, _ = b.Records(keys)
		}
	})
}
