package pystack

import (
	"encoding/binary"
	"errors"
)

// An image is made-up memory: one piece, with a Python in it.
type image struct {
	layout  layout
	version Version
	bytes   []byte
	types   map[string]uint64
}

// imageBase is where the image begins, so that small numbers are no addresses.
const imageBase = 1 << 40

var errUnmapped = errors.New("no memory there")

// Read implements Memory.
func (m *image) Read(address uint64, p []byte) error {
	if address < imageBase || address > imageBase+uint64(len(m.bytes)) || uint64(len(p)) > imageBase+uint64(len(m.bytes))-address {
		return errUnmapped
	}
	copy(p, m.bytes[address-imageBase:])
	return nil
}

// room adds n bytes and returns their address.
func (m *image) room(n uint64) uint64 {
	at := imageBase + uint64(len(m.bytes))
	m.bytes = append(m.bytes, make([]byte, (n+7)&^7)...)
	return at
}

func (m *image) put(address, value uint64) {
	binary.LittleEndian.PutUint64(m.bytes[address-imageBase:], value)
}

func (m *image) put32(address uint64, value uint32) {
	binary.LittleEndian.PutUint32(m.bytes[address-imageBase:], value)
}

func (m *image) putBytes(address uint64, b []byte) { copy(m.bytes[address-imageBase:], b) }

// typed makes an object of a type and returns its address.
func (m *image) typed(name string, size uint64) uint64 {
	if m.types[name] == 0 {
		text := m.room(16)
		m.putBytes(text, []byte(name))
		m.types[name] = m.room(m.layout.typeName + 8)
		m.put(m.types[name]+m.layout.typeName, text)
	}
	at := m.room(size)
	m.put(at+objectType, m.types[name])
	return at
}

func (m *image) str(s string) uint64 {
	at := m.typed("str", m.layout.wideData+uint64(len(s)))
	m.put(at+m.layout.stringSize, uint64(len(s)))
	m.put32(at+m.layout.stringState, 1<<kindShift|compactFlag|asciiFlag)
	m.putBytes(at+m.layout.asciiData, []byte(s))
	return at
}

func (m *image) byteString(b []byte) uint64 {
	at := m.typed("bytes", m.layout.bytesData+uint64(len(b)))
	m.put(at+objectSize, uint64(len(b)))
	m.putBytes(at+m.layout.bytesData, b)
	return at
}

// code makes a function of 8 instructions: the first 4 are on its first line, the others on the next.
func (m *image) code(name string, line int) uint64 {
	l := m.layout
	at := m.typed("code", max(l.codeStart+16, l.codeBytes()))
	m.put(at+objectSize, 8)
	m.put(at+l.codeName, m.str(name))
	m.put(at+l.codeFile, m.str("train.py"))
	m.put32(at+l.codeFirstLine, uint32(line))
	m.put(at+l.codeLines, m.byteString([]byte{0x80 | oneLine<<3 | 3, 0, 0, 0x80 | (oneLine+1)<<3 | 3, 0, 0}))
	return at
}

// frame makes one that is at an instruction, counted from 0, and was called by another, or 0.
func (m *image) frame(code, instruction, caller uint64) uint64 {
	l := m.layout
	at := m.room(l.frameBytes())
	m.put(at+l.frameCode, code)
	m.put(at+l.frameInstr, code+l.codeStart+instruction*instructionSize)
	m.put(at+l.framePrevious, caller)
	return at
}

// shim makes a frame that stands for a C function.
func (m *image) shim(caller uint64) uint64 {
	if m.layout.shimOwner == 0 {
		return caller
	}
	at := m.room(m.layout.frameBytes())
	m.bytes[at-imageBase+m.layout.frameOwner] = m.layout.shimOwner
	m.put(at+m.layout.framePrevious, caller)
	return at
}

