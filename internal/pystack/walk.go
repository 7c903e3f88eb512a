package pystack

import (
	"cmp"
	"encoding/binary"
	"errors"
)

// A Frame is a call of a Python function that has not returned.
type Frame struct {
	Function string `json:"function"` // qualified: Trainer.step
	File     string `json:"file"`     // as Python has it
	Line     int    `json:"line"`     // that runs now; 0: it belongs to no line
}

// An interpreter is a Python inside a process: where it is, and how its memory is laid out.
type interpreter struct {
	runtime uint64
	version Version
	layout  layout
}

// A threadState is what Python has of one thread.
type threadState struct {
	address     uint64
	interpreter uint64
	native      int    // number of the thread
	near        uint64 // what pointed to its innermost frame: it is there, or close by
}

// threadStates lists those of all interpreters, the newest first, and says whether there are more than the limit.
func (r *reader) threadStates(runtime uint64) (states []threadState, more bool, err error) {
	at, err := r.word(runtime + r.layout.runtimeInterpreters)
	if err != nil {
		return nil, false, err
	}
	for n := 0; at != 0; n++ {
		if n == maxInterpreters {
			return states, true, nil
		}
		if states, more, err = r.appendThreads(states, at); err != nil || more {
			return states, more, err
		}
		if at, err = r.word(at + r.layout.interpreterNext); err != nil {
			return nil, false, err
		}
	}
	return states, false, nil
}

// appendThreads adds the threads of an interpreter. Each must point back to the one before it.
func (r *reader) appendThreads(states []threadState, interpreter uint64) ([]threadState, bool, error) {
	if !aligned(interpreter) {
		return nil, false, torn("interpreter at %#x", interpreter)
	}
	at, err := r.word(interpreter + r.layout.interpreterThreads)
	for previous := uint64(0); at != 0 && err == nil; {
		if len(states) == maxThreads {
			return states, true, nil
		}
		var b []byte
		if b, err = r.threadState(at, interpreter); err != nil {
			break
		}
		if wordAt(b, r.layout.threadPrevious) != previous {
			return nil, false, torn("thread state %#x is not in the list", at)
		}
		near := wordAt(b, cmp.Or(r.layout.threadCFrame, r.layout.threadFrame))
		states = append(states, threadState{at, interpreter, int(wordAt(b, r.layout.threadNative)), near})
		previous, at = at, wordAt(b, r.layout.threadNext)
	}
	return states, false, err
}

// threadState reads the state at an address, which must be of an interpreter.
func (r *reader) threadState(address, interpreter uint64) ([]byte, error) {
	if !aligned(address) {
		return nil, torn("thread state at %#x", address)
	}
	b, err := r.bytes(address, r.layout.threadBytes())
	switch {
	case err != nil:
		return nil, err
	case wordAt(b, r.layout.threadInterpreter) != interpreter:
		return nil, torn("thread state %#x is of another interpreter", address)
	case wordAt(b, r.layout.threadNative) > 1<<22: // the highest number that Linux gives
		return nil, torn("thread number %d", wordAt(b, r.layout.threadNative))
	}
	return b, nil
}

// errLeft says that a thread is not one of Python's any more.
var errLeft = errors.New("the thread has left Python")

// callersBytes is how far below the frame of a function the frames of its callers are read ahead.
const callersBytes = 2 << 10

// frames reads the stack of a thread, the innermost frame first, and says whether the stack is deeper than the limit.
// It fails with errLeft if the thread is not in the list of threads any more.
func (r *reader) frames(t threadState) (frames []Frame, deeper bool, err error) {
	r.walk++
	r.memory.begin(area{t.address, t.address + r.layout.threadBytes()}, area{t.near - callersBytes, t.near + r.layout.frameBytes()})
	defer r.memory.end()
	at, err := r.innermost(t)
	for steps := 0; at != 0 && err == nil; steps++ {
		switch {
		case len(frames) == maxFrames:
			return frames, true, nil
		case steps > 2*maxFrames: // no two frames in a row stand for C functions
			return nil, false, torn("a ring of frames")
		}
		at, err = r.appendFrame(&frames, at)
	}
	if err != nil {
		return nil, false, err
	}
	return frames, false, nil
}

// innermost finds the innermost frame of a thread; 0: it runs no Python function.
func (r *reader) innermost(t threadState) (uint64, error) {
	l := r.layout
	b, err := r.threadState(t.address, t.interpreter)
	if err != nil {
		return 0, err
	}
	// What points to the state must still do so: a state that was freed keeps its old words for a while.
	link := t.interpreter + l.interpreterThreads
	if previous := wordAt(b, l.threadPrevious); previous != 0 {
		link = previous + l.threadNext
	}
	switch to, err := r.word(link); {
	case err != nil:
		return 0, err
	case to != t.address || int(wordAt(b, l.threadNative)) != t.native:
		return 0, errLeft
	}
	if l.threadCFrame != 0 {
		return r.word(wordAt(b, l.threadCFrame) + l.cframeFrame)
	}
	return wordAt(b, l.threadFrame), nil
}

// appendFrame adds the frame at an address and returns the address of its caller's. A frame that stands for a C
// function is left out.
func (r *reader) appendFrame(frames *[]Frame, at uint64) (caller uint64, err error) {
	l := r.layout
	if !aligned(at) {
		return 0, torn("frame at %#x", at)
	}
	b, err := r.bytes(at, l.frameBytes())
	if err != nil {
		return 0, err
	}
	caller = wordAt(b, l.framePrevious)
	switch owner := b[l.frameOwner]; {
	case owner > l.lastOwner:
		return 0, torn("frame of owner %d", owner)
	case owner == l.shimOwner && l.shimOwner != 0:
		return caller, nil
	}
	c, err := r.code(wordAt(b, l.frameCode))
	if err != nil {
		return 0, err
	}
	line, err := c.line(wordAt(b, l.frameInstr))
	if err != nil {
		return 0, err
	}
	*frames = append(*frames, Frame{Function: c.name, File: c.file, Line: line})
	return caller, nil
}

// lockHolder finds the thread state that holds the interpreter lock of an interpreter; 0: none, or it is not known. The
// caller compares it with the states that there are: an address that is none of them is nonsense.
func (r *reader) lockHolder(runtime, interpreter uint64) uint64 {
	l := r.layout
	lock := runtime + l.runtimeLock
	if l.runtimeLock == 0 {
		var err error
		if lock, err = r.word(interpreter + l.interpreterLock); err != nil || !aligned(lock) {
			return 0
		}
	}
	b, err := r.bytes(lock, l.lockBytes())
	if err != nil || binary.LittleEndian.Uint32(b[l.lockLocked:]) != 1 {
		return 0
	}
	return wordAt(b, l.lockHolder)
}
