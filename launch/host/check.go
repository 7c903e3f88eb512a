package host

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A Finding is something about this machine that a user may want to change (P-HOST-1).
type Finding struct {
	ID       string // "huge-pages"
	Severity Severity
	Observed string
	Expected string
	Remedy   string // what to do about it
}

// A Severity says how much a finding matters.
type Severity string

// The severities.
const (
	Info    Severity = "info"
	Warning Severity = "warning" // a job may be slow
	Failure Severity = "failure" // a job will fail
)

// Check returns all findings about the machine.
func Check(root string) []Finding {
	var all []Finding
	for _, probe := range []func(string) (Finding, bool){hugePages, sharedMemory, openFiles, bootID} {
		if f, found := probe(root); found {
			all = append(all, f)
		}
	}
	return all
}

const hugePagesFile = "sys/kernel/mm/transparent_hugepage/enabled"

// hugePages matter for TPUs from v5e on: without them start and stop of the TPU runtime take long
// (C-HOST-2).
func hugePages(root string) (Finding, bool) {
	const always = "[always] madvise never"
	_, kind := TPUs(root)
	mode := word(filepath.Join(root, hugePagesFile))
	if kind < v5e || mode == always {
		return Finding{}, false
	}
	if mode == "" {
		mode = "unknown"
	}
	return Finding{
		ID: "huge-pages", Severity: Warning,
		Observed: fmt.Sprintf("transparent huge pages are %s, on a machine with TPU %v", mode, kind), Expected: always,
		Remedy: "sudo sh -c 'echo always > /" + hugePagesFile + "'",
	}, true
}

// smallSharedMemory is what a container has unless its specification asks for more, in MiB.
const smallSharedMemory = 64

// sharedMemory matters to RCCL with several GPUs, and to every program that shares arrays between
// processes (C-HOST-8).
func sharedMemory(root string) (Finding, bool) {
	if AMD(root, 2) < 2 {
		return Finding{}, false
	}
	mib := SharedMemory(filepath.Join(root, "dev/shm"), unix.Statfs)
	if mib > smallSharedMemory {
		return Finding{}, false
	}
	return Finding{
		ID: "shared-memory", Severity: Warning,
		Observed: fmt.Sprintf("/dev/shm has %.0f MiB", mib), Expected: fmt.Sprintf("more than %d MiB", smallSharedMemory),
		Remedy: "docker run --shm-size 16g, or in Kubernetes an emptyDir with medium: Memory at /dev/shm",
	}, true
}

// SharedMemory is the size of a file system in MiB; 0 if it is not there or cannot be asked.
func SharedMemory(path string, statfs func(string, *unix.Statfs_t) error) float64 {
	var st unix.Statfs_t
	if err := statfs(path, &st); err != nil {
		return 0
	}
	size := st.Frsize
	if size == 0 {
		size = st.Bsize
	}
	return float64(st.Blocks) * float64(size) / (1 << 20)
}

// fewFiles is less than a coordinator or a launcher of a large job needs.
const fewFiles = 4096

func openFiles(string) (Finding, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max >= fewFiles {
		return Finding{}, false // Go raises its own limit to the hard one
	}
	return Finding{
		ID: "open-files", Severity: Warning,
		Observed: fmt.Sprintf("a process may have %d files open", limit.Max), Expected: fmt.Sprintf("%d or more", fewFiles),
		Remedy: "ulimit -Hn 65536, or LimitNOFILE=65536 in the service unit",
	}, true
}

// bootID is how two processes find out that they are on one host.
func bootID(root string) (Finding, bool) {
	const file = "proc/sys/kernel/random/boot_id"
	if id := word(filepath.Join(root, file)); strings.Count(id, "-") == 4 {
		return Finding{}, false
	}
	return Finding{
		ID: "boot-id", Severity: Warning,
		Observed: "/" + file + " cannot be read", Expected: "the id of this boot",
		Remedy: "let /proc be mounted in the container",
	}, true
}
