package pystack

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// known are versions of which the layout is known.
var known = []Version{0x030b07f0, 0x030c01f0, 0x030d00f0}

// reader reads the memory of an image.
func (p *interpreter) reader(m Memory) *reader { return newReader(m, &p.layout) }

func TestWalkKnowsEveryLayout(t *testing.T) {
	clause.Cite(t, "D-ST-1", "D-ST-5")
	for _, v := range known {
		t.Run(v.String(), func(t *testing.T) {
			m, p := newImage(v)
			l, err := layoutOf(m, p.runtime, v)
			if err != nil || l != p.layout {
				t.Fatalf("layoutOf() = %+v, %v; want %+v", l, err, p.layout)
			}
			states, more, err := p.reader(newBudget(m)).threadStates(p.runtime)
			if err != nil || more || len(states) != 2 || states[0].native != 12 || states[1].native != 11 {
				t.Fatalf("threadStates() = %+v, %v, %v; want threads 12 and 11", states, more, err)
			}
			frames, deeper, err := p.reader(newBudget(m)).frames(states[1])
			want := []Frame{{"load", "train.py", 21}, {"Trainer.step", "train.py", 10}, {"<module>", "train.py", 2}}
			if diff := cmp.Diff(want, frames); err != nil || deeper || diff != "" {
				t.Errorf("frames() = %v, %v; -want +got:\n%s", deeper, err, diff)
			}
			if holder := p.reader(m).lockHolder(p.runtime, states[0].interpreter); holder != states[1].address {
				t.Errorf("lockHolder() = %#x; want that of thread 11, %#x", holder, states[1].address)
			}
		})
	}
}

func TestUnknownVersionsAreRefused(t *testing.T) {
	clause.Cite(t, "D-ST-1", "D-ST-5")
	m, p := newImage(0x030d00f0)
	freeThreaded, _ := newImage(0x030d00f0)
	freeThreaded.put(p.runtime+16, 1)
	mute, _ := newImage(0x030d00f0)
	mute.put(p.runtime, 0)
	huge, _ := newImage(0x030d00f0)
	huge.put(p.runtime+25*8, 1<<40)
	for _, c := range []struct {
		name   string
		memory Memory
		v      Version
		want   string
	}{
		{"3.10", m, 0x030a0df0, unknownLayout},
		{"3.14", m, 0x030e00f0, unknownLayout},
		{"4.0", m, 0x040000f0, unknownLayout},
		{"an alpha", m, 0x030d00a1, "pre-release"},
		{"another version than it says", m, 0x030d01f0, "does not describe itself"},
		{"no description", mute, 0x030d00f0, "does not describe itself"},
		{"no interpreter lock", freeThreaded, 0x030d00f0, "free-threaded"},
		{"offsets beyond all structures", huge, 0x030d00f0, "makes no sense"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := layoutOf(c.memory, p.runtime, c.v)
			if _, ok := errors.AsType[*VersionError](err); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("layoutOf(%v) = %v; want a VersionError that says %q", c.v, err, c.want)
			}
		})
	}
}

// TestTornMemoryIsRefused changes one thing at a time that a program changes while it runs.
func TestTornMemoryIsRefused(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	for _, v := range known {
		m, p := newImage(v)
		states, _, err := p.reader(m).threadStates(p.runtime)
		if err != nil {
			t.Fatal(err)
		}
		thread, l := states[1], p.layout
		r := newReader(m, &p.layout)
		top, _ := r.innermost(thread)
		code := wordAt(m.bytes, top+l.frameCode-imageBase)
		name := wordAt(m.bytes, code+l.codeName-imageBase)
		for what, address := range map[string]uint64{
			"the frame has another code":            top + l.frameCode,
			"the instruction is of another code":    top + l.frameInstr,
			"the type of the code is another":       code + objectType,
			"the code is shorter":                   code + objectSize,
			"the name is gone":                      code + l.codeName,
			"the name is not compact":               name + l.stringState,
			"the line table is no byte string":      code + l.codeLines,
			"the thread is of another interpreter":  thread.address + l.threadInterpreter,
			"the thread has another number":         thread.address + l.threadNative,
			"the thread is not in the list":         thread.address + l.threadPrevious,
			"the list of threads goes another way":  thread.interpreter + l.interpreterThreads,
			"the caller is not there":               top + l.framePrevious,
			"the owner of the frame does not exist": top + l.frameOwner&^7,
		} {
			t.Run(v.String()+" "+what, func(t *testing.T) {
				kept := wordAt(m.bytes, address-imageBase)
				defer m.put(address, kept)
				garbage := kept ^ 0xaaaa_aaaa_aaaa_aaaa
				if strings.HasPrefix(what, "the code is shorter") {
					garbage = 2
				}
				m.put(address, garbage)
				frames, _, err := p.reader(newBudget(m)).frames(thread)
				if _, _, listed := p.reader(newBudget(m)).threadStates(p.runtime); err == nil && listed == nil {
					t.Errorf("frames() = %v; want an error", frames)
				}
			})
		}
	}
}

