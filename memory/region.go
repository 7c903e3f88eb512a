package memory

import (
	"fmt"
	"unsafe"
)

// A Space says where a region lies.
type Space int

// The spaces.
const (
	Host   Space = iota // ordinary memory of this process
	Shared              // an arena, which other processes of the host can map
	Device              // memory of a device, which the processor cannot read
)

// String is one lower-case word.
func (s Space) String() string {
	switch s {
	case Host:
		return "host"
	case Shared:
		return "arena"
	case Device:
		return "device"
	}
	return fmt.Sprintf("space %d", int(s))
}

// DeviceMemory is memory of a device. The package of the device implements it.
type DeviceMemory interface {
	// Len is its size in bytes.
	Len() int64
}

// A Region is a range of memory without a type. The zero Region is empty.
type Region struct {
	bytes  []byte       // of host memory
	arena  *Arena       // that the bytes lie in, or nil
	device DeviceMemory // or nil
	offset int64        // in the arena or in the memory of the device
	length int64
}

// Of is the region of a slice of bytes.
func Of(b []byte) Region { return Region{bytes: b, length: int64(len(b))} }

// A Number is an element that Go can compute with.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64 | ~complex64 | ~complex128
}

// OfSlice is the region of a slice of numbers.
func OfSlice[T Number](s []T) Region {
	var element T
	size := len(s) * int(unsafe.Sizeof(element))
	return Of(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), size))
}

// OnDevice is the region of all memory that m has.
func OnDevice(m DeviceMemory) Region { return Region{device: m, length: m.Len()} }

// Len is the size of the region in bytes.
func (r Region) Len() int64 { return r.length }

// Space says where the region lies.
func (r Region) Space() Space {
	switch {
	case r.device != nil:
		return Device
	case r.arena != nil:
		return Shared
	}
	return Host
}

// Bytes is the memory itself, or nil if it lies on a device.
func (r Region) Bytes() []byte { return r.bytes }

// Arena is the arena that the region lies in and where it begins there, or nil.
func (r Region) Arena() (a *Arena, offset int64) {
	if r.arena == nil {
		return nil, 0
	}
	return r.arena, r.offset
}

// Device is the memory of a device that the region lies in and where it begins there, or nil.
func (r Region) Device() (m DeviceMemory, offset int64) {
	if r.device == nil {
		return nil, 0
	}
	return r.device, r.offset
}

// Slice is the part of the region from byte from up to, but not with, byte to. Like the expression
// r[from:to] of Go it panics when the part does not lie in the region.
func (r Region) Slice(from, to int64) Region {
	if from < 0 || from > to || to > r.length {
		panic(fmt.Sprintf("memory: slice [%d:%d] of a region of %d bytes", from, to, r.length))
	}
	if r.device == nil {
		r.bytes = r.bytes[from:to:to]
	}
	r.offset += from
	r.length = to - from
	return r
}
