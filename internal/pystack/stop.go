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

// whileStopped holds a thread while f runs. Threads of the process that sleep are left alone: a stop would end some
// system calls early, and with them perhaps the very hang that is to be seen.
//
// The kernel knows a tracer by its thread, so all of it happens on one thread, which ends if the other one could not be
// let go: then the kernel lets it go.
func whileStopped(pid, tid int, f func()) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends. It is kept busy here, so that the next goroutine has another one.
			result <- whileStopped(pid, tid, f)
			runtime.UnlockOSThread()
			return
		}
		err := trace(pid, tid, f)
		if !errors.Is(err, errHeld) {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// errHeld says that a thread did not stop in time, so that it cannot be let go by a call.
var errHeld = errors.New("running, and did not stop")

// trace stops a thread, calls f, and lets the thread go.
func trace(pid, tid int, f func()) error {
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
		return err
	}
	f()
	return detach(tid, signal)
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
