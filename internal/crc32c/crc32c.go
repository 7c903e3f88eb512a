// Package crc32c computes the CRC-32 of Castagnoli, as hash/crc32 does, and two to three times as fast where the
// processor multiplies polynomials 512 bits at a time.
//
// A link that sums its payloads spends as much time in hash/crc32 as the system does in half of a copy (CL-TRN-4). The
// difference is worth it for payloads, and for nothing shorter: short inputs go to hash/crc32.
//
// Read fold_amd64.s last: it is one loop, and what it leaves is a short input of the same remainder.
package crc32c

import (
	"hash/crc32"
	"math/bits"
)

const (
	polynomial = 0x1EDC6F41 // without x^32

	foldBytes  = 256  // that a step of fold takes
	blockBytes = 64   // that it leaves
	leastBytes = 1024 // of an input that is worth a fold
)

var table = crc32.MakeTable(crc32.Castagnoli)

// factors are what fold multiplies by: for a distance of a step, and of a block.
var factors = [4]uint64{power(8*foldBytes + 32), power(8*foldBytes - 32), power(8*blockBytes + 32), power(8*blockBytes - 32)}

// Sum is the checksum of p.
func Sum(p []byte) uint32 { return Update(0, p) }

// Update is the checksum of what crc is the checksum of, with p behind it.
func Update(crc uint32, p []byte) uint32 {
	if len(p) >= leastBytes && canFold {
		n := len(p) &^ (foldBytes - 1)
		var block [blockBytes]byte
		fold(&block, ^crc, &p[0], n, &factors)
		// The block has the remainder of all before it, and the checksum so far is in it: no other one goes in front.
		crc = crc32.Update(^uint32(0), table, block[:])
		p = p[n:]
	}
	return crc32.Update(crc, table, p)
}

// power is x^n modulo the polynomial, with its bits in the order of the checksum, which is reversed. A product of two
// reversed polynomials is one bit short of its place, hence the shift.
func power(n int) uint64 {
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*polynomial
	}
	return uint64(bits.Reverse32(r)) << 1
}
