package pystack

import "golang.org/x/sys/unix"

// calls names the system calls in which threads of a job are found asleep, those that every processor has.
var calls = map[int]string{
	unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_CONNECT: "connect",
	unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_FALLOCATE: "fallocate", unix.SYS_FCNTL: "fcntl", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_FLOCK: "flock", unix.SYS_FSYNC: "fsync", unix.SYS_FUTEX: "futex", unix.SYS_IO_GETEVENTS: "io_getevents",
	unix.SYS_IO_URING_ENTER: "io_uring_enter", unix.SYS_IOCTL: "ioctl", unix.SYS_MMAP: "mmap", unix.SYS_MSYNC: "msync",
	unix.SYS_MUNMAP: "munmap", unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_OPENAT: "openat",
	unix.SYS_PPOLL: "ppoll", unix.SYS_PREAD64: "pread64", unix.SYS_PSELECT6: "pselect6", unix.SYS_PWRITE64: "pwrite64",
	unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg",
	unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend", unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait", unix.SYS_SEMOP: "semop", unix.SYS_SENDFILE: "sendfile",
	unix.SYS_SENDMSG: "sendmsg", unix.SYS_SENDTO: "sendto", unix.SYS_SPLICE: "splice", unix.SYS_SYNC: "sync",
	unix.SYS_CLOSE: "close", unix.SYS_COPY_FILE_RANGE: "copy_file_range", unix.SYS_FSTAT: "fstat", unix.SYS_FTRUNCATE: "ftruncate",
	unix.SYS_GETDENTS64: "getdents64", unix.SYS_PREADV: "preadv", unix.SYS_PWRITEV: "pwritev", unix.SYS_SYNC_FILE_RANGE: "sync_file_range",
	unix.SYS_SYNCFS: "syncfs", unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev",
}
