package topo

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/topopb"
)

// local makes what one task publishes, with devices of the given ordinals.
func local(task serry.TaskIndex, boot string, ordinals ...int32) *topopb.LocalTopologyProto {
	l := &topopb.LocalTopologyProto{ProcessId: int32(task), BootId: boot}
	for _, o := range ordinals {
		l.Devices = append(l.Devices, &topopb.DeviceProto{LocalDeviceOrdinal: o})
	}
	return l
}

func withFabric(l *topopb.LocalTopologyProto, fabrics ...string) *topopb.LocalTopologyProto {
	for i, d := range l.Devices {
		d.FabricUuid = fabrics[i%len(fabrics)]
	}
	return l
}

func inPartition(l *topopb.LocalTopologyProto, index int32) *topopb.LocalTopologyProto {
	l.PartitionIndex = &index
	return l
}

func behind(l *topopb.LocalTopologyProto, nodes ...string) *topopb.LocalTopologyProto {
	l.NetworkNodes = nodes
	return l
}

type locals = []*topopb.LocalTopologyProto

// layout prints a topology as "task:partition/id,partition/id task:...".
func layout(g *topopb.GlobalTopologyProto) string {
	var tasks []string
	for _, p := range g.GetProcesses() {
		var devices []string
		for _, d := range p.Devices {
			devices = append(devices, fmt.Sprintf("%d/%d", d.PartitionIndex, d.GlobalDeviceId))
		}
		tasks = append(tasks, fmt.Sprintf("%d:%s", p.ProcessId, strings.Join(devices, ",")))
	}
	return strings.Join(tasks, " ")
}

