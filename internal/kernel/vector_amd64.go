package kernel

import (
	"maps"

	"golang.org/x/sys/cpu"

	"github.com/serry-dev/serry/memory"
)

// accelerated has the kernels that this processor can run.
var accelerated = choose(cpu.X86.HasAVX2, cpu.X86.HasF16C)

// choose is the kernels for a processor. Sums and products of integers have the same bits with a sign and without.
func choose(hasAVX2, hasF16C bool) map[memory.DType]vectors {
	all := make(map[memory.DType]vectors)
	if !hasAVX2 {
		return all
	}
	maps.Copy(all, avx2)
	if hasF16C {
		maps.Copy(all, f16c)
	}
	for unsigned, signed := range map[memory.DType]memory.DType{memory.U32: memory.S32, memory.U64: memory.S64} {
		all[unsigned] = vectors{Sum: avx2[signed][Sum], Product: avx2[signed][Product]}
	}
	return all
}
