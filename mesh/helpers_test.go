package mesh

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// wantError fails unless err is of the kind and its text has all words.
func wantError(t testing.TB, call string, err, kind error, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%s = %v; want an error that is %q", call, err, kind)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s = %q; want it to contain %q", call, err, w)
		}
	}
}

// host makes devices with the given ids, perTask to a task by id.
func host(perTask int, ids ...int) []Device {
	out := make([]Device, len(ids))
	for i, id := range ids {
		out[i] = Device{ID: serry.DeviceID(id), Task: serry.TaskIndex(id / perTask), Slice: NoSlice}
	}
	return out
}

func count(n int) []int { return counting([]int{n}).cells }

// axes names sizes x, y, z, w or the letters given.
func axes(names string, sizes ...int) []Axis {
	out := make([]Axis, len(sizes))
	for i, n := range sizes {
		out[i] = Axis{Name: names[i : i+1], Size: n}
	}
	return out
}

// grid4x2 is the mesh of EX-SHD-1 with the devices spread over tasks.
func grid4x2(tasks int) *Mesh { return must(New(Hosts(8, tasks), axes("xy", 4, 2)...)) }

// spec reads P("x", "yz", "") where each letter is an axis and "" is None.
func spec(entries ...string) Spec {
	s := Spec{Dims: make([]Dim, len(entries))}
	for i, e := range entries {
		for _, r := range e {
			s.Dims[i] = append(s.Dims[i], string(r))
		}
	}
	return s
}

func ids(devices []Device) []int {
	out := make([]int, len(devices))
	for i, d := range devices {
		out[i] = int(d.ID)
	}
	return out
}

func meshIDs(m *Mesh) []int {
	out := make([]int, m.Size())
	for i, id := range m.Devices() {
		out[i] = int(id)
	}
	return out
}

// tpu lists the devices of mock TPU slices. A host owns a block of at most
// 2×2×1 chips; see section 8.3 of the specification for the numbering.
func tpu(kind string, x, y, z, cores, slicesN int) []Device {
	hw := &Hardware{Platform: "tpu", Kind: kind, Memories: []string{"device", "pinned_host", "unpinned_host"}}
	bx, by := min(x, 2), min(y, 2)
	var out []Device
	for slice := range slicesN {
		for zp := range z {
			for yp := range y / by {
				for xp := range x / bx {
					for yd := range by {
						for xd := range bx {
							for core := range cores {
								id := ((slice*z+zp)*(y/by)+yp)*by + yd
								id = ((id*(x/bx)+xp)*bx+xd)*cores + core
								task := ((slice*z+zp)*(y/by)+yp)*(x/bx) + xp
								out = append(out, Device{ID: serry.DeviceID(id), Task: serry.TaskIndex(task), Slice: slice,
									Coords: [3]int{xp*bx + xd, yp*by + yd, zp}, Core: core, Hardware: hw})
							}
						}
					}
				}
			}
		}
	}
	return out
}

func reversed[T any](list []T) []T {
	out := slices.Clone(list)
	slices.Reverse(out)
	return out
}