func TestBuild(t *testing.T) {
	const fabric1, fabric2 = "00000000-0000-0000-0000-000000000001/0", "00000000-0000-0000-0000-000000000002/0"
	parity := locals{}
	for i := range serry.TaskIndex(11) {
		parity = append(parity, local(i, []string{"even", "odd"}[i%2], 0))
	}
	mixed := locals{
		withFabric(local(0, "a", 0, 1, 2, 3), fabric1),
		withFabric(local(1, "b", 0, 1, 2, 3), fabric1, fabric1, fabric1, ""),
	}
	tests := []struct {
		name   string
		clause string
		in     locals
		want   string
	}{
		{"nothing known", "TC-TOP-02", locals{local(0, "", 0, 0), local(0, "", 0, 1)}, "0:0/0,0/1 0:0/2,0/3"},
		{"one fabric", "TC-TOP-03", locals{
			withFabric(local(0, "a", 0, 1), fabric1), withFabric(local(1, "b", 0, 1), fabric1),
		}, "0:0/0,0/1 1:0/2,0/3"},
		{"two fabrics", "TC-TOP-04", locals{
			withFabric(local(0, "a", 0, 1), fabric1), withFabric(local(1, "b", 0, 1), fabric1),
			withFabric(local(2, "c", 0, 1), fabric2), withFabric(local(3, "d", 0, 1), fabric2),
		}, "0:0/0,0/1 1:0/2,0/3 2:1/4,1/5 3:1/6,1/7"},
		{"switches decide the order", "TC-TOP-05", locals{
			behind(local(0, "host_d", 0), "spine1", "pod2", "rack3"),
			behind(local(1, "host_b", 0), "spine1", "pod1", "rack1"),
			behind(local(2, "host_c", 0), "spine1", "pod1", "rack2"),
			behind(local(3, "host_a", 0), "spine1", "pod1", "rack1"),
		}, "1:0/0 3:1/1 2:2/2 0:3/3"},
		{"a shorter list of switches comes first", "C-TOP-28", locals{
			behind(local(0, "a", 0), "s", "p"), behind(local(1, "b", 0), "s"), behind(local(2, "c", 0)),
		}, "2:0/0 1:1/1 0:2/2"},
		{"explicit partitions", "TC-TOP-10", locals{
			inPartition(local(0, "foo", 0, 1), 1), inPartition(local(1, "foo", 0, 1), 0),
		}, "0:1/2,1/3 1:0/0,0/1"},
		{"explicit partitions are not sorted by switch", "C-TOP-26", locals{
			behind(inPartition(local(0, "", 0), 0), "z"), behind(inPartition(local(1, "", 0), 0), "a"),
		}, "0:0/0 1:0/1"},
		{"two nodes", "TC-TOP-15", locals{local(0, "foo", 0, 0, 707), local(1, "bar", 1)}, "0:0/0,0/1,0/2 1:1/3"},
		{"eleven nodes on two boots", "TC-TOP-16", parity,
			"0:0/0 1:1/6 2:0/1 3:1/7 4:0/2 5:1/8 6:0/3 7:1/9 8:0/4 9:1/10 10:0/5"},
		{"one device without fabric throws all back", "TC-TOP-24", mixed, "0:0/0,0/1,0/2,0/3 1:1/4,1/5,1/6,1/7"},
		{"zero uuid with a clique is a fabric", "TC-TOP-25", locals{
			withFabric(local(0, "a", 0), "00000000-0000-0000-0000-000000000000/1"),
			withFabric(local(1, "b", 0), "00000000-0000-0000-0000-000000000000/1"),
		}, "0:0/0 1:0/1"},
		{"zero uuid, zero clique is none", "C-TOP-27", locals{
			withFabric(local(0, "a", 0), noFabric), withFabric(local(1, "b", 0), noFabric),
		}, "0:0/0 1:1/1"},
		{"a task on two fabrics", "TC-TOP-26 C-TOP-29", locals{
			withFabric(local(0, "x", 0, 1), "A/1", "B/1"), withFabric(local(1, "y", 0, 1), "B/1"),
		}, "0:0/0,1/1 1:1/2,1/3"},
		{"a task without devices stays in the list", "C-TOP-36", locals{local(0, "a", 0), local(1, "b"), local(2, "c", 0)},
			"0:0/0 1: 2:1/1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			clause.Cite(t, test.clause, "TC-TOP-09")
			got, err := build(test.in, true)
			if err != nil || layout(got) != test.want {
				t.Errorf("build() = %s, %v; want %s", layout(got), err, test.want)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	clause.Cite(t, "TC-TOP-11", "C-TOP-24", "C-TOP-25")
	for name, in := range map[string]locals{
		"nothing":         nil,
		"some partitions": {inPartition(local(0, "", 0), 0), local(1, "", 0)},
	} {
		if g, err := build(in, true); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("build(%s) = %v, %v; want an invalid request", name, layout(g), err)
		}
	}
}

func TestBuildKeepsIDsOfCPU(t *testing.T) {
	clause.Cite(t, "C-TOP-12", "C-TOP-42")
	var in locals
	for i := range serry.TaskIndex(2) {
		l, err := CPULocal(i, "b0", nil, 2)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, l)
	}
	got, err := build(in, false)
	if want := "0:0/0,0/1 1:0/2048,0/2049"; err != nil || layout(got) != want {
		t.Errorf("build(assign=false) = %s, %v; want %s", layout(got), err, want)
	}
}

// Build is a function of its input: it changes nothing it was given, says the
// same each time, and gives every device one id.
func TestBuildIsPure(t *testing.T) {
	clause.Cite(t, "C-TOP-30", "C-TOP-32")
	rapid.Check(t, func(t *rapid.T) {
		in := drawLocals(t)
		var before [][]byte
		for _, l := range in {
			b, _ := Encode(l)
			before = append(before, b)
		}
		one, err := build(in, true)
		two, _ := build(in, true)
		if err != nil || !proto.Equal(one, two) {
			t.Fatalf("build() = %v, %v, then %v; want the same twice", one, err, two)
		}
		for i, l := range in {
			if after, _ := Encode(l); !bytes.Equal(before[i], after) {
				t.Fatalf("build changed local topology %d", i)
			}
		}
		var ids []int32
		last := map[int32]int32{} // partition -> highest id
		for _, p := range one.Processes {
			for _, d := range p.Devices {
				ids = append(ids, d.GlobalDeviceId)
				last[d.PartitionIndex] = max(last[d.PartitionIndex], d.GlobalDeviceId)
			}
		}
		slices.Sort(ids)
		for i, id := range ids {
			if int(id) != i {
				t.Fatalf("ids %v; want 0 to %d, each once", ids, len(ids)-1)
			}
		}
		for p := range last {
			if next, ok := last[p+1]; ok && next < last[p] {
				t.Fatalf("partition %d ends at %d, the next at %d; want ids by partition", p, last[p], next)
			}
		}
	})
}

func drawLocals(t *rapid.T) locals {
	n := rapid.IntRange(1, 6).Draw(t, "tasks")
	word := rapid.SampledFrom([]string{"", "a", "b", "c"})
	var in locals
	for i := range n {
		l := local(serry.TaskIndex(i), word.Draw(t, "boot"))
		l.NetworkNodes = rapid.SliceOfN(word, 0, 2).Draw(t, "nodes")
		for o := range rapid.IntRange(0, 3).Draw(t, "devices") {
			l.Devices = append(l.Devices, &topopb.DeviceProto{LocalDeviceOrdinal: int32(o), FabricUuid: word.Draw(t, "fabric")})
		}
		in = append(in, l)
	}
	return in
}

func TestValidate(t *testing.T) {
	clause.Cite(t, "P-TOP-7", "TC-TOP-09")
	twice := &topopb.GlobalTopologyProto{Processes: locals{local(0, ""), local(0, "")}}
	if err := validate(twice, true); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("validate(task 0 twice) = %v; want an invalid request", err)
	}
	doubled := &topopb.GlobalTopologyProto{Processes: locals{local(0, "", 0, 0)}}
	if err := validate(doubled, false); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("validate(ordinal 0 twice) = %v; want an invalid request", err)
	}
	if err := validate(doubled, true); err != nil {
		t.Errorf("validate(ordinal 0 twice, allowed) = %v; want no error", err)
	}
}

