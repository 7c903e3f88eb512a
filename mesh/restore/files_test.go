package restore

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh"
	"github.com/serry-dev/serry/topo"
)

func TestManifest(t *testing.T) {
	lab.Clause(t, "P-RMP-1", "P-RMP-7")
	want := &Manifest{Job: "llm-7b", Epoch: 4, Created: 1790000000000, Mesh: flat(4, 2), Tasks: hosts("a", "b", "c", "d")}
	want.Mesh.AxisTypes = []string{"Explicit", "Auto"}
	want.Tasks[2].Incarnation = 0x9f3c
	want.Tasks[2].Devices[0].MeshPosition = []int{2, 0}
	text, err := want.Encode()
	if err != nil {
		t.Fatalf("Encode() = %v", err)
	}
	got, err := ParseManifest(ManifestFile, text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseManifest(Encode()) = %v, difference (-want +got)\n%s", err, diff)
	}
	for _, part := range []string{`"format": 1`, `"topology_epoch": 4`, `"machine_id": "c"`, `"incarnation": "0x9f3c"`, `"mesh_coord"`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("Encode() has no %s:\n%s", part, text)
		}
	}
}

func TestManifestNamesItsFaults(t *testing.T) {
	lab.Clause(t, "P-RMP-7", "P-RMP-11")
	head := `{"format": 1, "mesh": {"shape": [2], "axis_names": ["x"], "device_ids": [0, 1]}, "processes": `
	two := `[{"process_id": 0, "devices": [{"global_id": 0}]}, {"process_id": 1, "devices": [{"global_id": 1}]}]}`
	tests := []struct{ text, want string }{
		{head + two[:40], "cut short: it ends after"},
		{strings.Replace(head, `"format": 1`, `"format": 2`, 1) + two, "format: 2; this version reads 1"},
		{`{}`, "format: 0; this version reads 1"},
		{strings.Replace(head, `[2]`, `"2"`, 1) + two, "mesh.shape: a string where a"},
		{head + `[{"process_id": 0}, {"process_id": "x"}]}`, "processes[1].process_id: a string where a"},
		{head + `[{"devices": [{"global_id": -1}]}]}`, "processes[0].devices[0].global_id: -1 is negative"},
		{head + `[{"process_id": 9999999}]}`, "processes[0].process_id: 9999999; at most"},
		{head + strings.Replace(two, `"process_id": 1`, `"process_id": 0`, 1), "processes[1].process_id: 0 is there twice"},
		{head + strings.Replace(two, `"global_id": 1`, `"global_id": 0`, 1), "processes[1].devices[0].global_id: 0 is there twice"},
		{strings.Replace(head, `[0, 1]`, `[0, 7]`, 1) + two, "mesh.device_ids[1]: device 7 belongs to no process"},
		{strings.Replace(head, `[0, 1]`, `[0, 0]`, 1) + two, "mesh.device_ids[1]: device 0 is in the mesh twice"},
		{strings.Replace(head, `[2]`, `[3]`, 1) + two, "mesh.shape: [3] for 2 device ids"},
		{strings.Replace(head, `["x"]`, `[]`, 1) + two, "mesh.axis_names: 0 names for 1 axes"},
		{strings.Replace(head, `["x"]`, `["x"], "axis_types": []`, 1) + two, "mesh.axis_types: 0 types for 1 axes"},
		{head + strings.Replace(two, `"global_id": 1`, `"global_id": 1, "mesh_coord": [0]`, 1), "device 1 stands at [1], but says it is at [0]"},
		{strings.Replace(head, `[2]`, `[65536, 65536, 65536, 65536]`, 1) + two, "mesh.shape"},
	}
	for _, test := range tests {
		_, err := ParseManifest("saved/"+ManifestFile, []byte(test.text))
		wantFault(t, "ParseManifest("+test.text+")", err, test.want)
		wantFault(t, "ParseManifest", err, "saved/device_manifest.json: ")
	}
	if _, err := ParseManifest(ManifestFile, []byte(head+two)); err != nil {
		t.Errorf("ParseManifest(whole) = %v; want no error", err)
	}
	bad := &Manifest{Mesh: flat(2)}
	if _, err := bad.Encode(); err == nil {
		t.Error("Encode of a manifest without its tasks = nil; want an error")
	}
}

func TestIndexFile(t *testing.T) {
	lab.Clause(t, "P-RMP-2")
	want := holds(3, 6, 7)
	text, err := want.Encode()
	if err != nil {
		t.Fatalf("Encode() = %v", err)
	}
	got, err := ParseInventory(InventoryFile, text)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseInventory(Encode()) = %v, difference (-want +got)\n%s", err, diff)
	}
}

