package topo

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/wire/topopb"
)

// attributed returns one local topology whose attributes were written in the
// given order, as an encoder that ranges over a hash map would.
func attributed(names ...string) []byte {
	var device []byte
	for _, name := range names {
		entry := protowire.AppendTag(nil, 1, protowire.BytesType)
		entry = protowire.AppendString(entry, name)
		value := protowire.AppendTag(nil, 3, protowire.VarintType)
		value = protowire.AppendVarint(value, uint64(len(name)))
		entry = protowire.AppendTag(entry, 2, protowire.BytesType)
		entry = protowire.AppendBytes(entry, value)
		device = protowire.AppendTag(device, 11, protowire.BytesType)
		device = protowire.AppendBytes(device, entry)
	}
	local := protowire.AppendTag(nil, 3, protowire.BytesType)
	return protowire.AppendBytes(local, device)
}

func global(locals ...[]byte) []byte {
	var out []byte
	for _, l := range locals {
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, l)
	}
	return out
}

func TestRepublished(t *testing.T) {
	clause.Cite(t, "P-TOP-1", "C-KV-15", "NEW-55", "TC-TOP-28")
	ab, ba, other := attributed("a", "bb"), attributed("bb", "a"), attributed("a", "cc")
	if bytes.Equal(ab, ba) {
		t.Fatal("the two encodings must differ for this test to mean anything")
	}
	tests := []struct {
		name           string
		key            string
		stored, offers []byte
		want           bool
	}{
		{"same bytes, local", "cpu:local_topology/cpu/0", ab, ab, true},
		{"other map order, local", "cpu:local_topology/cpu/0", ab, ba, true},
		{"other map order, global", "cuda:global_topology/cuda", global(ab, ba), global(ba, ab), true},
		{"other map order, no prefix", "local_topology/cpu/0", ab, ba, true},
		{"other map order, global without prefix", "global_topology/cpu", global(ab), global(ba), true},
		{"other attribute", "cpu:local_topology/cpu/0", ab, other, false},
		{"other order of tasks", "global_topology/cpu", global(ab, other), global(other, ab), false},
		{"field of a later version, global", "global_topology/cpu", append(global(ab), 0x78, 1), append(global(ba), 0x78, 1), true},
		{"field of a later version differs, global", "global_topology/cpu", append(global(ab), 0x78, 1), append(global(ba), 0x78, 2), false},
		{"one task more", "global_topology/cpu", global(ab), global(ab, ab), false},
		{"unknown field differs", "cpu:local_topology/cpu/0", ab, append(bytes.Clone(ab), 0x78, 1), false},
		{"explicit partition 0 is not none", "cpu:local_topology/cpu/0", nil, []byte{0x20, 0}, false},
		{"garbage twice", "cpu:local_topology/cpu/0", []byte{0xff}, []byte{0xff}, true},
		{"garbage against a message", "cpu:local_topology/cpu/0", []byte{0xff}, ab, false},
		{"a message against garbage", "global_topology/cpu", global(ab), []byte("[0, 1]"), false},
		{"orbax table, same", "orbax/distributed_to_device_ids/3", []byte("[0, 1]"), []byte("[0, 1]"), true},
		{"orbax table, other blanks", "orbax/distributed_to_device_ids/3", []byte("[0, 1]"), []byte("[0,1]"), false},
		{"orbax older table", "jax/process_id/12", []byte("3"), []byte("3"), true},
		{"election key", "elect/leader", []byte("me"), []byte("me"), false},
		{"counter of a restarted task", "PREEMPTION_CURRENT_COUNTER/1", []byte("8"), []byte("8"), false},
		{"deeper than the pattern", "jax/process_id/1/2", []byte("3"), []byte("3"), false},
		{"global key with an element too many", "global_topology/cpu/0", nil, nil, false},
		{"family not first", "x/local_topology/cpu/0", ab, ab, false},
		{"empty key", "", nil, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := Republished(test.key, test.stored, test.offers); got != test.want {
				t.Errorf("Republished(%q, %x, %x) = %v; want %v", test.key, test.stored, test.offers, got, test.want)
			}
		})
	}
}