func TestWireExamples(t *testing.T) {
	clause.Cite(t, "TC-TOP-29", "C-TOP-4", "C-TOP-3")
	cpu1, _ := CPULocal(1, "b0", nil, 1)
	cpu0, _ := CPULocal(0, "b0", nil, 1)
	const hex0 = "120262301a1d42036370754a0f437075446576696365" + "2869643d3029" + "52056370753a30"
	const hex1 = "0801120262301a2620801042036370754a12437075446576696365" + "2869643d3230343829" + "52086370753a32303438"
	tests := []struct {
		name string
		hex  string
		want proto.Message
	}{
		{"cpu, task 1", hex1, cpu1},
		{"cpu, task 0", hex0, cpu0},
		{"both", "0a23" + hex0 + "0a2e" + hex1, &topopb.GlobalTopologyProto{Processes: locals{cpu0, cpu1}}},
		{"explicit partition 0", "1a002000", inPartition(local(0, "", 0), 0)},
		{"switches and no devices", "0803120168" + "2a067370696e6531" + "2a04706f6431", behind(local(3, "h"), "spine1", "pod1")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data, err := hex.DecodeString(test.hex)
			if err != nil {
				t.Fatal(err)
			}
			var got proto.Message
			if _, ok := test.want.(*topopb.GlobalTopologyProto); ok {
				got, err = parseGlobal(data)
			} else {
				got, err = parseLocal(data)
			}
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); err != nil || diff != "" {
				t.Fatalf("parse = %v; difference (-want +got)\n%s", err, diff)
			}
			if again, err := Encode(got); err != nil || !bytes.Equal(again, data) {
				t.Errorf("Encode() = %x, %v; want %x", again, err, data)
			}
		})
	}
}

func TestUnknownFieldsSurviveBuild(t *testing.T) {
	clause.Cite(t, "C-TOP-3")
	newer := []byte{0x08, 0x01, 0xfa, 0x07, 0x03, 'n', 'e', 'w'} // process_id 1, field 127
	l, err := parseLocal(newer)
	if err != nil {
		t.Fatal(err)
	}
	g, err := build(locals{l, local(0, "")}, true)
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := Encode(g); !bytes.Contains(out, newer[2:]) {
		t.Errorf("Encode(build()) = %x; want it to hold %x", out, newer[2:])
	}
}
