package memory

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The seals of an arena: its size stays, no process may map it for writing from now on, and nothing may
// be taken back.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// newShared makes an anonymous file of that size, of huge pages if there are any.
func newShared(name string, size int64, wantHuge bool) (file *os.File, huge bool, err error) {
	if wantHuge {
		if file, err = newMemfd(name, size, unix.MFD_HUGETLB|unix.MFD_HUGE_2MB); err == nil {
			return file, true, nil
		}
	}
	file, err = newMemfd(name, size, 0)
	return file, false, err
}

func newMemfd(name string, size int64, flags int) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, size); err != nil {
		file.Close()
		return nil, os.NewSyscallError("ftruncate", err)
	}
	if flags&unix.MFD_HUGETLB == 0 {
		return file, nil
	}
	// Huge pages are promised only now: without this a touch beyond the reserve would kill the process.
	if err := unix.Fallocate(fd, 0, 0, size); err != nil {
		file.Close()
		return nil, os.NewSyscallError("fallocate", err)
	}
	return file, nil
}

// mapShared maps the file at an address that is a multiple of ArenaAlign. It reserves addresses for one
// huge page more than it needs, maps the file over the aligned part, and gives the rest back.
func mapShared(file *os.File, size int64, readOnly bool) ([]byte, error) {
	prot := unix.PROT_READ | unix.PROT_WRITE
	if readOnly {
		prot = unix.PROT_READ
	}
	reserved, err := unix.MmapPtr(-1, 0, nil, uintptr(size+ArenaAlign), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	before := uintptr(roundUp(int64(uintptr(reserved)), ArenaAlign)) - uintptr(reserved)
	start := unsafe.Add(reserved, before)
	mapped, err := unix.MmapPtr(int(file.Fd()), 0, start, uintptr(size), prot, unix.MAP_SHARED|unix.MAP_FIXED)
	if err != nil {
		_ = unix.MunmapPtr(reserved, uintptr(size+ArenaAlign))
		return nil, os.NewSyscallError("mmap", err)
	}
	if before > 0 {
		_ = unix.MunmapPtr(reserved, before)
	}
	if after := ArenaAlign - before; after > 0 {
		_ = unix.MunmapPtr(unsafe.Add(start, size), after)
	}
	bytes := unsafe.Slice((*byte)(mapped), size)
	_ = unix.Madvise(bytes, unix.MADV_HUGEPAGE) // a hint; kernels without huge pages refuse it
	return bytes, nil
}

func unmapShared(b []byte) error {
	return os.NewSyscallError("munmap", unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b))))
}

// sealShared forbids every change of the file but writes through the mapping that exists.
func sealShared(file *os.File) error {
	_, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals)
	return os.NewSyscallError("fcntl", err)
}

// sharedSize checks that a file of another process is an arena, and returns its size.
func sharedSize(file *os.File) (int64, error) {
	has, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return 0, fmt.Errorf("no anonymous memory: %w", os.NewSyscallError("fcntl", err))
	}
	if has&seals != seals {
		return 0, fmt.Errorf("its seals are %#x, want %#x: its size may change", has, seals)
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() <= 0 || info.Size()%ArenaAlign != 0 {
		return 0, errors.New("its size is no multiple of a huge page")
	}
	return info.Size(), nil
}
