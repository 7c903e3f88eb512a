package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// localTasks is how many ranks are to run on this host, or 0 where nothing says so.
func (s *site) localTasks() int {
	if s.locals > 0 {
		return s.locals
	}
	if _, n, ok := s.number("SERRY_LOCAL_TASKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", "LOCAL_WORLD_SIZE"); ok {
		return n
	}
	ranks := 0
	for _, p := range topmost(s.processes()) {
		if jobOfProcess(p) != "" && rankOfProcess(p) != "" {
			ranks++
		}
	}
	return ranks
}

// sharedMemoryPerTask is what NCCL, RCCL and data loaders of one rank take, as a rule.
const sharedMemoryPerTask = 32 << 20

// checkSharedMemory finds containers with the 64 MiB that they have unless they ask for more. What does not fit there ends the
// process that writes it with a bus error.
func checkSharedMemory(ctx context.Context, s *site) finding {
	if f := checkMachine("shared-memory")(ctx, s); f.Level != levelOK {
		return f
	}
	var st unix.Statfs_t
	ranks := s.localTasks()
	if err := s.statfs("/dev/shm", &st); err != nil || ranks < 2 {
		return fine("as it should be")
	}
	size := int64(st.Blocks) * int64(st.Bsize)
	if size >= int64(ranks)*sharedMemoryPerTask {
		return fine("%s for %d ranks", bytesText(size), ranks)
	}
	return warning("docker run --shm-size 8g, or in Kubernetes an emptyDir with medium: Memory at /dev/shm",
		"/dev/shm has %s of shared memory for %d ranks", bytesText(size), ranks)
}

const (
	fullDisk   = 64 << 20               // bytes below which a journal or a log soon ends
	lowDisk    = 1 << 30                // and those below which it may
	slowDisk   = 100 * time.Millisecond // that one write may take before a job feels it
	fewEntries = 1024
)

// checkDisk finds directories for journals and logs that are nearly full, or slow.
func checkDisk(ctx context.Context, s *site) finding {
	for _, dir := range s.dirs {
		if f := s.room(dir); f.Level != levelOK {
			return f
		}
	}
	for _, dir := range s.dirs {
		if s.write == nil {
			break
		}
		took, err := s.write(dir)
		switch {
		case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission):
			return problem("name another directory", "%s cannot be written: %v", dir, err)
		case err == nil && took > slowDisk:
			return warning("put the journal on a local disk: --store file:DIR", "a write to %s takes %v: every barrier of a journaled job waits for one",
				dir, took.Round(time.Millisecond))
		}
	}
	return fine("%s", strings.Join(s.dirs, ", "))
}

// room looks at the space that a directory has.
func (s *site) room(dir string) finding {
	var st unix.Statfs_t
	if err := s.statfs(dir, &st); err != nil {
		return problem("create it, or name another directory", "%s: %v", dir, err)
	}
	free := int64(st.Bavail) * int64(st.Bsize)
	fix := "remove files there, or name another directory"
	switch {
	case free < fullDisk:
		return problem(fix, "%s has %s left, of %s", dir, bytesText(free), bytesText(int64(st.Blocks)*int64(st.Bsize)))
	case st.Files > 0 && st.Ffree < fewEntries:
		return problem(fix, "%s has room for %d more files", dir, st.Ffree)
	case free < lowDisk:
		return warning(fix, "%s has %s left, of %s", dir, bytesText(free), bytesText(int64(st.Blocks)*int64(st.Bsize)))
	}
	return fine("%s has %s left", dir, bytesText(free))
}

// syncedWrite measures one write of a block that waits for the disk, to a file without a name: it is gone when it is closed.
func syncedWrite(dir string) (time.Duration, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, os.NewSyscallError("open", err)
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		return 0, err
	}
	began := time.Now()
	err = f.Sync()
	return time.Since(began), err
}

// memoryPerTask is what a process holds that has imported jax and done nothing yet.
const memoryPerTask = 200 << 20

// checkMemory finds limits of memory that ranks reach soon after they have started. Such a rank is killed without a word.
func checkMemory(_ context.Context, s *site) finding {
	ranks := s.localTasks()
	limit, ok := s.memoryLimit()
	switch {
	case !ok:
		return fine("this host sets no limit")
	case ranks == 0 || len(s.command) > 0 && !isPython(s.command[0]):
		return fine("the limit is %s", bytesText(limit))
	case limit < int64(ranks)*memoryPerTask*2:
		return warning("raise the limit where the container is started, or start fewer ranks",
			"the memory limit is %s for %d ranks: importing jax alone takes about %s", bytesText(limit), ranks, bytesText(int64(ranks)*memoryPerTask))
	}
	return fine("the limit is %s for %d ranks", bytesText(limit), ranks)
}

// memoryLimit is the least limit of the control groups that this process is in.
func (s *site) memoryLimit() (least int64, ok bool) {
	groups, _ := fs.ReadFile(s.root, "proc/self/cgroup") // none: nothing limits memory
	for line := range strings.SplitSeq(string(groups), "\n") {
		parts := strings.SplitN(line, ":", 3) // 0::/user.slice, or 4:memory:/docker/1f2e
		if len(parts) < 3 {
			continue
		}
		dir, file := "sys/fs/cgroup", "memory.max"
		if parts[1] == "memory" {
			dir, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			text, _ := fs.ReadFile(s.root, path.Join(dir, at, file)) // a group without a limit has no such file
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < noLimit && (!ok || n < least) {
				least, ok = n, true
			}
			if at == "/" {
				break
			}
		}
	}
	return least, ok
}

// noLimit is less than what control groups of version 1 have where no limit is set.
const noLimit = 1 << 60

// capPtrace is the number of CAP_SYS_PTRACE.
const capPtrace = 19

// checkStacks finds hosts on which serry cannot say where in its code a rank is.
func checkStacks(_ context.Context, s *site) finding {
	if err := s.peek(); err != nil {
		return warning("allow process_vm_readv in the seccomp profile of the container, or start it with --cap-add SYS_PTRACE",
			"stacks cannot be read here: process_vm_readv: %v", err)
	}
	text, _ := fs.ReadFile(s.root, "proc/sys/kernel/yama/ptrace_scope") // a kernel without Yama has none
	scope := strings.TrimSpace(string(text))
	if (scope == "2" || scope == "3") && (scope == "3" || !s.capable(capPtrace)) {
		return warning("sysctl kernel.yama.ptrace_scope=1", "stacks cannot be read here: /proc/sys/kernel/yama/ptrace_scope is %s", scope)
	}
	return fine("stacks of ranks can be read")
}

// capable says whether this process has a capability.
func (s *site) capable(number int) bool {
	status, _ := fs.ReadFile(s.root, "proc/self/status")
	_, rest, _ := strings.Cut(string(status), "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && set&(1<<number) != 0
}

// peekAtSelf reads a word of its own memory as serry stacks reads that of ranks. A profile of a container that forbids the call
// forbids it there, too.
func peekAtSelf() error {
	word, copied := uint64(1), uint64(0)
	to := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&copied)), Len: 8}}
	n, err := unix.ProcessVMReadv(os.Getpid(), to, []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&word)), Len: 8}}, 0)
	runtime.KeepAlive(&word)
	if err == nil && n != 8 {
		err = fmt.Errorf("%d bytes of 8", n)
	}
	return err
}
