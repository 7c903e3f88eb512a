package pystack

import (
	"encoding/binary"
	"fmt"
)

// A layout says where CPython keeps what a stack is made of: offsets of fields, in bytes. Every field is a word of
// 8 bytes unless said otherwise. The words of amd64 and arm64 are alike, and no field lies behind one whose size
// differs between them.
type layout struct {
	runtimeInterpreters uint64 // the first interpreter

	interpreterNext    uint64
	interpreterThreads uint64 // the first thread state

	// The lock is a structure of its own, in the runtime (3.11) or where the interpreter points to.
	runtimeLock     uint64 // or 0
	interpreterLock uint64 // a pointer; used if runtimeLock is 0
	lockHolder      uint64 // the thread state that had it last
	lockLocked      uint64 // int32: 1 while it is held

	threadPrevious    uint64
	threadNext        uint64
	threadInterpreter uint64
	threadNative      uint64 // the number that the kernel has for it
	threadFrame       uint64 // the innermost frame, or
	threadCFrame      uint64 // if it is not 0: a structure that has it
	cframeFrame       uint64

	framePrevious uint64
	frameCode     uint64
	frameInstr    uint64 // the instruction that runs
	frameOwner    uint64 // a byte
	lastOwner     byte   // the highest owner there is
	shimOwner     byte   // the owner of frames that stand for a C function, and have no code; 0: there is none

	codeFile      uint64
	codeName      uint64 // qualified
	codeLines     uint64 // the line table
	codeFirstLine uint64 // int32
	codeStart     uint64 // the first instruction

	typeName    uint64
	bytesData   uint64
	stringSize  uint64 // characters
	stringState uint64 // uint32
	asciiData   uint64
	wideData    uint64 // of a string that is not ASCII
}

// Offsets that all versions have in common.
const (
	objectType = 8  // of any object
	objectSize = 16 // of one whose size varies: how many items it has
)

// layout311 and layout312 were printed by a C program with the headers of Python 3.11.7 and 3.12.1. Later versions
// describe themselves.
var (
	layout311 = layout{
		runtimeInterpreters: 40, interpreterNext: 0, interpreterThreads: 16,
		runtimeLock: 360, lockHolder: 8, lockLocked: 16,
		threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadNative: 160, threadCFrame: 56, cframeFrame: 8,
		framePrevious: 48, frameCode: 32, frameInstr: 56, frameOwner: 69, lastOwner: 2,
		codeFile: 112, codeName: 128, codeLines: 136, codeFirstLine: 72, codeStart: 184,
		typeName: 24, bytesData: 32, stringSize: 16, stringState: 32, asciiData: 48, wideData: 72,
	}
	layout312 = layout{
		runtimeInterpreters: 40, interpreterNext: 0, interpreterThreads: 72,
		interpreterLock: 384, lockHolder: 8, lockLocked: 16,
		threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadNative: 144, threadCFrame: 56, cframeFrame: 0,
		framePrevious: 8, frameCode: 0, frameInstr: 56, frameOwner: 70, lastOwner: 3, shimOwner: 3,
		codeFile: 112, codeName: 128, codeLines: 136, codeFirstLine: 68, codeStart: 192,
		typeName: 24, bytesData: 32, stringSize: 16, stringState: 32, asciiData: 40, wideData: 56,
	}
)

// A Version is that of a Python, as PY_VERSION_HEX has it: 0x030d00f0 is 3.13.0.
type Version uint32

// String implements [fmt.Stringer].
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v>>24, v>>16&0xff, v>>8&0xff) }

// minor is the version without its patch: 0x030d.
func (v Version) minor() uint32 { return uint32(v >> 16) }

// released says whether a version is a release or a candidate: their layout does not change any more.
func (v Version) released() bool { return v>>4&0xf >= 0xc }

// A VersionError says that the layout of a Python is not known.
type VersionError struct {
	Version Version // or 0 if it does not say
	Reason  string
}

