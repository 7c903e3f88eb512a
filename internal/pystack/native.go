package pystack

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Namer says which collective a process waits in, by the native functions that its threads are in (D-ST-6). It does not
// unwind: every word of a stack that points into one of a few known functions counts. Words of calls that have returned
// can be among them, so what it says is a sign and no proof.
//
// It remembers where the functions are in a library, for all processes that use the library, until it has not been asked
// for a minute. A Namer may be used by several goroutines.
type Namer struct {
	mu     sync.Mutex
	tables map[fileID]*waitTable
	asked  time.Time
}

// A fileID tells one library of this host from another.
type fileID struct {
	device  string
	inode   string
	size    int64
	changed int64
}

const (
	namerForgets = time.Minute // after the last question
	maxLibraries = 256
	stackBytes   = 16 << 10 // of a thread that are looked at
	maxKept      = 1 << 14  // functions of a library
	maxSymbols   = 1 << 23  // of a library
	chunkBytes   = 1 << 20  // of a file that are read at once
	symbolBytes  = 24
)

// Wait says what a process waits in. collective is the operation, in words, or empty; result says that its main thread
// waits for a computation, of which a collective may be a part.
func (n *Namer) Wait(pid int) (collective string, result bool) {
	segments := n.segments(pid)
	if len(segments) == 0 {
		return "", false
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return "", false
	}
	main, others := "", ""
	for _, e := range threads[:min(len(threads), maxThreads)] {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		found, waits := scan(pid, tid, segments)
		if tid == pid {
			main, result = found, waits
		} else if others == "" {
			others = found
		}
	}
	switch {
	case main != "":
		return main, true
	case result:
		return others, true
	}
	return "", false
}

// A segment is a part of a library in the memory of a process.
type segment struct {
	start, end uint64 // in memory
	address    uint64 // of start, as the library counts
	of         *waitTable
}

// segments finds the known libraries in a process.
func (n *Namer) segments(pid int) []segment {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil
	}
	defer f.Close()
	var all []segment
	lines := bufio.NewScanner(io.LimitReader(f, maxMaps))
	lines.Buffer(make([]byte, mapsBuffer), mapsBuffer)
	for lines.Scan() {
		m, ok := parseMapping(lines.Text())
		if !ok || !strings.Contains(m.permissions, "x") || !isRuntime(m.file) {
			continue
		}
		l := n.table(pid, m)
		if l == nil {
			continue
		}
		if address, ok := l.addressOf(m.offset); ok {
			all = append(all, segment{m.start, m.end, address, l})
		}
	}
	return all
}

// isRuntime says whether a file is one of the libraries that compute for jax.
func isRuntime(file string) bool {
	return strings.Contains(file, "/jaxlib/") && strings.Contains(file, ".so")
}

// A mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end, offset         uint64
	permissions, device, inode string
	file                       string
}

func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 {
		return m, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	var errs [3]error
	m.start, errs[0] = strconv.ParseUint(from, 16, 64)
	m.end, errs[1] = strconv.ParseUint(to, 16, 64)
	m.offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.permissions, m.device, m.inode = fields[1], fields[3], fields[4]
	slash := strings.IndexByte(line, '/')
	if slash < 0 {
		return m, false
	}
	m.file = line[slash:]
	return m, errors.Join(errs[:]...) == nil && m.end > m.start
}

// table finds the known functions of a library, or nil. It is read through the root of the process, whose files may be those of
// a container.
func (n *Namer) table(pid int, m mapping) *waitTable {
	f, err := os.Open(fmt.Sprintf("/proc/%d/root%s", pid, m.file))
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.asked) > namerForgets {
		n.tables = nil
	}
	n.asked = time.Now()
	id := fileID{m.device, m.inode, info.Size(), info.ModTime().UnixNano()}
	if l, known := n.tables[id]; known {
		return l
	}
	if n.tables == nil || len(n.tables) >= maxLibraries {
		n.tables = make(map[fileID]*waitTable)
	}
	l, err := readWaitTable(f)
	if err != nil {
		l = nil // and it is not read again
	}
	n.tables[id] = l
	return l
}

// A waitTable is where the known functions of a library are, as the library counts addresses.
type waitTable struct {
	loads     []elf.ProgHeader // executable ones
	functions []function       // by address
}

type function struct {
	from, to uint64
	word     string // the collective, or resultWord
}

// resultWord marks functions that wait for a computation.
const resultWord = "result"

// addressOf is the address of what is at a place of the file.
func (l *waitTable) addressOf(offset uint64) (uint64, bool) {
	for _, p := range l.loads {
		if offset >= p.Off&^4095 && offset < p.Off+p.Filesz {
			return p.Vaddr - p.Off + offset, true
		}
	}
	return 0, false
}

// find is the word for the function that an address is in.
func (l *waitTable) find(address uint64) string {
	i, _ := slices.BinarySearchFunc(l.functions, address, func(f function, a uint64) int {
		if f.to <= a {
			return -1
		}
		return 1
	})
	// A return address is behind a call, so it is never the first of a function.
	if i < len(l.functions) && l.functions[i].from < address {
		return l.functions[i].word
	}
	return ""
}

