package topo

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
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
func TestSameLocal(t *testing.T) {
	clause(t, "C-TOP-17", "A-KEY-4", "C-DINC-11", "TC-TOP-27")
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
		if SameLocal(gpu(), now) || len(events) != 1 || events[0].Change != Conflict || !strings.HasSuffix(events[0].Field, field) {
			t.Errorf("SameLocal with another %s = %v, %v; want one conflict in that field", field, SameLocal(gpu(), now), events)
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
		if !SameLocal(gpu(), now) || !slices.Equal(got, []Event{test.want}) {
			t.Errorf("%s: SameLocal = %v, Changes = %v; want true and %v", test.want.Field, SameLocal(gpu(), now), got, test.want)
		}
	}
	silent := gpu()
	silent.Devices[0].ToString, silent.Devices[0].DebugString = "", ""
	if got := Changes(Publication{Local: gpu()}, Publication{Local: silent}); len(got) != 0 {
		t.Errorf("Changes of texts only = %v; want none", got)
	}
}

func TestChangesOfMachine(t *testing.T) {
	clause(t, "P-TOP-3", "C-DINC-12")
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
	if Rebooted.Severity() >= Moved.Severity() || Moved.Severity() >= Conflict.Severity() {
		t.Error("severities do not rise from rebooted over moved to conflict")
	}
	if got, want := (Event{3, Moved, "boot_id", "b", "c"}).String(), `task 3 moved: boot_id was "b", is "c"`; got != want {
		t.Errorf("String() = %s; want %s", got, want)
	}
}

