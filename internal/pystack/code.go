package pystack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// errTorn says that what was read is not what a Python thread has. It changed meanwhile, or the process lies.
var errTorn = errors.New("not the memory of a Python thread")

func torn(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errTorn, fmt.Sprintf(format, args...))
}

// A reader takes the objects of a process apart, for one reading of all its threads.
type reader struct {
	memory *pages
	layout *layout
	types  map[uint64]string // names of types, by address
	codes  map[uint64]*code  // by address
	walk   int               // counts the stacks that were read
}

func newReader(m Memory, l *layout) *reader {
	return &reader{memory: &pages{memory: m}, layout: l, types: make(map[uint64]string), codes: make(map[uint64]*code)}
}

// bytes reads n bytes.
func (r *reader) bytes(address, n uint64) ([]byte, error) {
	b := make([]byte, n)
	return b, r.memory.Read(address, b)
}

// word reads 8 bytes.
func (r *reader) word(address uint64) (uint64, error) {
	var b [8]byte
	err := r.memory.Read(address, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

func wordAt(b []byte, offset uint64) uint64 { return binary.LittleEndian.Uint64(b[offset:]) }

// aligned says whether an address can be that of an object.
func aligned(address uint64) bool { return address != 0 && address%8 == 0 }

// object reads the first n bytes of an object, which must have a type of this name.
func (r *reader) object(address, n uint64, typeName string) ([]byte, error) {
	if !aligned(address) {
		return nil, torn("%s at %#x", typeName, address)
	}
	b, err := r.bytes(address, n)
	if err != nil {
		return nil, err
	}
	name, err := r.typeName(wordAt(b, objectType))
	if err == nil && name != typeName {
		err = torn("%q at %#x, not a %s", name, address, typeName)
	}
	return b, err
}

// typeName reads the name of a type. Those that stacks need are short.
func (r *reader) typeName(address uint64) (string, error) {
	if name, ok := r.types[address]; ok {
		return name, nil
	}
	if !aligned(address) {
		return "", torn("type at %#x", address)
	}
	at, err := r.word(address + r.layout.typeName)
	if err != nil {
		return "", err
	}
	b, err := r.bytes(at, 8)
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(string(b), "\x00")
	r.types[address] = name
	return name, nil
}

// A code is what a stack needs of a code object.
type code struct {
	object     []byte // as it was read
	walk       int    // the last walk in which it was there
	name, file string
	firstLine  int
	lines      []byte
	start      uint64 // address of the first instruction
	length     uint64 // instructions
}

// code reads a code object. One that an earlier walk has read may have been freed since, and another one may be at its
// address: then its words are others. Within a walk it cannot go, because the stack holds it.
func (r *reader) code(address uint64) (*code, error) {
	old := r.codes[address]
	if old != nil && old.walk == r.walk {
		return old, nil
	}
	object, err := r.object(address, r.layout.codeBytes(), "code")
	if err != nil {
		return nil, err
	}
	if old == nil || !bytes.Equal(old.object[objectType:], object[objectType:]) { // before the type is the count of references
		if old, err = r.newCode(address, object); err != nil {
			return nil, err
		}
		r.codes[address] = old
	}
	old.walk = r.walk
	return old, nil
}

// newCode reads what a code object points to.
func (r *reader) newCode(address uint64, object []byte) (*code, error) {
	l := r.layout
	c := &code{
		object: object, firstLine: int(int32(binary.LittleEndian.Uint32(object[l.codeFirstLine:]))),
		start: address + l.codeStart, length: wordAt(object, objectSize),
	}
	var err error
	if c.name, err = r.text(wordAt(object, l.codeName)); err != nil {
		return nil, err
	}
	if c.file, err = r.text(wordAt(object, l.codeFile)); err != nil {
		return nil, err
	}
	c.lines, err = r.byteString(wordAt(object, l.codeLines))
	return c, err
}

// instructionSize is that of a code unit.
const instructionSize = 2

// line finds the line of the instruction at an address. One before the first is right: the function is about to begin.
func (c *code) line(instruction uint64) (int, error) {
	at := int64(instruction - c.start)
	if at < -instructionSize || at%instructionSize != 0 || at >= 0 && uint64(at)/instructionSize >= c.length {
		return 0, torn("instruction %d of %d", at/instructionSize, c.length)
	}
	return lineOf(c.lines, c.firstLine, int(at/instructionSize))
}

// byteString reads a bytes object, which must be complete to be of use.
func (r *reader) byteString(address uint64) ([]byte, error) {
	b, err := r.object(address, objectSize+8, "bytes")
	if err != nil {
		return nil, err
	}
	n := wordAt(b, objectSize)
	if n > maxLineTable {
		return nil, torn("byte string of %d bytes", n)
	}
	return r.bytes(address+r.layout.bytesData, n)
}

// The state of a string: 2 bits whether it is interned, 3 bits how many bytes a character has, a bit whether its
// characters follow it, a bit whether all of them are ASCII.
const (
	kindShift   = 2
	kindMask    = 7
	compactFlag = 1 << 5
	asciiFlag   = 1 << 6
)

// text reads a string, the beginning of it if it is long.
func (r *reader) text(address uint64) (string, error) {
	l := r.layout
	b, err := r.object(address, l.wideData, "str")
	if err != nil {
		return "", err
	}
	state := binary.LittleEndian.Uint32(b[l.stringState:])
	data, width := l.wideData, uint64(state>>kindShift&kindMask)
	if state&asciiFlag != 0 {
		data = l.asciiData
	}
	if state&compactFlag == 0 || width != 1 && width != 2 && width != 4 || state&asciiFlag != 0 && width != 1 {
		return "", torn("string of state %#x", state)
	}
	n := min(wordAt(b, l.stringSize), maxString/width)
	raw, err := r.bytes(address+data, n*width)
	if err != nil {
		return "", err
	}
	return characters(raw, int(width)), nil
}

// characters turns those of 1, 2 or 4 bytes each into text.
func characters(raw []byte, width int) string {
	var s strings.Builder
	for ; len(raw) >= width; raw = raw[width:] {
		switch width {
		case 1:
			s.WriteRune(rune(raw[0]))
		case 2:
			s.WriteRune(whole(rune(binary.LittleEndian.Uint16(raw))))
		default:
			s.WriteRune(whole(rune(binary.LittleEndian.Uint32(raw))))
		}
	}
	return s.String()
}

// whole replaces halves of characters, by which Python stands for bytes of file names that are not text.
func whole(c rune) rune {
	if utf16.IsSurrogate(c) {
		return '\uFFFD'
	}
	return c
}