// Error implements error.
func (e *VersionError) Error() string {
	if e.Version == 0 {
		return "python: " + e.Reason
	}
	return fmt.Sprintf("python %v: %s", e.Version, e.Reason)
}

const unknownLayout = "stacks can be read of 3.11, 3.12 and 3.13"

// The description that a runtime begins with since 3.13: a cookie, the version, whether there is no interpreter lock,
// then sizes and offsets, all words.
const (
	cookie           = "xdebugpy"
	descriptionWords = 71
	maxOffset        = 1 << 20 // in the runtime and in interpreters
	maxStructure     = 1 << 10 // in everything else: it is read as a whole
)

// layoutOf finds the layout of a runtime. The version is the one that the library names.
func layoutOf(m Memory, runtime uint64, v Version) (layout, error) {
	if !v.released() {
		return layout{}, &VersionError{v, "it is a pre-release"}
	}
	switch v.minor() {
	case 0x030b:
		return layout311, nil
	case 0x030c:
		return layout312, nil
	case 0x030d:
		return describedLayout(m, runtime, v)
	}
	return layout{}, &VersionError{v, unknownLayout}
}

// describedLayout reads the description that Python 3.13 has of itself, struct _Py_DebugOffsets. Words that no stack
// needs are left out.
func describedLayout(m Memory, runtime uint64, v Version) (layout, error) {
	var raw [descriptionWords * 8]byte
	if err := m.Read(runtime, raw[:]); err != nil {
		return layout{}, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[i*8:]) }
	switch {
	case string(raw[:8]) != cookie, word(1) != uint64(v):
		return layout{}, &VersionError{v, "its runtime does not describe itself"}
	case word(2) != 0:
		return layout{}, &VersionError{v, "it is a free-threaded build"}
	}
	lock := word(15) // interpreter_state.gil_runtime_state, to which the next two are relative
	l := layout{
		runtimeInterpreters: word(5),
		interpreterNext:     word(8), interpreterThreads: word(9),
		interpreterLock: word(14), lockLocked: word(17) - lock, lockHolder: word(18) - lock,
		threadPrevious: word(20), threadNext: word(21), threadInterpreter: word(22), threadFrame: word(23), threadNative: word(25),
		framePrevious: word(29), frameCode: word(30), frameInstr: word(31), frameOwner: word(33), lastOwner: 3, shimOwner: 3,
		codeFile: word(35), codeName: word(37), codeLines: word(38), codeFirstLine: word(39), codeStart: word(43),
		typeName: word(47), bytesData: word(66), stringState: word(68), stringSize: word(69),
		asciiData: word(70), wideData: word(70) + 16,
	}
	if word(45) != objectType || word(65) != objectSize || !l.sensible() {
		return layout{}, &VersionError{v, "its description of itself makes no sense"}
	}
	return l, nil
}

// sensible says whether offsets are small enough for what is read with them.
func (l *layout) sensible() bool {
	return max(l.runtimeInterpreters, l.interpreterNext, l.interpreterThreads, l.interpreterLock, l.codeStart) < maxOffset &&
		max(l.threadBytes(), l.frameBytes(), l.codeBytes(), l.lockBytes(), l.typeName, l.bytesData, l.wideData, l.stringSize, l.stringState) < maxStructure
}

// The sizes of what is read at once.
func (l *layout) threadBytes() uint64 {
	return max(l.threadPrevious, l.threadNext, l.threadInterpreter, l.threadNative, l.threadFrame, l.threadCFrame) + 8
}

func (l *layout) frameBytes() uint64 {
	return max(l.framePrevious, l.frameCode, l.frameInstr, l.frameOwner) + 8
}

func (l *layout) codeBytes() uint64 {
	return max(objectSize, l.codeFile, l.codeName, l.codeLines, l.codeFirstLine) + 8
}

func (l *layout) lockBytes() uint64 { return max(l.lockHolder, l.lockLocked) + 8 }