// A large message that differs everywhere does not make as many events.
func TestChangesAreBounded(t *testing.T) {
	clause(t, "P-TOP-3")
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
	clause(t, "P-TOP-4", "P-RMP-1")
	core, part := 1, 2
	want := &TaskRecord{
		Task: 2, Tasks: 4, Index: &core, Incarnation: 0x9f3c000000000001, MachineID: "c41d", BootID: "b", Hostname: "h-c",
		Partition: &part, NetworkNodes: []string{"spine"},
		Devices: []DeviceRecord{{ID: 4, Platform: "cuda", Kind: "H200", UUID: "GPU-8d", PCI: "0000:1b:00.0", Serial: "7",
			Fabric: "f/1", Coords: []int{0, 1}, Core: &core, Place: []int{2, 0}}},
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
	clause(t, "P-TOP-4", "P-RMP-11")
	tests := []struct{ text, want string }{
		{`{"process_id": 1, "devi`, "host_identity/1: cut short: it ends after 23 bytes"},
		{``, "host_identity/1: cut short: it ends after 0 bytes"},
		{`{"process_id": 1}}`, "host_identity/1: more text after its end, at byte 17"},
		{`{"process_id": "1"}`, "host_identity/1: process_id: a string where a"},
		{`{"devices": [{"global_id": 1.5}]}`, "devices.global_id: a number 1.5 where a"},
		{`{"incarnation": "0xzz"}`, `incarnation: "0xzz" is not a 64-bit number`},
		{`{"process_id": -1}`, "process_id: -1 is negative"},
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
	clause(t, "P-TOP-2", "P-TOP-3", "C-DINC-12")
	b := NewBoard(3)
	keys := JAXKeys("cuda")
	put := func(at time.Duration, inc serry.Incarnation, key string, m proto.Message) []Event {
		value, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		return b.Insert(Write{At: at, Key: key, Value: value, Incarnation: inc})
	}
	put(5*time.Second, 11, keys.Local(0), local(0, "a", 0))
	put(7*time.Second, 12, keys.Local(1), local(1, "b", 0, 1))
	put(8*time.Second, 12, "cpu:local_topology/cpu/1", local(1, "b"))
	put(8*time.Second, 12, "program/1", local(1, "b"))
	want := []Standing{
		{Keys: JAXKeys("cpu"), Published: []Published{{1, 12, 8 * time.Second, 0}}, Missing: []Task{0, 2}, Waited: 7 * time.Second},
		{Keys: keys, Published: []Published{{0, 11, 5 * time.Second, 1}, {1, 12, 7 * time.Second, 2}}, Missing: []Task{2}, Waited: 10 * time.Second},
	}
	if diff := cmp.Diff(want, b.Standings(15*time.Second)); diff != "" {
		t.Errorf("Standings() (-want +got)\n%s", diff)
	}

	if got := put(20*time.Second, 13, keys.Local(1), local(1, "c", 0, 1)); len(got) != 1 || got[0].Change != Moved {
		t.Errorf("task 1 writes from another boot = %v; want moved", got)
	}
	if got := put(21*time.Second, 14, keys.Local(1), local(1, "c", 0, 1)); len(got) != 0 {
		t.Errorf("task 1 writes the same again = %v; want nothing, it was told", got)
	}
	if got := put(22*time.Second, 15, keys.Local(1), local(1, "c", 0)); len(got) != 1 || got[0].Change != Conflict {
		t.Errorf("task 1 writes fewer devices = %v; want a conflict", got)
	}
	if got := b.Insert(Write{Key: keys.Local(2), Value: []byte{0xff}}); len(got) != 1 || got[0].Change != Damaged {
		t.Errorf("task 2 writes garbage = %v; want damaged", got)
	}
	if got := b.Insert(Write{Key: keys.Local(2), Value: nil}); len(got) != 0 {
		t.Errorf("task 2 writes after garbage = %v; want nothing", got)
	}

	if top, err := b.Topology(keys); top != nil || err != nil {
		t.Errorf("Topology() before task 0 built one = %v, %v; want none", top, err)
	}
	g, _ := Build(locals{local(0, "a", 0), local(1, "b", 0, 1), local(2, "c")}, true, PolicyXLA)
	put(30*time.Second, 11, keys.Global(), g)
	top, err := b.Topology(keys)
	if err != nil || len(top.Devices()) != 3 {
		t.Errorf("Topology() = %v, %v; want three devices", top, err)
	}
	if s := b.Standings(31 * time.Second)[1]; !s.Global || len(s.Missing) != 0 || s.Waited != 0 {
		t.Errorf("Standings() = %+v; want a whole platform", s)
	}

	for _, key := range []string{keys.Global(), keys.Local(0), keys.Local(1), keys.Local(2), "cpu:local_topology/cpu/1", "none/such"} {
		b.Delete(key)
	}
	if got := b.Standings(40 * time.Second); len(got) != 0 {
		t.Errorf("Standings() after all was deleted = %+v; want none", got)
	}
}

func TestBoardKnowsMachines(t *testing.T) {
	clause(t, "P-TOP-3", "P-TOP-4")
	b := NewBoard(2)
	life := func(boot, machine string) []Event {
		record, _ := TaskRecord{Task: 1, MachineID: machine}.MarshalJSON()
		b.Insert(Write{Key: "cuda:host_identity/1", Value: record})
		value, _ := Encode(local(1, boot, 0))
		return b.Insert(Write{Key: "cuda:local_topology/cuda/1", Value: value})
	}
	life("b1", "m1")
	if got := life("b2", "m1"); len(got) != 1 || got[0].Change != Rebooted {
		t.Errorf("another boot of a known machine = %v; want rebooted", got)
	}
	if got := life("b3", "m2"); len(got) != 1 || got[0].Change != Moved {
		t.Errorf("another machine = %v; want moved", got)
	}
}

// What a task says of its machine and what the topology says of its devices
// come together; a task of jaxlib has only the latter.
func TestBoardRecords(t *testing.T) {
	clause(t, "P-TOP-4", "P-TOP-2")
	b, keys := NewBoard(2), JAXKeys("cuda")
	if got, err := b.Records(keys); got != nil || err != nil {
		t.Errorf("Records() of nothing = %v, %v; want nothing", got, err)
	}
	said, err := TaskRecord{Task: 1, MachineID: "m1", Hostname: "h1", Devices: []DeviceRecord{
		{ID: 77, Ordinal: 1, UUID: "GPU-1"}, {ID: 78, Ordinal: 9, UUID: "GPU-9"}}}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	b.Insert(Write{Key: keys.Identity(1), Value: said})
	global, err := Build([]*topopb.LocalTopologyProto{local(0, "a", 0), local(1, "b", 0, 1)}, true, PolicyXLA)
	if err != nil {
		t.Fatal(err)
	}
	value, err := Encode(global)
	if err != nil {
		t.Fatal(err)
	}
	b.Insert(Write{Key: keys.Global(), Value: value})
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
	clause(t, "P-TOP-2")
	b := NewBoard(4)
	for i := range 1000 {
		b.Insert(Write{Key: fmt.Sprintf("p%d:local_topology/p/0", i)})
		b.Insert(Write{Key: fmt.Sprintf("local_topology/cpu/%d", i)})
		b.Insert(Write{Key: fmt.Sprintf("p%d:host_identity/x", i)})
	}
	if p, r := len(b.platforms), len(b.records); p > maxPlatforms || r > 4*maxPlatforms {
		t.Errorf("%d platforms and %d records; want at most %d and %d", p, r, maxPlatforms, 4*maxPlatforms)
	}
	for _, s := range b.Standings(0) {
		for _, p := range s.Published {
			if p.Task >= 4 {
				t.Errorf("task %d of 4 is on the board", p.Task)
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
		b.Insert(Write{Key: "host_identity/1", Value: two})
		b.Insert(Write{Key: key, Value: one})
		b.Insert(Write{Key: key, Value: two})
		b.Standings(0)
		if keys, _, ok := parseKey(key); ok {
			_, _ = b.Topology(keys)
		}
		b.Delete(key)
		if len(b.Standings(0)) != 0 {
			t.Errorf("key %q was deleted and is still on the board", key)
		}
	})
}
