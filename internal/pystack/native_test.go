package pystack

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// names makes a table of names, and says where each is.
func names(all ...string) (table []byte, at []uint32) {
	table = []byte{0}
	for _, name := range all {
		at = append(at, uint32(len(table)))
		table = append(append(table, name...), 0)
	}
	return table, at
}

func symbol(name uint32, kind byte, from, size uint64) []byte {
	b := binary.LittleEndian.AppendUint32(nil, name)
	b = append(b, kind, 0, 1, 0)
	b = binary.LittleEndian.AppendUint64(b, from)
	return binary.LittleEndian.AppendUint64(b, size)
}

func TestWaitTable(t *testing.T) {
	clause.Cite(t, "D-ST-6", "D-ST-7", "TD-ST-5")
	table, at := names("main", "_ZN4gloo9allreduceERKNS_16AllreduceOptionsE", "_ZN3jax7PyArray15BlockUntilReadyEv", "_ZN4gloo9allreduceData")
	known, err := knownNames(bytes.NewReader(table))
	if err != nil || len(known) != 2 || known[at[1]] != "Gloo all-reduce" || known[at[2]] != resultWord {
		t.Fatalf("knownNames() = %v, %v; want two", known, err)
	}
	const function, object = 2, 1
	var symbols []byte
	symbols = append(symbols, symbol(at[2], function, 0x3000, 0x100)...)
	symbols = append(symbols, symbol(at[0], function, 0x1000, 0x100)...)
	symbols = append(symbols, symbol(at[1], function, 0x2000, 0x100)...)
	symbols = append(symbols, symbol(at[1], object, 0x4000, 0x100)...)
	found, err := functionsOf(bytes.NewReader(symbols), known)
	if err != nil || len(found) != 2 {
		t.Fatalf("functionsOf() = %v, %v; want two", found, err)
	}
	l := &waitTable{functions: found}
	for address, want := range map[uint64]string{
		0x1010: "", 0x1fff: "", 0x2000: "", 0x2001: "Gloo all-reduce", 0x20ff: "Gloo all-reduce", 0x2100: "", 0x3050: resultWord, 0x4050: "", 1 << 63: "",
	} {
		if got := l.find(address); got != want {
			t.Errorf("find(%#x) = %q; want %q", address, got, want)
		}
	}
}

func TestMappings(t *testing.T) {
	clause.Cite(t, "D-ST-6")
	m, ok := parseMapping("7f15e5600000-7f15eb2c5000 r-xp 01a00000 fe:00 1234                       /venv/with space/jaxlib/libjax_common.so")
	if !ok || m.start != 0x7f15e5600000 || m.offset != 0x1a00000 || m.inode != "1234" || m.file != "/venv/with space/jaxlib/libjax_common.so" || !isRuntime(m.file) {
		t.Errorf("parseMapping() = %+v, %v", m, ok)
	}
	for _, line := range []string{"", "x", "7f15-7f16 r-xp 0 fe:00 0", "7f16-7f15 r-xp 0 fe:00 0 /a", "zz-7f15 r-xp 0 fe:00 0 /a"} {
		if m, ok := parseMapping(line); ok {
			t.Errorf("parseMapping(%q) = %+v; want none", line, m)
		}
	}
}

// A process without the libraries of jax waits in nothing.
func TestNoNativeWait(t *testing.T) {
	clause.Cite(t, "D-ST-6")
	var n Namer
	if collective, result := n.Wait(os.Getpid()); collective != "" || result {
		t.Errorf("Wait() = %q, %v; want nothing", collective, result)
	}
}

// A library of any content is read or refused.
func FuzzWaitTable(f *testing.F) {
	if own, err := os.ReadFile("/proc/self/exe"); err == nil {
		f.Add(own[:min(len(own), 64<<10)])
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := readWaitTable(bytes.NewReader(data)); err == nil {
			l.find(1)
			l.addressOf(1)
		}
	})
}
