package kernel

import "unsafe"

const (
	pastAlign = 64  // a cache line: a part of one would be read before it is written
	pastBlock = 128 // bytes that copyPast stores at a time
)

// CopyPast copies src to dst, which has the same length, past the caches where the processor can (CL-KRN-5). A store to memory that is
// in no cache reads it first, which such a store does not. It is for memory that is too large for the caches, and that this
// processor has not read just before.
func CopyPast(dst, src []byte) {
	if !hasPast {
		copy(dst, src)
		return
	}
	src = src[:len(dst)]
	head := min(int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%pastAlign), len(dst))
	copy(dst[:head], src[:head])
	for dst, src = dst[head:], src[head:]; len(dst) >= pastBlock; {
		n := min(len(dst), strideBytes) &^ (pastBlock - 1)
		copyPast(dst[:n], src[:n])
		dst, src = dst[n:], src[n:]
	}
	copy(dst, src)
}