// thread adds a thread to the list of an interpreter, as the newest one.
func (m *image) thread(interpreter uint64, native int, innermost uint64) uint64 {
	l := m.layout
	at := m.room(l.threadBytes())
	m.put(at+l.threadInterpreter, interpreter)
	m.put(at+l.threadNative, uint64(native))
	if l.threadCFrame != 0 {
		c := m.room(l.cframeFrame + 8)
		m.put(c+l.cframeFrame, innermost)
		m.put(at+l.threadCFrame, c)
	} else {
		m.put(at+l.threadFrame, innermost)
	}
	head := interpreter + l.interpreterThreads
	if next := wordAt(m.bytes, head-imageBase); next != 0 {
		m.put(at+l.threadNext, next)
		m.put(next+l.threadPrevious, at)
	}
	m.put(head, at)
	return at
}

// python makes a runtime with one interpreter and two threads. Thread 11 is in load, called by step, called by
// <module>, and holds the lock; thread 12 is in wait.
func newImage(v Version) (*image, *interpreter) {
	m := &image{version: v, types: make(map[string]uint64)}
	p := &interpreter{runtime: imageBase, version: v}
	switch v.minor() {
	case 0x030b:
		m.layout = layout311
	case 0x030c:
		m.layout = layout312
	default:
		m.layout = layout313
	}
	p.layout = m.layout
	m.room(4096) // the runtime
	interpreter := m.room(m.layout.interpreterThreads + m.layout.interpreterLock + 4096)
	m.put(p.runtime+m.layout.runtimeInterpreters, interpreter)
	module := m.frame(m.code("<module>", 1), 5, 0)
	step := m.frame(m.code("Trainer.step", 10), 2, m.shim(module))
	first := m.thread(interpreter, 11, m.frame(m.code("load", 20), 7, step))
	m.thread(interpreter, 12, m.shim(m.frame(m.code("wait", 30), 0, 0)))
	lock := p.runtime + m.layout.runtimeLock
	if m.layout.runtimeLock == 0 {
		lock = m.room(64)
		m.put(interpreter+m.layout.interpreterLock, lock)
	}
	m.put(lock+m.layout.lockHolder, first)
	m.put32(lock+m.layout.lockLocked, 1)
	if v.minor() == 0x030d {
		m.describe(p.runtime)
	}
	return m, p
}

// layout313 is what Python 3.13.0 says of itself on amd64.
var layout313 = layout{
	runtimeInterpreters: 632, interpreterNext: 7264, interpreterThreads: 7344,
	interpreterLock: 16, lockHolder: 8, lockLocked: 16,
	threadPrevious: 0, threadNext: 8, threadInterpreter: 16, threadNative: 160, threadFrame: 72,
	framePrevious: 8, frameCode: 0, frameInstr: 56, frameOwner: 70, lastOwner: 3, shimOwner: 3,
	codeFile: 112, codeName: 128, codeLines: 136, codeFirstLine: 68, codeStart: 200,
	typeName: 24, bytesData: 32, stringSize: 16, stringState: 32, asciiData: 40, wideData: 56,
}

// describe writes the layout to where the runtime begins, as struct _Py_DebugOffsets has it.
func (m *image) describe(runtime uint64) {
	l := m.layout
	m.putBytes(runtime, []byte(cookie))
	for i, value := range map[int]uint64{
		1: uint64(m.version), 5: l.runtimeInterpreters, 8: l.interpreterNext, 9: l.interpreterThreads,
		14: l.interpreterLock, 15: 100, 17: 100 + l.lockLocked, 18: 100 + l.lockHolder,
		20: l.threadPrevious, 21: l.threadNext, 22: l.threadInterpreter, 23: l.threadFrame, 25: l.threadNative,
		29: l.framePrevious, 30: l.frameCode, 31: l.frameInstr, 33: l.frameOwner,
		35: l.codeFile, 37: l.codeName, 38: l.codeLines, 39: l.codeFirstLine, 43: l.codeStart,
		45: objectType, 47: l.typeName, 65: objectSize, 66: l.bytesData, 68: l.stringState, 69: l.stringSize, 70: l.asciiData,
	} {
		m.put(runtime+uint64(i)*8, value)
	}
}
