// Package processor reads what the processor knows for the price of one instruction: the number of the one that this thread runs on,
// and a counter of time. The clock of the system costs three times as much, and the system call for the number thirty times.
//
// [Number] says where the thread runs at that moment. [Meter] measures time by the counter, where that is steady. Both are hints to be used
// where a wrong answer costs time and nothing else, or is replaced by the clock of the system. Start with meter.go.
package processor

// None is the number of a processor where it is not known.
const None = -1

// Number is the number of the processor that the thread runs on, or None. The thread may run on another one by the time that the
// caller looks at it.
func Number() int {
	if !hasNumber {
		return None
	}
	return int(number() & numberMask)
}

// numberMask is the part of the word that Linux keeps in each processor (TSC_AUX) which has its number. The rest is the number of its node.
const numberMask = 1<<12 - 1