// readWaitTable reads the names of all functions, in two passes that keep next to nothing: which names are known, and
// where the functions with these names are. A library of 330 MB takes less than a second.
func readWaitTable(r io.ReaderAt) (*waitTable, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	symbols := f.SectionByType(elf.SHT_SYMTAB)
	if symbols == nil {
		symbols = f.SectionByType(elf.SHT_DYNSYM)
	}
	if f.Class != elf.ELFCLASS64 || f.Data != elf.ELFDATA2LSB || symbols == nil || int(symbols.Link) >= len(f.Sections) {
		return nil, errors.New("a library without names")
	}
	l := &waitTable{}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			l.loads = append(l.loads, p.ProgHeader)
		}
	}
	names := f.Sections[symbols.Link]
	known, err := knownNames(io.NewSectionReader(r, int64(names.Offset), int64(names.FileSize)))
	if err != nil {
		return nil, err
	}
	l.functions, err = functionsOf(io.NewSectionReader(r, int64(symbols.Offset), int64(symbols.FileSize)), known)
	return l, err
}

// knownNames reads a table of names, each of which ends with a zero, and returns the words for those that are known, by
// their places.
func knownNames(table io.Reader) (map[uint32]string, error) {
	known := make(map[uint32]string)
	r := bufio.NewReaderSize(table, chunkBytes)
	for at := uint32(0); ; {
		name, err := r.ReadSlice(0)
		if word := wordOf(name); word != "" && len(known) < maxKept {
			known[at] = word
		}
		at += uint32(len(name))
		switch {
		case errors.Is(err, io.EOF):
			return known, nil
		case err != nil:
			return nil, err // a name that is longer than a chunk
		}
	}
}

// functionsOf reads a table of symbols.
func functionsOf(table io.Reader, known map[uint32]string) ([]function, error) {
	var found []function
	r := bufio.NewReaderSize(table, chunkBytes)
	var s [symbolBytes]byte
	for range maxSymbols {
		if _, err := io.ReadFull(r, s[:]); err != nil {
			break // the end
		}
		word, ok := known[binary.LittleEndian.Uint32(s[:])]
		from, size := binary.LittleEndian.Uint64(s[8:]), binary.LittleEndian.Uint64(s[16:])
		if ok && elf.ST_TYPE(s[4]) == elf.STT_FUNC && size > 0 && from+size > from && len(found) < maxKept {
			found = append(found, function{from, from + size, word})
		}
	}
	slices.SortFunc(found, func(a, b function) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return slices.CompactFunc(found, func(next, before function) bool { return next.from < before.to }), nil
}

// collectiveNames are functions, as compilers spell them, and the words for the operations.
var collectiveNames = []struct {
	name []byte
	word string
}{
	{[]byte("_ZN4gloo9allreduceE"), "Gloo all-reduce"},
	{[]byte("_ZN4gloo9allgatherE"), "Gloo all-gather"},
	{[]byte("_ZN4gloo10allgathervE"), "Gloo all-gather"},
	{[]byte("_ZN4gloo14reduce_scatterE"), "Gloo reduce-scatter"},
	{[]byte("_ZN4gloo8alltoallE"), "Gloo all-to-all"},
	{[]byte("_ZN4gloo9alltoallvE"), "Gloo all-to-all"},
	{[]byte("_ZN4gloo9broadcastE"), "Gloo broadcast"},
	{[]byte("_ZN4gloo7barrierE"), "Gloo barrier"},
}

var resultNames = [][]byte{[]byte("BlockUntilReady"), []byte("AwaitBuffersReady")}

// wordOf is the word for a function, or empty.
func wordOf(name []byte) string {
	for _, c := range collectiveNames {
		if bytes.HasPrefix(name, c.name) {
			return c.word
		}
	}
	if slices.ContainsFunc(resultNames, func(n []byte) bool { return bytes.Contains(name, n) }) {
		return resultWord
	}
	return ""
}

// scan looks at the words on the stack of a thread that sleeps.
func scan(pid, tid int, segments []segment) (collective string, result bool) {
	top, ok := stackPointer(pid, tid)
	if !ok {
		return "", false
	}
	var room [stackBytes]byte
	n := readSome(pid, top, room[:])
	for at := 0; at+8 <= n; at += 8 {
		word := binary.LittleEndian.Uint64(room[at:])
		for _, s := range segments {
			if word < s.start || word >= s.end {
				continue
			}
			switch found := s.of.find(word - s.start + s.address); found {
			case "":
			case resultWord:
				result = true
			default:
				collective = found
			}
		}
	}
	return collective, result
}

// readSome reads as much as there is of the memory at an address.
func readSome(pid int, address uint64, p []byte) int {
	to := []unix.Iovec{{Base: &p[0]}}
	to[0].SetLen(len(p))
	// The stack may end within the range: whole pages are read, one after the other.
	var from []unix.RemoteIovec
	for done := 0; done < len(p); {
		size := min(len(p)-done, 4096-int((address+uint64(done))%4096))
		from = append(from, unix.RemoteIovec{Base: uintptr(address + uint64(done)), Len: size})
		done += size
	}
	n, err := unix.ProcessVMReadv(pid, to, from, 0)
	if err != nil {
		return 0
	}
	return n
}

// stackPointer is where the stack of a thread that sleeps in a system call ends.
//
//	202 0x7f.. 0x80 0x0 0x0 0x0 0x0 STACK INSTRUCTION
func stackPointer(pid, tid int) (uint64, bool) {
	var room [512]byte
	text, err := readKernelFile(taskFile(pid, tid, "syscall"), room[:])
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 || fields[0] == "running" {
		return 0, false
	}
	address, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-2], "0x"), 16, 64)
	return address, err == nil
}