func TestWalksAreBounded(t *testing.T) {
	clause.Cite(t, "D-ST-4")
	m, p := newImage(0x030c01f0)
	interpreter := wordAt(m.bytes, p.layout.runtimeInterpreters)
	at := uint64(0)
	code := m.code("deep", 1)
	for range 3 * maxFrames {
		at = m.frame(code, 1, at)
	}
	for i := range 2 * maxThreads {
		m.thread(interpreter, 100+i, at)
	}
	states, more, err := p.reader(newBudget(m)).threadStates(p.runtime)
	if len(states) != maxThreads || !more || err != nil {
		t.Fatalf("threadStates() = %d of them, %v, %v; want %d and more", len(states), more, err, maxThreads)
	}
	frames, deeper, err := p.reader(newBudget(m)).frames(states[0])
	if len(frames) != maxFrames || !deeper || err != nil {
		t.Errorf("frames() = %d of them, %v, %v; want %d and more", len(frames), deeper, err, maxFrames)
	}

	// A ring of frames that are left out has no end, but reading it has.
	shim := m.shim(0)
	m.put(shim+p.layout.framePrevious, shim)
	m.thread(interpreter, 99, shim)
	states, _, _ = p.reader(m).threadStates(p.runtime)
	if _, _, err := p.reader(newBudget(m)).frames(states[0]); !errors.Is(err, errTorn) {
		t.Errorf("frames() of a ring = %v; want %v", err, errTorn)
	}
}

// TestReusedCode reads a thread twice. In between its code object was freed, and there is another one at the address.
func TestReusedCode(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	m, p := newImage(0x030c01f0)
	r := p.reader(newBudget(m))
	states, _, err := r.threadStates(p.runtime)
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := r.frames(states[1])
	if err != nil || first[0].Function != "load" {
		t.Fatalf("frames() = %v, %v; want load", first, err)
	}
	top, _ := r.innermost(states[1])
	m.put(wordAt(m.bytes, top+p.layout.frameCode-imageBase)+p.layout.codeName, m.str("save"))
	second, _, err := r.frames(states[1])
	if err != nil || second[0].Function != "save" {
		t.Errorf("frames() = %v, %v; want save", second, err)
	}
}

func TestBudget(t *testing.T) {
	clause.Cite(t, "D-ST-4")
	m, _ := newImage(0x030c01f0)
	b := newBudget(m)
	var word [8]byte
	for range maxReads {
		if err := b.Read(imageBase, word[:]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := b.Read(imageBase, word[:]); !errors.Is(err, errBudget) {
			t.Errorf("Read() = %v after %d reads; want %v", err, maxReads, errBudget)
		}
	}
	if err := newBudget(m).Read(imageBase, make([]byte, maxBytes+1)); !errors.Is(err, errBudget) {
		t.Errorf("Read() = %v of too many bytes; want %v", err, errBudget)
	}
}

func TestText(t *testing.T) {
	clause.Cite(t, "D-ST-2", "D-ST-4")
	m, p := newImage(0x030d00f0)
	wide := func(width uint32, units ...uint32) uint64 {
		at := m.str(strings.Repeat("x", 8*len(units)))
		m.put(at+m.layout.stringSize, uint64(len(units)))
		m.put32(at+m.layout.stringState, width<<kindShift|compactFlag)
		for i, u := range units {
			unit := binary.LittleEndian.AppendUint32(nil, u)
			m.putBytes(at+m.layout.wideData+uint64(i)*uint64(width), unit[:width])
		}
		return at
	}
	for _, c := range []struct {
		name    string
		address uint64
		want    string
	}{
		{"ascii", m.str("load_batch"), "load_batch"},
		{"empty", m.str(""), ""},
		{"latin", wide(1, 0xe9, 0x74), "ét"},
		{"two bytes", wide(2, 0x6f22, 0x5b57), "漢字"},
		{"four bytes", wide(4, 0x1f600), "😀"},
		{"half a character", wide(2, 0xdc80), "\uFFFD"},
		{"no character", wide(4, 0xffffffff), "\uFFFD"},
		{"longer than the limit", m.str(strings.Repeat("y", 2*maxString)), strings.Repeat("y", maxString)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := newReader(m, &p.layout).text(c.address); got != c.want || err != nil {
				t.Errorf("text() = %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestLinesOfMalformedTables(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	for name, table := range map[string][]byte{
		"empty":               nil,
		"no mark of an entry": {0x00},
		"cut in columns":      {0x80 | oneLine<<3},
		"cut in a number":     {0x80 | longForm<<3, 0x40},
		"an endless number":   {0x80 | noColumns<<3, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f},
		"too short":           {0x80 | noPlace<<3},
	} {
		if line, err := lineOf(table, 1, 5); err == nil {
			t.Errorf("%s: lineOf() = %d; want an error", name, line)
		}
	}
}
