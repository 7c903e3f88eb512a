package processor

import "runtime"

// Bits of what CPUID says.
const (
	firstExtended = 0x80000000
	features      = 0x80000001
	power         = 0x80000007
	hasRDTSCP     = 1 << 27 // of the features
	hasSteadyTSC  = 1 << 8  // of the power management: one rate in all states, and on all processors
)

// hasNumber says whether the number of the processor can be read. Linux sets it, other systems may set anything.
var hasNumber = runtime.GOOS == "linux" && says(features, hasRDTSCP)

// isSteady says whether the counter runs at one rate, whatever the processor does, and alike on all processors.
var isSteady = says(power, hasSteadyTSC)

// says reads a bit of the last word of a leaf of CPUID.
func says(leaf, bit uint32) bool {
	most, _ := cpuid(firstExtended)
	if most < leaf {
		return false
	}
	_, d := cpuid(leaf)
	return d&bit != 0
}

// cpuid executes CPUID, and returns the first and the last of its four words.
func cpuid(leaf uint32) (a, d uint32)

// number executes RDTSCP, and returns the word that the system has stored for this processor.
func number() uint32

// ticks executes RDTSC.
func ticks() int64
