package slurm

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
)

// What this binary is, by environment: a rank of a job, or the tests inside their namespaces. Otherwise it makes these.
const (
	rankVariable   = "SLURM_TEST_RANK"
	insideVariable = "SLURM_TEST_INSIDE"
)

// cannot is why nothing can be tested here, or empty.
var cannot string

// TestMain runs the tests in namespaces of their own, beside a Slurm that runs in a temporary folder.
func TestMain(m *testing.M) {
	switch dir := os.Getenv(insideVariable); {
	case os.Getenv(rankVariable) != "":
		os.Exit(beRank())
	case dir != "":
		os.Exit(inside(m, dir))
	default:
		os.Exit(outside(m))
	}
}

// beRank joins the job, meets the others, and leaves.
func beRank() int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cfg, tasks, err := client.ConfigFromEnv()
	if err == nil {
		err = meet(ctx, cfg)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Printf("rank %d of %d has met the others\n", cfg.Task.Index, tasks)
	return 0
}

func meet(ctx context.Context, cfg client.Config) error {
	m, err := client.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := m.Barrier(ctx, "all are here", serry.BarrierOptions{}); err != nil {
		return err
	}
	return m.Leave(ctx)
}

// outside starts this binary again inside namespaces, and ends as it does.
func outside(m *testing.M) int {
	if flag.Parse(); testing.Short() {
		return m.Run() // each test says that it is not run
	}
	dir, err := os.MkdirTemp("", "serry-slurm-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "slurm:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, "slurm:", err)
		return 1
	}
	var code int
	if out, err := exec.Command("../../scripts/slurm.sh").CombinedOutput(); err != nil {
		cannot = fmt.Sprintf("scripts/slurm.sh: %v\n%s", err, out)
	} else if code, err = enter(dir); err != nil {
		cannot = fmt.Sprintf("no namespaces: %v", err)
	}
	if cannot != "" {
		return m.Run() // each test says so
	}
	return code
}

// enter runs this binary in namespaces. They end with it, and it ends with this process.
func enter(dir string) (code int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideVariable+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); ok {
		return max(1, exit.ExitCode()), nil // -1: it was killed
	}
	return 0, nil
}

// inside starts Slurm and runs the tests. It is the first process of its namespace.
func inside(m *testing.M, dir string) int {
	if err := startSlurm(dir); err != nil {
		fmt.Fprintln(os.Stderr, "slurm:", err)
		return 1
	}
	if err := flag.Set("test.parallel", "8"); err != nil { // most of the time jobs wait
		fmt.Fprintln(os.Stderr, "slurm:", err)
		return 1
	}
	return m.Run()
}

// build builds the program to test.
func build(dir string) error {
	if os.Getenv("SERRY_BINARY") != "" {
		return nil
	}
	path := filepath.Join(dir, "serry")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/serry-dev/serry/cmd/serry").CombinedOutput(); err != nil {
		return fmt.Errorf("build: %v\n%s", err, out)
	}
	return os.Setenv("SERRY_BINARY", path)
}

// patience bounds every wait of a test. It is no assertion: only a test that fails anyway ever waits so long.
const patience = 5 * time.Minute

// await looks every few milliseconds whether something is so.
func await(what string, so func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !so(); <-tick.C {
		if time.Now().After(end) {
			return fmt.Errorf("not after %v: %s", patience, what)
		}
	}
	return nil
}

// said is what a command prints, without the spaces around it.
func said(command ...string) (string, error) {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%v: %v\n%s", command, err, out)
	}
	return string(bytes.TrimSpace(out)), nil
}