func TestIndexNamesItsFaults(t *testing.T) {
	lab.Clause(t, "P-RMP-2", "P-RMP-11")
	good := `{"format": 1, "step": 5, "process_id": 0, "parameters": [{"name": "w", "global_shape": [4], "dtype": "int8",
		"shards": [{"index": [[0, 2]], "file": "w/0", "bytes": 2, "digest": "crc32c:1"}]}]}`
	if _, err := ParseInventory(InventoryFile, []byte(good)); err != nil {
		t.Fatalf("ParseInventory(whole) = %v", err)
	}
	tests := []struct{ old, new, want string }{
		{good, good[:60], "cut short: it ends after 60 bytes"},
		{`"format": 1`, `"format": 3`, "format: 3; this version reads 1"},
		{`"step": 5`, `"step": -5`, "step, process_id: -5, 0"},
		{`"process_id": 0`, `"process_id": -1`, "step, process_id: 5, -1"},
		{`[4]`, `[-4]`, "parameters[0].global_shape: [-4] is no shape"},
		{`[4]`, `[9223372036854775807, 2]`, "parameters[0].global_shape"},
		{`"int8"`, `""`, "parameters[0].dtype: empty"},
		{`[[0, 2]]`, `[[0, 5]]`, "parameters[0].shards[0].index: [0:5] is not within [4]"},
		{`[[0, 2]]`, `[[2, 0]]`, "shards[0].index: [2:0] is not within"},
		{`[[0, 2]]`, `[]`, "shards[0].index: [] is not within"},
		{`[[0, 2]]`, `[[0]]`, "an index range of 1 numbers"},
		{`[[0, 2]]`, `[["a", 2]]`, "a string where a"},
		{`"w/0"`, `"../w"`, `parameters[0].shards[0].file: "../w" is not a file below`},
		{`"w/0"`, `"/etc/passwd"`, "is not a file below"},
		{`"w/0"`, `"."`, "is not a file below"},
		{`"bytes": 2`, `"bytes": -2`, "shards[0].bytes: -2 is negative"},
		{`"crc32c:1"`, `""`, "shards[0].digest: empty"},
		{`"parameters": [`, `"parameters": [{"name": "w", "dtype": "x"}, `, `parameters[1].name: "w" is there twice`},
	}
	for _, test := range tests {
		text := strings.Replace(good, test.old, test.new, 1)
		_, err := ParseInventory("step/"+InventoryFile, []byte(text))
		wantFault(t, "ParseInventory with "+test.new, err, test.want)
		wantFault(t, "ParseInventory with "+test.new, err, "step/shards.json: ")
	}
}

func FuzzParseManifest(f *testing.F) {
	text, _ := (&Manifest{Mesh: flat(2, 2), Tasks: hosts("a", "b")}).Encode()
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseManifest("f", text)
		if err != nil {
			return
		}
		first, err := m.Encode()
		if err != nil {
			t.Fatalf("Encode of a parsed manifest = %v", err)
		}
		again, err := ParseManifest("f", first)
		if err != nil {
			t.Fatalf("ParseManifest(Encode()) = %v", err)
		}
		if second, _ := again.Encode(); !slices.Equal(first, second) {
			t.Errorf("not stable: %s, then %s", first, second)
		}
		m.Metadata()
		_, _ = topo.Match(m.Tasks, m.Tasks, topo.ByID)
	})
}

func FuzzParseIndex(f *testing.F) {
	text, _ := holds(1, 0, 3).Encode()
	f.Add(text, 0, 8)
	f.Fuzz(func(t *testing.T, text []byte, start, stop int) {
		x, err := ParseInventory("f", text)
		if err != nil {
			return
		}
		first, err := x.Encode()
		if err != nil {
			t.Fatalf("Encode of a parsed index = %v", err)
		}
		if again, err := ParseInventory("f", first); err != nil || cmp.Diff(x, again) != "" {
			t.Fatalf("not stable: %v\n%s", err, cmp.Diff(x, again))
		}
		in := Input{Step: x.Step, Live: []Live{{Record: topo.TaskRecord{Devices: []topo.DeviceRecord{{}}}, Held: x}}}
		for _, a := range x.Arrays { // ask for a slab of each
			index := make(mesh.Index, len(a.Shape))
			for i, n := range a.Shape {
				index[i] = mesh.Range{Stop: n}
			}
			if len(index) > 0 {
				index[0] = mesh.Range{Start: start, Stop: stop}
			}
			in.Arrays = append(in.Arrays, Array{a.Name, a.Shape, a.Type, []Part{{serry.DeviceID(0), index}}})
		}
		if p, err := NewPlan(in); err == nil {
			p.Explain()
		}
	})
}
