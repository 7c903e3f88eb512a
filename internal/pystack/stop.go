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
	stopSpin   = 200 * time.Microsecond // without a pause, which takes longer than most stops
	stopPause  = 20 * time.Microsecond  // between two looks
)

// A tracer holds threads of other processes.
//
// The kernel knows a tracer by its thread. So all that it does happens on one thread, which ends if it could not let go of another one:
// then the kernel does.
type tracer struct {
	holds bool // a thread that did not stop in time, and cannot be let go by a call before it does
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
		f()
		if !t.holds {
			runtime.UnlockOSThread()
		}
	}()
	<-done
}

// errHeld says that a thread did not stop in time.
var errHeld = errors.New("running, and did not stop")

// hold stops a thread, calls f, and lets the thread go. Threads of the process that sleep are left alone: a stop would end some
// system calls early, and with them perhaps the very hang that is to be seen.
func (t *tracer) hold(pid, tid int, f func()) error {
	switch err := unix.PtraceSeize(tid); {
	case err == unix.ESRCH:
		return fs.ErrNotExist
	case err != nil:
		return errRan // there is a debugger, or it is not allowed
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return fs.ErrNotExist
	}
	signal, err := awaitStop(pid, tid)
	if err != nil {
		t.holds = t.holds || errors.Is(err, errHeld)
		return err
	}
	f()
	return detach(tid, signal)
}

// leave has the tracer go to another processor, if it is on this one and may use others. A thread that waits for this processor would
// stop here, and be woken here when it is let go: in the place of its tracer, for milliseconds.
func (t *tracer) leave(processor int) {
	var mine uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&mine)), 0, 0); errno != 0 || int(mine) != processor {
		return
	}
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return
	}
	others := all
	others.Clear(processor)
	if others.Count() > 0 && unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &all) // it may use them all again
	}
}

// awaitStop returns when a thread is held, with the signal that it was about to get, which a tracer has to pass on; 0:
// there is none. It asks for the reason of the stop, which only a thread that is held has. To wait for a report
// of the stop would not do, since another goroutine that waits for children of this process could take it.
func awaitStop(pid, tid int) (signal int, err error) {
	for began := time.Now(); ; {
		if signal, held := stopReason(tid); held {
			return signal, nil
		}
		waited := time.Since(began)
		if waited < stopSpin {
			// A thread that has a processor stops at once. One that waits for that of this thread gets it.
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			continue
		}
		if t, err := readTask(pid, tid); err != nil || t.state == Ended {
			return 0, fs.ErrNotExist
		}
		if waited > stopWithin {
			return 0, errHeld
		}
		pause := unix.NsecToTimespec(int64(stopPause))
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
