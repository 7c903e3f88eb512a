package pystack

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"strings"
)

// errNoSymbol says that a library does not have a symbol.
var errNoSymbol = errors.New("no such symbol")

// Sizes of what ELF files of 64 bits are made of, and limits.
const (
	elfHeaderSize  = 64
	elfProgSize    = 56
	elfDynSize     = 16
	elfSymbolSize  = 24
	maxElfProgs    = 64
	maxElfDynamic  = 64 << 10 // bytes
	maxHashSteps   = 1000
	hashHeaderSize = 16
)

// A library is an ELF file that the dynamic linker has loaded. Its symbols are looked up in the memory of the process,
// as the dynamic linker does it: the file may be gone by now, or be out of reach in another container.
type library struct {
	memory  Memory
	bias    uint64 // what addresses in the file are off by
	symbols uint64 // address of the symbol table
	names   uint64 // address of the names of symbols
	hash    uint64 // address of the hash table of GNU
	linker  uint64 // address of what the dynamic linker says of all libraries; 0: it is not in this one
}

// openLibrary reads what a library says of itself, where its first page is mapped.
func openLibrary(m Memory, base uint64) (*library, error) {
	var head [elfHeaderSize]byte
	if err := m.Read(base, head[:]); err != nil {
		return nil, err
	}
	progs, size, count := binary.LittleEndian.Uint64(head[32:]), binary.LittleEndian.Uint16(head[54:]), binary.LittleEndian.Uint16(head[56:])
	if string(head[:4]) != elf.ELFMAG || elf.Class(head[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Data(head[elf.EI_DATA]) != elf.ELFDATA2LSB ||
		size != elfProgSize || count > maxElfProgs {
		return nil, errors.New("not a library of 64 bits")
	}
	table := make([]byte, int(count)*elfProgSize)
	if err := m.Read(base+progs, table); err != nil {
		return nil, err
	}
	l := &library{memory: m}
	return l, l.locate(base, table)
}

// locate finds the tables of symbols by the program headers.
func (l *library) locate(base uint64, table []byte) error {
	lowest, dynamic, size := ^uint64(0), uint64(0), uint64(0)
	for ; len(table) >= elfProgSize; table = table[elfProgSize:] {
		at := binary.LittleEndian.Uint64(table[16:])
		switch elf.ProgType(binary.LittleEndian.Uint32(table)) {
		case elf.PT_LOAD:
			lowest = min(lowest, at)
		case elf.PT_DYNAMIC:
			dynamic, size = at, binary.LittleEndian.Uint64(table[40:])
		}
	}
	if dynamic == 0 || size > maxElfDynamic {
		return errors.New("a library without dynamic symbols")
	}
	l.bias = base - lowest&^(pageSize-1)
	entries := make([]byte, size)
	if err := l.memory.Read(l.bias+dynamic, entries); err != nil {
		return err
	}
	for ; len(entries) >= elfDynSize; entries = entries[elfDynSize:] {
		at := binary.LittleEndian.Uint64(entries[8:])
		if at < base {
			at += l.bias // not every linker writes the true address over that in the file
		}
		switch elf.DynTag(binary.LittleEndian.Uint64(entries)) {
		case elf.DT_SYMTAB:
			l.symbols = at
		case elf.DT_STRTAB:
			l.names = at
		case elf.DT_GNU_HASH:
			l.hash = at
		case elf.DT_DEBUG:
			l.linker = binary.LittleEndian.Uint64(entries[8:])
		}
	}
	if l.symbols == 0 || l.names == 0 || l.hash == 0 {
		return errors.New("a library without a table of its symbols")
	}
	return nil
}

// find returns the address of a symbol.
func (l *library) find(name string) (uint64, error) {
	hash := uint32(5381)
	for i := range len(name) {
		hash = hash*33 + uint32(name[i])
	}
	var head [hashHeaderSize]byte
	if err := l.memory.Read(l.hash, head[:]); err != nil {
		return 0, err
	}
	buckets, first, bloom := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
	if buckets == 0 {
		return 0, errNoSymbol
	}
	bucketsAt := l.hash + hashHeaderSize + 8*uint64(bloom)
	chain := bucketsAt + 4*uint64(buckets)
	index, err := l.number(bucketsAt + 4*uint64(hash%buckets))
	if err != nil || index < first {
		return 0, cmp.Or(err, errNoSymbol)
	}
	for range maxHashSteps {
		entry, err := l.number(chain + 4*uint64(index-first))
		if err != nil {
			return 0, err
		}
		if entry|1 == hash|1 {
			if at, err := l.symbol(index, name); err != errNoSymbol {
				return at, err
			}
		}
		if entry&1 != 0 { // the last of its bucket
			break
		}
		index++
	}
	return 0, errNoSymbol
}

func (l *library) number(address uint64) (uint32, error) {
	var b [4]byte
	err := l.memory.Read(address, b[:])
	return binary.LittleEndian.Uint32(b[:]), err
}

// symbol returns the address of a symbol if it has this name and is defined here.
func (l *library) symbol(index uint32, name string) (uint64, error) {
	var b [elfSymbolSize]byte
	if err := l.memory.Read(l.symbols+elfSymbolSize*uint64(index), b[:]); err != nil {
		return 0, err
	}
	spelled := make([]byte, len(name)+1)
	if err := l.memory.Read(l.names+uint64(binary.LittleEndian.Uint32(b[:])), spelled); err != nil {
		return 0, err
	}
	value := binary.LittleEndian.Uint64(b[8:])
	if strings.TrimSuffix(string(spelled), "\x00") != name || binary.LittleEndian.Uint16(b[6:]) == uint16(elf.SHN_UNDEF) || value == 0 {
		return 0, errNoSymbol
	}
	return l.bias + value, nil
}

// findLinked looks for an interpreter in an executable, and in its libraries, as the dynamic linker lists them. The list of mappings has
// all of them, too, but the kernel takes long to write it.
func findLinked(m Memory, executable uint64) (interpreter, error) {
	p, err := findPython(m, executable)
	if err != errNoSymbol {
		return p, err
	}
	l, err := openLibrary(m, executable)
	if err != nil {
		return interpreter{}, err
	}
	at, err := l.word(l.linker + debugList)
	for n := 0; at != 0 && err == nil && n < maxLinked; n++ {
		var entry [linkedSize]byte
		if err = m.Read(at, entry[:]); err != nil {
			break
		}
		if isPython(l.path(wordAt(entry[:], linkedName))) {
			return findPython(m, wordAt(entry[:], linkedBase))
		}
		at = wordAt(entry[:], linkedNext)
	}
	return interpreter{}, errNoSymbol
}

// What the dynamic linker says: struct r_debug has the head of its list, struct link_map is an entry. Libraries that an executable needs
// itself are at the beginning.
const (
	debugList  = 8
	linkedBase = 0
	linkedName = 8
	linkedNext = 24
	linkedSize = 32
	maxLinked  = 64
)

// path reads the path of a library up to the end of its page, which is enough to know a Python from others nearly always; the list of
// mappings knows for sure.
func (l *library) path(at uint64) string {
	b := make([]byte, min(maxPath, pageSize-at%pageSize))
	if l.memory.Read(at, b) != nil {
		return ""
	}
	name, _, _ := strings.Cut(string(b), "\x00")
	return name
}

func (l *library) word(address uint64) (uint64, error) {
	var b [8]byte
	err := l.memory.Read(address, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// findPython looks for an interpreter in a library.
func findPython(m Memory, base uint64) (interpreter, error) {
	l, err := openLibrary(m, base)
	if err != nil {
		return interpreter{}, err
	}
	p := interpreter{}
	if p.runtime, err = l.find("_PyRuntime"); err != nil {
		return p, err
	}
	if p.version, err = l.version(p.runtime); err != nil {
		return p, err
	}
	p.layout, err = layoutOf(m, p.runtime, p.version)
	return p, err
}

// version is that of a Python. From 3.13 on the runtime has it; before, a symbol.
func (l *library) version(runtime uint64) (Version, error) {
	var begin [16]byte
	if err := l.memory.Read(runtime, begin[:]); err != nil {
		return 0, err
	}
	if string(begin[:8]) == cookie {
		return Version(wordAt(begin[:], 8)), nil
	}
	at, err := l.find("Py_Version")
	if err == errNoSymbol {
		return 0, &VersionError{Reason: "it is older than 3.11; " + unknownLayout}
	} else if err != nil {
		return 0, err
	}
	v, err := l.number(at)
	return Version(v), err
}
