package member_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/etcd"
	"github.com/serry-dev/serry/store/member"
)

// counted reads the folder of a member that does not run: how many batches are in it, in order.
func counted(t *testing.T, dir string) (n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	h, err := member.ReadFolder(ctx, dir, etcd.Config{})
	if err != nil {
		t.Fatalf("ReadFolder() = %v", err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	}()
	snapshot, batches, err := h.Load(ctx)
	if err != nil {
		t.Fatalf("Load() = %v", err)
	}
	if snapshot != nil {
		if n, err = strconv.Atoi(string(snapshot)); err != nil {
			t.Fatal(err)
		}
	}
	for b, err := range batches {
		if n++; err != nil || string(b) != strconv.Itoa(n) {
			t.Fatalf("batch %q, %v; want %d", b, err, n)
		}
	}
	return n
}

// image is all that is in a folder.
func image(t *testing.T, dir string) []byte {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		all.WriteString(name)
		b, err := os.ReadFile(name)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.Bytes()
}

// C-LOG-3: all members are killed, and two never come back. The folder of the third, which led, holds all
// that it acknowledged, can be read as often as one likes, and is left as it is.
func TestReadFolder(t *testing.T) {
	dir, err := os.MkdirTemp("", "serry")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	c := &cluster{t: t, dir: dir, addresses: reserve(t, 3), running: map[string]*exec.Cmd{}, stdin: map[string]io.Writer{}, news: make(chan news, 100)}
	for _, name := range []string{"a", "b", "c"} {
		c.start(name)
	}
	leader := c.until(is("leads", "")).from
	c.until(func(n news) bool { return n.n >= 130 })
	folder := filepath.Join(dir, leader)
	if _, err := member.ReadFolder(t.Context(), folder, etcd.Config{}); !errors.Is(err, store.ErrInUse) {
		t.Errorf("ReadFolder() of a member that runs = %v; want %v", err, store.ErrInUse)
	}
	_ = c.running[leader].Process.Kill() // first, while it writes: the others have its last entries, and it has not heard of that
	for _, cmd := range c.running {
		_ = cmd.Process.Kill()
	}
	gone := 0
	c.until(func(n news) bool {
		if n.what == "gone" {
			gone++
		}
		return gone == 3
	})

	before := image(t, folder)
	for range 2 {
		if n := counted(t, folder); n < c.has || n > c.has+1 {
			t.Errorf("ReadFolder() finds %d batches; want the %d acknowledged, and at most one more", n, c.has)
		}
	}
	if !bytes.Equal(before, image(t, folder)) {
		t.Error("ReadFolder() has changed the folder")
	}
	for name := range c.running {
		if n := counted(t, filepath.Join(dir, name)); n > c.has+1 {
			t.Errorf("the folder of %s holds %d batches; want at most those %d, and one more", name, n, c.has)
		}
	}
	db := filepath.Join(folder, "member", "snap", "db")
	if err := os.WriteFile(db, bytes.Repeat([]byte("other bytes "), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := member.ReadFolder(t.Context(), folder, etcd.Config{}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("ReadFolder() of a damaged folder = %v; want %v", err, store.ErrDamaged)
	}
}

func TestReadFolderSaysWhatIsWrong(t *testing.T) {
	if _, err := member.ReadFolder(t.Context(), t.TempDir(), etcd.Config{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFolder() of an empty folder = %v; want %v", err, os.ErrNotExist)
	}
	if dir := t.TempDir(); member.IsFolder(dir) {
		t.Errorf("IsFolder(%s) = true for an empty folder", dir)
	}
}

// A leader that was lost may have acknowledged entries of which this member does not know that they are
// committed. They are read as well; and a log with other bytes in it is damaged.
func TestReadFolderCommitsAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal")
	w, err := wal.Create(zap.NewNop(), dir, []byte("member"))
	if err != nil {
		t.Fatal(err)
	}
	var entries []*raftpb.Entry
	for i := range uint64(3) {
		entries = append(entries, &raftpb.Entry{Term: new(uint64(1)), Index: new(i + 1), Data: []byte("an entry of some bytes")})
	}
	state := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(1)), Commit: new(uint64(1))}
	if err := errors.Join(w.Save(state, entries), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := member.CommitAll(dir); err != nil {
		t.Fatalf("CommitAll() = %v", err)
	}
	got, err := wal.Verify(zap.NewNop(), dir, &walpb.Snapshot{Index: new(uint64(0)), Term: new(uint64(0))})
	if err != nil || got.GetCommit() != 3 || got.GetTerm() != 1 {
		t.Errorf("the log is committed up to %d in term %d, %v; want 3 in term 1", got.GetCommit(), got.GetTerm(), err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Replace(b, []byte("an entry of"), []byte("an antry of"), 1)
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := member.CommitAll(dir); err == nil {
		t.Error("CommitAll() of a damaged log = nil")
	}
}
