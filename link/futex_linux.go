package link

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel finds the sleepers of a word by the page of memory that it lies in, not by its address in a process. So these
// calls work between processes, and also where this process may only read the page.
const (
	futexWaitOp = 0 // FUTEX_WAIT
	futexWakeOp = 1 // FUTEX_WAKE
)

// futexWait sleeps until the word is woken, unless it has another value than old, and not longer than most. The thread of the
// goroutine sleeps with it; the runtime gives its processor to other goroutines.
func futexWait(word *atomic.Uint32, old uint32, most time.Duration) {
	timeout := unix.NsecToTimespec(int64(max(most, time.Microsecond)))
	// An error means that the word has changed, the time is over, or a signal came. The caller looks at the word.
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWaitOp, uintptr(old), uintptr(unsafe.Pointer(&timeout)), 0, 0)
}

// yieldThread lets threads of other processes run on this processor.
func yieldThread() { _, _, _ = syscall.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// futexWake wakes all that sleep for the word.
func futexWake(word *atomic.Uint32) {
	const all = 1<<31 - 1
	_, _, _ = syscall.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOp, all, 0, 0, 0)
}