// The keys that may be written twice are those of six patterns, in which one star
// stands for any text without a slash and two stars for any text.
func TestRepublishableAsPatterns(t *testing.T) {
	clause.Cite(t, "P-TOP-1", "TC-TOP-28")
	expr := regexp.MustCompile(`(?s)^([^/]*:local_topology/.*|[^/]*:global_topology/[^/]*|local_topology/.*|global_topology/[^/]*|` +
		`orbax/distributed_to_device_ids/[^/]*|jax/process_id/[^/]*)$`)
	part := rapid.SampledFrom([]string{"local_topology", "global_topology", "orbax", "distributed_to_device_ids", "jax", "process_id",
		":", "/", "/", "/", "a", "0"})
	rapid.Check(t, func(t *rapid.T) {
		key := strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "parts"), "")
		if got, want := republishable(key), expr.MatchString(key); got != want {
			t.Fatalf("republishable(%q) = %v; want %v", key, got, want)
		}
	})
}

// A value that would grow a hundredfold in memory is refused before it does.
func TestParseRefusesTooManyEntries(t *testing.T) {
	clause.Cite(t, "C-TOP-22", "P-TOP-1")
	value := bytes.Repeat([]byte{0x1a, 0x00}, maxEntries+1) // empty devices
	if _, err := parseLocal(value[:2*(maxLocalEntries+1)]); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("parseLocal(%d devices) = %v; want a refusal by number", maxLocalEntries+1, err)
	}
	if _, err := parseGlobal(global(value)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("parseGlobal(%d devices) = %v; want a refusal by number", maxEntries+1, err)
	}
	if m, err := parseLocal(value[:2*1000]); err != nil || len(m.Devices) != 1000 {
		t.Errorf("parseLocal(1000 devices) = %d devices, %v; want 1000", len(m.GetDevices()), err)
	}
}

func FuzzRepublished(f *testing.F) {
	f.Add("cpu:local_topology/cpu/0", attributed("a", "bb"), attributed("bb", "a"))
	f.Add("global_topology/cpu", global(attributed("a")), global(nil, nil))
	f.Add("jax/process_id/0", []byte("1"), []byte("1"))
	f.Add("::::local_topology/**", []byte{0x0b, 0x0b, 0x0c}, []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, key string, stored, offered []byte) {
		same := Republished(key, stored, offered)
		if same != Republished(key, offered, stored) {
			t.Errorf("Republished(%q) depends on the order of the two values", key)
		}
		if same && !Republished(key, stored, stored) {
			t.Errorf("Republished(%q): a value is not the same as itself", key)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(attributed("a", "bb"))
	f.Add(global(attributed("a")))
	f.Add([]byte{0x1a, 0x00, 0x20, 0x00})
	f.Fuzz(func(t *testing.T, value []byte) {
		if m, err := parseLocal(value); err == nil {
			first, err := Encode(m)
			if err != nil {
				t.Fatalf("Encode of a parsed message = %v", err)
			}
			again, err := parseLocal(first)
			if err != nil {
				t.Fatalf("parseLocal(Encode(m)) = %v", err)
			}
			if second, _ := Encode(again); !bytes.Equal(first, second) {
				t.Errorf("Encode is not stable: %x, then %x", first, second)
			}
		}
		_, _ = parseGlobal(value)
	})
}

func ExampleRepublished() {
	key := "cuda:local_topology/cuda/3"
	first, _ := Encode(&topopb.LocalTopologyProto{ProcessId: 3, BootId: "a"})
	other, _ := Encode(&topopb.LocalTopologyProto{ProcessId: 3, BootId: "b"})
	fmt.Println(Republished(key, first, first), Republished(key, first, other))
	fmt.Println(Republished("my/lock", first, first))
	// Output:
	// true false
	// false
}
