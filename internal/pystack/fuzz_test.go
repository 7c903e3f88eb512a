package pystack

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// FuzzMemory changes made-up memory at will: 2 bytes where, 8 bytes what.
func FuzzMemory(f *testing.F) {
	clause.Cite(f, "D-ST-4", "TD-ST-3")
	for i := range known {
		f.Add(uint8(i), []byte(nil))
		f.Add(uint8(i), []byte{0, 40, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, which uint8, changes []byte) {
		v := known[int(which)%len(known)]
		m, p := newImage(v)
		for ; len(changes) >= 10; changes = changes[10:] {
			at := uint64(binary.LittleEndian.Uint16(changes)) % uint64(len(m.bytes)-8)
			value := binary.LittleEndian.Uint64(changes[2:])
			if value < uint64(len(m.bytes)) {
				value += imageBase // something that is there
			}
			m.put(imageBase+at, value)
		}
		var err error
		if p.layout, err = layoutOf(m, p.runtime, v); err != nil {
			return
		}
		b := newBudget(&counted{Memory: m, t: t})
		r := newReader(b, &p.layout)
		states, _, _ := r.threadStates(p.runtime)
		if len(states) > maxThreads {
			t.Fatalf("%d threads", len(states))
		}
		for _, s := range states {
			frames, _, err := r.frames(s)
			if len(frames) > maxFrames || err != nil && frames != nil {
				t.Fatalf("%d frames, %v", len(frames), err)
			}
			r.lockHolder(p.runtime, s.interpreter)
		}
	})
}

// counted is memory that fails a test which reads too much of it.
type counted struct {
	Memory
	t           *testing.T
	reads, size int
}

func (c *counted) Read(address uint64, p []byte) error {
	c.reads++
	if c.size += len(p); c.reads > maxReads || c.size > maxBytes {
		c.t.Fatalf("%d reads, %d bytes", c.reads, c.size)
	}
	return c.Memory.Read(address, p)
}

func FuzzLines(f *testing.F) {
	clause.Cite(f, "D-ST-4", "TD-ST-3")
	f.Add([]byte{0x80 | oneLine<<3 | 3, 0, 0, 0x80 | longForm<<3, 0x41, 2, 3, 4, 5}, 7, 5)
	f.Fuzz(func(t *testing.T, table []byte, first, instruction int) {
		if line, err := lineOf(table, first, instruction); line != 0 && err != nil {
			t.Errorf("lineOf() = %d, %v", line, err)
		}
	})
}

// FuzzLibrary reads symbols of what may be a library.
func FuzzLibrary(f *testing.F) {
	clause.Cite(f, "D-ST-4", "TD-ST-3")
	f.Add(libraryImage())
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &counted{Memory: &image{bytes: raw}, t: t}
		_, _ = findPython(newBudget(m), imageBase)
	})
}

// libraryImage is a library with the two symbols that a Python is found by, and no Python.
func libraryImage() []byte {
	const progs, dynamic, symbols, names, hash, version = 64, 256, 512, 640, 704, 840
	b := make([]byte, 1024)
	put := func(at int, value uint64) { binary.LittleEndian.PutUint64(b[at:], value) }
	put32 := func(at int, value uint32) { binary.LittleEndian.PutUint32(b[at:], value) }
	copy(b, "\x7fELF\x02\x01\x01")
	put(32, progs)
	binary.LittleEndian.PutUint16(b[54:], elfProgSize)
	binary.LittleEndian.PutUint16(b[56:], 2)
	put32(progs, 1) // PT_LOAD, at 0
	put32(progs+elfProgSize, 2)
	put(progs+elfProgSize+16, dynamic)
	put(progs+elfProgSize+40, 4*elfDynSize)
	for i, e := range [][2]uint64{{6, symbols}, {5, names}, {0x6ffffef5, hash}} {
		put(dynamic+i*elfDynSize, e[0])
		put(dynamic+i*elfDynSize+8, e[1])
	}
	copy(b[names+1:], "_PyRuntime\x00Py_Version\x00")
	put32(hash, 1)    // one bucket
	put32(hash+4, 1)  // the first symbol in it
	put32(hash+8, 0)  // no filter
	put32(hash+16, 1) // the bucket begins with symbol 1
	for i, s := range []struct {
		name  uint32
		text  string
		value uint64
	}{{1, "_PyRuntime", 768}, {12, "Py_Version", version}} {
		at := symbols + (i+1)*elfSymbolSize
		put32(at, s.name)
		binary.LittleEndian.PutUint16(b[at+6:], 1)
		put(at+8, s.value)
		h := uint32(5381)
		for j := range len(s.text) {
			h = h*33 + uint32(s.text[j])
		}
		put32(hash+20+4*i, h&^1|uint32(i)) // the second one ends the bucket
	}
	put32(version, 0x030b07f0)
	return b
}

func TestLibrary(t *testing.T) {
	clause.Cite(t, "D-ST-1")
	p, err := findPython(&image{bytes: libraryImage()}, imageBase)
	if err != nil || p.runtime != imageBase+768 || p.version.String() != "3.11.7" {
		t.Errorf("findPython() = %+v, %v; want a runtime of 3.11.7 at %#x", p, err, imageBase+768)
	}
}

// A kernel counts how often a thread has run in one of two files.
func TestRuns(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	for text, want := range map[string]uint64{
		"15204252 4061073 30\n": 30,
		"Name:\tpython3\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t2\n": 17,
		"0 0 0\n": 0, "": 0, "1 2 x": 0, "voluntary_ctxt_switches:\tmany\n": 0,
	} {
		if runs, err := parseRuns([]byte(text)); runs != want || (err != nil) != (want == 0) {
			t.Errorf("parseRuns(%q) = %d, %v; want %d", text, runs, err, want)
		}
	}
	const short = "17 (a (b) c) S 1 17 17 0 -1"
	if got, err := parseTask([]byte(short)); err != nil || got != (task{"a (b) c", Asleep, -1}) {
		t.Errorf("parseTask(%q) = %+v, %v", short, got, err)
	}
	long := "17 (a (b) c) R 1" + strings.Repeat(" 0", 34) + " 3 0 0\n"
	if got, err := parseTask([]byte(long)); err != nil || got != (task{"a (b) c", Running, 3}) {
		t.Errorf("parseTask(%q) = %+v, %v", long, got, err)
	}
}

func FuzzTask(f *testing.F) {
	clause.Cite(f, "D-ST-4", "TD-ST-3")
	f.Add([]byte("17 (a (b) c) S 1 17 17 0 -1"))
	f.Add([]byte("15204252 4061073 30\n"))
	f.Add([]byte("Name:\tpython3\nState:\tS (sleeping)\nvoluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if task, err := parseTask(text); err == nil && task.state == "" {
			t.Errorf("parseTask() = %+v", task)
		}
		if runs, err := parseRuns(text); err == nil && runs == 0 {
			t.Error("parseRuns() = 0; every thread has run")
		}
		firstPage(text)
	})
}
