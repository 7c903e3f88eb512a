package kernel

import "golang.org/x/sys/cpu"

// hasPast says whether this processor can store past its caches by copyPast.
var hasPast = cpu.X86.HasAVX2

// copyPast copies src to dst, whose address is a multiple of pastAlign and whose length is one of pastBlock.
//
//go:noescape
func copyPast(dst, src []byte)
