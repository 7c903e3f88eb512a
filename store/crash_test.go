package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
)

// childEnv says what a process of this test does instead of testing, and childDir where.
const (
	childEnv = "SERRY_STORE_CHILD"
	childDir = "SERRY_STORE_DIR"
)

func TestMain(m *testing.M) {
	var err error
	switch os.Getenv(childEnv) {
	case "append":
		err = appendForever(os.Getenv(childDir))
	case "fill":
		err = fillDisk(os.Getenv(childDir))
	default:
		goleak.VerifyTestMain(m)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child is a process of this test.
func child(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what, childDir+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// count finds in a journal of appendForever how many batches it has seen, and whether they are in
// order: a snapshot is the number of those it covers, a batch is its own number and then noise.
func count(ctx context.Context, j store.Journal) (n int, err error) {
	snapshot, batches, err := j.Load(ctx)
	if err != nil {
		return 0, err
	}
	if snapshot != nil {
		if n, err = strconv.Atoi(strings.TrimSpace(string(snapshot[:20]))); err != nil {
			return 0, err
		}
	}
	for b, err := range batches {
		if err != nil {
			return n, err
		}
		n++
		if got, _, _ := strings.Cut(string(b), " "); got != strconv.Itoa(n) {
			return n, fmt.Errorf("batch %s in place of %d", got, n)
		}
	}
	return n, nil
}

// appendForever appends batches, sometimes takes a snapshot or puts a value, and says after each batch
// which one is acknowledged. It never ends by itself.
func appendForever(dir string) error {
	ctx := context.Background()
	st, err := store.File(dir)
	if err != nil {
		return err
	}
	r, err := st.Campaign(ctx, store.Candidate{Address: "child"})
	if err != nil {
		return err
	}
	n, err := count(ctx, r)
	if err != nil {
		return err
	}
	fmt.Println(n)
	for {
		n++
		noise := conform.Bytes(fmt.Sprint(n), n*7919%9000)
		if err := r.Append(ctx, fmt.Appendf(nil, "%d %s", n, noise)); err != nil {
			return err
		}
		fmt.Println(n)
		switch {
		case n%17 == 0:
			err = r.Put(ctx, conform.Ref(noise), noise)
		case n%29 == 0:
			err = r.Save(ctx, r.Mark(), fmt.Appendf(nil, "%20d%s", n, noise), nil)
		}
		if err != nil {
			return err
		}
	}
}

// C-LOG-2, C-LOG-3: a process that is killed at any moment has lost nothing that it had acknowledged,
// and the next one goes on at once.
func TestFileKilled(t *testing.T) {
	dir := t.TempDir()
	acknowledged := 0
	for round := range 6 {
		cmd := child(t, "append", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + rand.IntN(50) {
			if !lines.Scan() {
				t.Fatalf("round %d: the process has ended by itself: %v", round, cmd.Wait())
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		first, last := lines.Text(), lines.Text()
		for lines.Scan() { // what it has said before it died
			last = lines.Text()
		}
		_ = cmd.Wait()
		n, err := strconv.Atoi(last)
		if err != nil || n < acknowledged {
			t.Fatalf("round %d: acknowledged %q after %q, and %d before", round, last, first, acknowledged)
		}
		acknowledged = n
		h, err := store.Read(dir)
		if err != nil {
			t.Fatalf("round %d: Read() = %v", round, err)
		}
		found, err := count(t.Context(), h)
		h.Close()
		if err != nil || found < acknowledged || found > acknowledged+1 {
			t.Fatalf("round %d: found %d batches, %v; want the %d acknowledged, and at most one more", round, found, err, acknowledged)
		}
	}
}

// fillDisk appends until there is no more room, and says how far it came. Then the write waits, until there is
// room, and is done. Where it may, fillDisk has a disk of its own; else a limit on files has to do.
func fillDisk(dir string) error {
	ctx := context.Background()
	const room = 20 << 20
	free := func() error { return unix.Mount("", dir, "", unix.MS_REMOUNT, "size=64m") }
	if unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", room)) != nil {
		free = func() error {
			return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
		}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: unix.RLIM_INFINITY}); err != nil {
			return err
		}
	}
	st, err := store.File(filepath.Join(dir, "journal"))
	if err != nil {
		return err
	}
	r, err := st.Campaign(ctx, store.Candidate{})
	if err != nil {
		return err
	}
	var n atomic.Int64
	enough, failed := make(chan struct{}), make(chan error)
	go func() {
		for {
			i := n.Load()
			if err := r.Append(ctx, fmt.Appendf(nil, "%d %s", i+1, conform.Bytes(fmt.Sprint(i), 100_000))); err != nil {
				failed <- err
				return
			}
			n.Add(1)
			select {
			case <-enough:
				failed <- nil
				return
			default:
			}
		}
	}()
	limited := r.(store.Limited)
	for tick := time.Tick(time.Millisecond); limited.Full() == nil; {
		select {
		case err := <-failed:
			return err
		case <-tick:
		}
	}
	before := n.Load()
	fmt.Println("acknowledged", before, "then:", limited.Full())
	close(enough)
	if err := free(); err != nil {
		return err
	}
	if err := <-failed; err != nil || n.Load() != before+1 || limited.Full() != nil {
		return fmt.Errorf("with room the write ends with %v, batch %d, full: %v; want nil, %d, and not full", err, n.Load(), limited.Full(), before+1)
	}
	if err := st.Close(); err != nil {
		return err
	}
	return goOn(ctx, filepath.Join(dir, "journal"), int(n.Load()))
}

// goOn starts again after that.
func goOn(ctx context.Context, dir string, n int) error {
	st, err := store.File(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	r, err := st.Campaign(ctx, store.Candidate{})
	if err != nil {
		return err
	}
	if err := r.Append(ctx, fmt.Appendf(nil, "%d", n+1)); err != nil {
		return err
	}
	found, err := count(ctx, r)
	fmt.Println("found", found, "of", n+1, "after there was room:", err)
	if err != nil || found != n+1 {
		return errors.New("lost something")
	}
	return nil
}

// A full disk is said to be full, with what to do about it. The store goes on when there is room, and nothing
// acknowledged is lost.
func TestFileFullDisk(t *testing.T) {
	cmd := child(t, "fill", t.TempDir())
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{ // to be allowed to mount
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	if err := cmd.Start(); err != nil { // not here: without
		cmd.SysProcAttr = nil
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(said.String(), "free space") {
		t.Errorf("a full disk: %v, and the process says %s", err, said.String())
	}
	t.Log(said.String())
}
