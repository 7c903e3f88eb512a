package crc32c

import "golang.org/x/sys/cpu"

var canFold = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ

// fold writes a block that has the same remainder as the n bytes at p, the first of which are added to crc. n is a
// multiple of foldBytes, and not 0.
//
//go:noescape
func fold(block *[blockBytes]byte, crc uint32, p *byte, n int, factors *[4]uint64)
