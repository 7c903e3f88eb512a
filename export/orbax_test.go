package export

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/mesh"
)

// A message is built field by field.
type message []byte

func (m message) put(number protowire.Number, body []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), body)
}

func (m message) num(number protowire.Number, v int) message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), uint64(v))
}

func (m message) list(number protowire.Number, values ...int) message {
	var packed []byte
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	return m.put(number, packed)
}

// tiled is an OpSharding that cuts into dims over 8 devices, the last of dims being replicas.
func tiled(replicate bool, dims ...int) message {
	out := message(nil).num(1, 3).list(3, dims...).list(9, 8).list(10, 0)
	if replicate {
		out = out.num(6, 1)
	}
	return out
}

// tensor is a leaf type; a size of -1 is unknown.
func tensor(sharding message, shape ...int) message {
	var dims message
	for _, n := range shape {
		var dim message
		if n >= 0 {
			dim = dim.num(1, n)
		}
		dims = dims.put(1, dim)
	}
	out := message(nil).put(1, message(nil).put(1, dims)).num(2, 11) // f32
	if sharding != nil {
		out = out.put(3, sharding)
	}
	return message(nil).put(1, message(nil).put(1, out))
}

func tuple(elements ...message) message {
	var list message
	for _, e := range elements {
		list = list.put(1, e)
	}
	return message(nil).put(2, list)
}

func entry(key string, value message) message { return message(nil).put(1, []byte(key)).put(2, value) }

func dict(pairs ...message) message {
	var list message
	for _, p := range pairs {
		list = list.put(1, p)
	}
	return message(nil).put(6, list)
}

// orbaxModel is the manifest of a function over a mesh of 4 x 2 devices.
func orbaxModel() []byte {
	params := dict(entry("b", tensor(tiled(false, 4, 2), 4, 16)), entry("a", tensor(tiled(true, 4, 1, 2), 4, 4)))
	in := tuple(tuple(params, tensor(tiled(true, 4, 1, 2), 8, 4), tensor(tiled(true, 1, 4, 2), -1, 4)), dict())
	signature := message(nil).put(1, in).put(2, tensor(nil, 8, 16))
	hlo := message(nil).put(1, message(nil).put(3, []byte("module")).put(4, []byte("mlir_stablehlo"))).
		num(2, 9).put(3, []byte("tpu")).list(4, 0, 1, 2, 3)
	function := message(nil).put(1, signature).put(2, message(nil).put(1, hlo))
	devices := message(nil)
	for i := range 8 {
		devices = devices.put(1, message(nil).num(1, i).list(2, i/4, i/2%2, 0).num(3, i%2))
	}
	return message(nil).put(1, entry("f", message(nil).put(1, function))).put(3, devices)
}

func orbax(t testing.TB) map[string]*Manifest {
	t.Helper()
	all, err := ReadOrbax("manifest.pb", orbaxModel())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadOrbax(t *testing.T) {
	clause.Cite(t, "C-SHD-15", "TC-EXP-12", "C-EXP-5", "C-EXP-6")
	m := orbax(t)["f"]
	if m == nil || m.NumDevices != 8 || m.Program.Convention != 9 || string(m.Program.Bytes) != "module" || len(m.Devices) != 8 {
		t.Fatalf("ReadOrbax() = %+v; want f over 8 devices with its program", m)
	}
	if p := m.Devices[5]; p.ID != 5 || !slices.Equal(p.Coords, []int{1, 0, 0}) || p.Core != 1 {
		t.Errorf("place of device 5 is %+v; want 1,0,0 core 1", p)
	}
	want := []string{
		"0/a f32[4,4] {devices=[4,1,2]<=[8] last_tile_dim_replicate}",
		"0/b f32[4,16] {devices=[4,2]<=[8]}",
		"1 f32[8,4] {devices=[4,1,2]<=[8] last_tile_dim_replicate}",
		"2 f32[d0,4] {devices=[1,4,2]<=[8] last_tile_dim_replicate}",
	}
	var got []string
	for i, text := range m.ShardingTexts(m.Inputs) {
		v := m.Inputs[i]
		got = append(got, v.Name+" "+v.DType+ShapeText(v.Shape)+" "+text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("inputs\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if m.Outputs[0].Name != "out" || m.Outputs[0].Sharding != "" {
		t.Errorf("output %+v; want one without a sharding", m.Outputs[0])
	}
}

// Tiles have no names, so they fit a mesh with any.
func TestBindTiles(t *testing.T) {
	clause.Cite(t, "TC-EXP-12", "C-EXP-15b")
	b := bind(t, orbax(t)["f"], over(t, 0, axis("x", 4), axis("y", 2)), Options{})
	var got []string
	for _, v := range b.Inputs {
		got = append(got, v.Sharding.Spec().Canonical().String())
	}
	if want := []string{"P('x',)", "P('x', 'y')", "P('x',)", "P(None, 'x')"}; !slices.Equal(got, want) {
		t.Errorf("specs %q; want %q", got, want)
	}
	_, err := Bind(orbax(t)["f"], []Supplied{{Mesh: over(t, 0, axis("x", 8))}}, Options{})
	if at, ok := errors.AsType[*ValueError](err); !ok || at.Value != "0/a" {
		t.Errorf("Bind(one axis of 8) = %v; want an error about 0/a, which is cut in four", err)
	}
}

func TestReadOrbaxRefuses(t *testing.T) {
	good := orbaxModel()
	for name, data := range map[string][]byte{
		"nothing": nil, "cut short": good[:len(good)-3], "not a message": []byte("{\"format\": 1}"),
		"dtype": message(nil).put(1, entry("f", message(nil).put(1, message(nil).put(1, message(nil).put(1,
			message(nil).put(1, message(nil).put(1, message(nil).num(2, 99)))))))),
		// A tuple with one child that is also a dict: the child has no key.
		"two kinds": message(nil).put(1, entry("f", message(nil).put(1, message(nil).put(1, message(nil).put(1,
			message(tuple(tensor(nil, 4))).put(orbaxDict, nil)))))),
	} {
		if _, err := ReadOrbax("m.pb", data); err == nil || !strings.HasPrefix(err.Error(), "m.pb: ") {
			t.Errorf("%s: ReadOrbax() = %v; want an error that names the file", name, err)
		}
	}
	if _, err := readOpSharding(message(nil).num(1, int(mesh.TileUnknown))); !errors.Is(err, ErrUnsupported) {
		t.Errorf("readOpSharding(unknown) = %v; want ErrUnsupported", err)
	}
}
