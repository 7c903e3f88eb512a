package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// memoryLimit is that of the control group of rank 3, in bytes.
const memoryLimit = 60 << 20

// playMemory puts rank 3 into a control group with a limit, in which it then needs more.
func playMemory(ctx context.Context, o options, s scenario) (finding, error) {
	group, err := newMemoryGroup()
	if err != nil {
		return finding{}, cannot{fmt.Sprintf("a control group with a memory limit cannot be made here (needs root, or a delegated group): %v", err)}
	}
	defer os.Remove(group) // the kernel empties it with its last process
	j := o.newJob()
	if err := j.run(nil, []string{"SCENARIO_GROUP=" + group}, []string{"-n", "4"}, o.python, "train.py", s.name); err != nil {
		return finding{}, err
	}
	return j.injected(ctx, s)
}

// newMemoryGroup makes a control group with a limit, of version 1 or 2.
func newMemoryGroup() (dir string, err error) {
	top, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(top, limit)); err != nil {
		top, limit = "/sys/fs/cgroup", "memory.max"
	}
	dir = filepath.Join(top, fmt.Sprintf("serry-scenarios-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, limit), fmt.Appendln(nil, memoryLimit), 0o644); err != nil {
		os.Remove(dir)
		return "", err
	}
	return dir, nil
}
