package pystack

import (
	"errors"
	"io/fs"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// How long a thread may take to stop (D-ST-2). One that is ready to run but has no processor stops when it gets one.
const (
	stopWithin = 50 * time.Millisecond
	stopSpin   = 100 * time.Microsecond // without a pause: to give the processor away may cost milliseconds
	stopPause  = 5 * time.Microsecond   // between the first two looks after that; then longer ones
)

// A tracer holds threads of other processes.
//
// The kernel knows a tracer by its thread. So all that it does happens on one thread, which ends if it could not let go of another one:
// then the kernel does. Only a thread that stands still can be let go by a call. One that was killed cannot, and while a tracer has
// it, its parent waits for the end of the process in vain.
type tracer struct {
	holds bool // a thread that it could not let go
}

// run calls f on the thread of the tracer.
func (t *tracer) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends. It is kept busy here, so that the next goroutine has another one.
			t.run(f)
			runtime.UnlockOSThread()
			return
		}
		// The kernel makes pauses longer by 50 µs, so that it can end several at once.
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		f()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) // as it was
		if !t.holds {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}

// errHeld says that a thread did not stop in time.
var errHeld = errors.New("running, and did not stop")

// hold calls f with threads that were interrupted, while they stand still, and lets them go. What goes wrong is the error of the look.
// Threads of the process that sleep are left alone: a stop would end some system calls early, and with them perhaps the very
// hang that is to be seen.
//
// All were asked to stop before the first is waited for, and none is let go before the last was read. A thread that is ready to run may
// wait for the processor of another thread of its process. When that other thread stops, the processor is free. If they were stopped
// one after the other, the wait would last until the kernel takes turns, which is milliseconds.
func (t *tracer) hold(pid int, looks []*look, f func(*look)) {
	var processors unix.CPUSet
	for _, l := range looks {
		if l.err == nil {
			processors.Set(l.task.processor)
		}
	}
	leave(&processors)
	began := time.Now()
	held := make([]*look, 0, len(looks))
	signals := make([]int, 0, len(looks))
	for _, l := range looks {
		if l.err != nil {
			continue
		}
		signal := 0
		if signal, l.err = awaitStop(pid, l.native, began); l.err != nil {
			t.holds = true
			continue
		}
		held, signals = append(held, l), append(signals, signal)
	}
	for _, l := range held {
		f(l)
	}
	for i, l := range held {
		if err := detach(l.native, signals[i]); err != nil {
			l.err, t.holds = err, true
		}
	}
}

// interrupt asks a thread to stop.
func (t *tracer) interrupt(tid int) error {
	switch err := unix.PtraceSeize(tid); {
	case err == unix.ESRCH:
		return fs.ErrNotExist
	case err != nil:
		return errRan // there is a debugger, or it is not allowed
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		t.holds = true
		return fs.ErrNotExist
	}
	return nil
}

// leave has this thread go to another processor than these, if it is on one of them and may use others. A thread that waits for this
// processor would stop here, and be woken here when it is let go: in the place of its tracer, for milliseconds.
func leave(processors *unix.CPUSet) {
	var mine uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&mine)), 0, 0); errno != 0 || !processors.IsSet(int(mine)) {
		return
	}
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	others := all
	for i := range others {
		others[i] &^= processors[i]
	}
	if others.Count() > 0 && unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &all) // it may use them all again
	}
}

// awaitStop returns when a thread is held that was asked to stop at a time, with the signal that it was about to get, which a tracer has
// to pass on; 0: there is none. It asks for the reason of the stop, which only a thread that is held has. To wait for a report
// of the stop would not do, since another goroutine that waits for children of this process could take it.
func awaitStop(pid, tid int, began time.Time) (signal int, err error) {
	for {
		if signal, held := stopReason(tid); held {
			return signal, nil
		}
		waited := time.Since(began)
		if waited < stopSpin {
			continue
		}
		if t, err := readTask(pid, tid); err != nil || t.state == Ended {
			return 0, fs.ErrNotExist
		}
		if waited > stopWithin {
			return 0, errHeld
		}
		pause := unix.NsecToTimespec(int64(max(stopPause, waited/16)))
		_ = unix.Nanosleep(&pause, nil) // too short to matter if it ends early
	}
}

// eventStop is in the code of a stop that the tracer asked for: PTRACE_EVENT_STOP.
const eventStop = 128

// stopReason asks why a thread is held.
func stopReason(tid int) (signal int, held bool) {
	var info struct {
		signal, _, code int32
		_               [116]byte // the rest of siginfo_t
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_GETSIGINFO, uintptr(tid), 0, uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 {
		return 0, false
	}
	if info.code>>8 == eventStop {
		return 0, true
	}
	return int(info.signal), true
}

func detach(tid, signal int) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(signal), 0, 0); errno != 0 {
		return fs.ErrNotExist // it was killed meanwhile
	}
	return nil
}
