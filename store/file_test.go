package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/store"
)

func openFile(t *testing.T, dir string) store.Store {
	t.Helper()
	st, err := store.File(dir)
	if err != nil {
		t.Fatalf("File() = %v", err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func TestFileInUse(t *testing.T) {
	dir := t.TempDir()
	st := openFile(t, dir)
	_, err := store.File(dir)
	if !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Fatalf("File() of a folder in use = %v; want %v, and by whom", err, store.ErrInUse)
	}
	if _, err := store.Read(dir); !errors.Is(err, store.ErrInUse) {
		t.Fatalf("Read() of a folder in use = %v; want %v", err, store.ErrInUse)
	}
	if err := st.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	openFile(t, dir)
}

// A crash while the first journal was made leaves a draft, and nothing else.
func TestFileDraft(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journal.db.new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	conform.Append(t, conform.Campaign(t, openFile(t, dir), "a"), "one")
}

func TestFileFormat(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "journal.db")
	if err := os.WriteFile(name, bytes.Repeat([]byte("not a journal "), 10_000), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"File": func() error { _, err := store.File(dir); return err },
		"Read": func() error { _, err := store.Read(dir); return err },
	} {
		if err := open(); !errors.Is(err, store.ErrDamaged) {
			t.Errorf("%s() of another file = %v; want %v", what, err, store.ErrDamaged)
		}
	}
	if b, err := os.ReadFile(name); err != nil || !bytes.HasPrefix(b, []byte("not a")) {
		t.Errorf("the other file was changed: %q, %v", b[:10], err)
	}
}

// C-LOG-2: nothing is acknowledged before the disk has it; and what needs no disk does not wait.
func TestFileSlowDisk(t *testing.T) {
	st := openFile(t, t.TempDir())
	r := conform.Campaign(t, st, "a")
	begun, release := make(chan struct{}), make(chan struct{})
	store.Slow(st, func() {
		close(begun)
		<-release
	})
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- r.Append(ctx, []byte("slow")) }()
	<-begun
	cancel() // too late: the disk cannot be called back
	if err := r.Confirm(t.Context()); err != nil {
		t.Errorf("Confirm() = %v", err)
	}
	if _, err := st.Leader(t.Context()); err != nil {
		t.Errorf("Leader() = %v", err)
	}
	select {
	case err := <-done:
		t.Fatalf("Append() = %v before the commit", err)
	default:
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatalf("Append() = %v", err)
	}
	if l := conform.Load(t, r); len(l.Batches) != 1 {
		t.Fatalf("Load() = %v; want the batch", l)
	}
}

// A made is a journal with something of everything, and what must be read from it.
type made struct {
	dir    string
	values [][]byte
	last   conform.Loaded // now
	before conform.Loaded // and before the last commit
}

func makeJournal(t *testing.T) made {
	t.Helper()
	m := made{dir: t.TempDir()}
	st := openFile(t, m.dir)
	store.Cut(st, 10_000)
	r := conform.Campaign(t, st, "a")
	for i := range 60 {
		conform.Append(t, r, string(conform.Bytes(fmt.Sprint("old", i), 300)))
	}
	var keep []coord.Ref
	for i := range 3 {
		v := conform.Bytes(fmt.Sprint("value", i), 25_000)
		m.values = append(m.values, v)
		keep = append(keep, conform.Put(t, r, v))
	}
	if err := r.Save(t.Context(), r.Mark(), conform.Bytes("snapshot", 35_000), keep); err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		m.before = conform.Load(t, r)
		conform.Append(t, r, string(conform.Bytes(fmt.Sprint("new", i), 10+(i*137)%6000)))
	}
	m.last = conform.Load(t, r)
	store.Crash(st) // Close would change nothing, but who knows
	return m
}

// A damage is something that happens to the bytes of a file.
type damage struct {
	name string
	do   func(b []byte, rnd *rand.Rand) (changed []byte, page int)
}

var damages = []damage{
	{"noise", func(b []byte, rnd *rand.Rand) ([]byte, int) {
		p := rnd.IntN(len(b) / 4096)
		for i := range 4096 {
			b[p*4096+i] = byte(rnd.Uint32())
		}
		return b, p
	}},
	{"zeros", func(b []byte, rnd *rand.Rand) ([]byte, int) {
		p := rnd.IntN(len(b) / 4096)
		clear(b[p*4096 : (p+1)*4096])
		return b, p
	}},
	{"half a page", func(b []byte, rnd *rand.Rand) ([]byte, int) { // the rest is that of another
		p, q := rnd.IntN(len(b)/4096), rnd.IntN(len(b)/4096)
		copy(b[p*4096+512:(p+1)*4096], b[q*4096+512:])
		return b, p
	}},
	{"the wrong page", func(b []byte, rnd *rand.Rand) ([]byte, int) {
		p, q := rnd.IntN(len(b)/4096), rnd.IntN(len(b)/4096)
		copy(b[p*4096:(p+1)*4096], b[q*4096:])
		return b, p
	}},
	{"one bit", func(b []byte, rnd *rand.Rand) ([]byte, int) {
		i := rnd.IntN(len(b))
		b[i] ^= 1 << rnd.IntN(8)
		return b, i / 4096
	}},
	{"one bit at the head of a page", func(b []byte, rnd *rand.Rand) ([]byte, int) {
		p := rnd.IntN(len(b) / 4096)
		b[p*4096+rnd.IntN(80)] ^= 1 << rnd.IntN(8)
		return b, p
	}},
	{"cut", func(b []byte, rnd *rand.Rand) ([]byte, int) {
		n := rnd.IntN(len(b))
		return b[:n], n / 4096
	}},
}

// A file of which some pages are not what was written gives an error, or all that was acknowledged.
// Only a page that says which transaction is the last can be lost with it: that is what a crash in the
// midst of a commit looks like, too.
func TestFileDamage(t *testing.T) {
	m := makeJournal(t)
	whole, err := os.ReadFile(filepath.Join(m.dir, "journal.db"))
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(whole, "\x00")) // the file ends with pages that were never used
	used = (used + 4095) / 4096 * 4096
	const seeds = 50
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			outcomes := map[string]int{}
			for seed := range uint64(seeds) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				b, page := d.do(bytes.Clone(whole[:used]), rnd)
				name := filepath.Join(dir, "journal.db")
				if err := os.WriteFile(name, b, 0o600); err != nil {
					t.Fatal(err)
				}
				outcome := m.check(t, dir, page)
				outcomes[outcome]++
				if t.Failed() {
					t.Fatalf("seed %d, page %d: %s", seed, page, outcome)
				}
			}
			t.Log(outcomes)
			if outcomes["whole"] == seeds {
				t.Error("nothing was ever damaged")
			}
		})
	}
}

// check reads a damaged journal in both ways.
func (m made) check(t *testing.T, dir string, page int) string {
	t.Helper()
	got, err := m.read(t, dir)
	st, ferr := store.File(dir)
	if ferr == nil {
		defer st.Close()
	} else if err == nil {
		t.Errorf("File() = %v, although Read() = nil", ferr)
	}
	if err != nil {
		for _, known := range []error{store.ErrDamaged, store.ErrNoValue} {
			if errors.Is(err, known) {
				return "error"
			}
		}
		t.Errorf("error does not say what is wrong: %v", err)
		return err.Error()
	}
	if ferr == nil {
		r := conform.Campaign(t, st, "b")
		if diff := cmp.Diff(got, conform.Load(t, r)); diff != "" {
			t.Errorf("File() finds another history than Read()")
		}
		conform.Append(t, r, "goes on")
	}
	switch {
	case cmp.Equal(got, m.last):
		return "whole"
	case page < 2 && cmp.Equal(got, m.before):
		return "the commit before"
	}
	t.Errorf("lost %d of %d batches without a word", len(m.last.Batches)-len(got.Batches), len(m.last.Batches))
	return "lost"
}

func (m made) read(t *testing.T, dir string) (l conform.Loaded, err error) {
	h, err := store.Read(dir)
	if err != nil {
		return l, err
	}
	defer h.Close()
	snapshot, batches, err := h.Load(t.Context())
	if err != nil {
		return l, err
	}
	l = conform.Loaded{Snapshot: string(snapshot), Saved: snapshot != nil}
	for b, err := range batches {
		if err != nil {
			return l, err
		}
		l.Batches = append(l.Batches, string(b))
	}
	for _, v := range m.values {
		b, err := h.Get(t.Context(), conform.Ref(v))
		if err != nil {
			return l, err
		}
		if !bytes.Equal(b, v) {
			t.Error("Get() gives other bytes than were put")
		}
	}
	return l, nil
}

func TestRead(t *testing.T) {
	m := makeJournal(t)
	if l, err := m.read(t, m.dir); err != nil || !cmp.Equal(l, m.last) {
		t.Fatalf("Read(folder) = %v; want the journal", err)
	}
	if l, err := m.read(t, filepath.Join(m.dir, "journal.db")); err != nil || !cmp.Equal(l, m.last) {
		t.Fatalf("Read(database) = %v; want the journal", err)
	}
	if _, err := store.Read(filepath.Join(m.dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read(absent) = %v; want %v", err, os.ErrNotExist)
	}
}

// Any byte of an exported history that changes, and any cut, is noticed.
func TestReadDamagedExport(t *testing.T) {
	r := conform.Campaign(t, shareddisk.New(shareddisk.Config{}).Open(), "a")
	conform.Put(t, r, []byte("a value"))
	if err := r.Save(t.Context(), r.Mark(), []byte("snapshot"), nil); err != nil {
		t.Fatal(err)
	}
	conform.Append(t, r, "one", "two")
	var whole bytes.Buffer
	if err := store.Export(t.Context(), &whole, r); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "history")
	try := func(b []byte) error {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := store.Read(name)
		if err != nil {
			return err
		}
		defer h.Close()
		return store.Export(t.Context(), io.Discard, h)
	}
	if err := try(whole.Bytes()); err != nil {
		t.Fatalf("Export() of Read() = %v", err)
	}
	for i := range whole.Len() {
		changed := bytes.Clone(whole.Bytes())
		changed[i] ^= 0x20
		if try(changed) == nil {
			t.Errorf("byte %d of %d can change unnoticed", i, whole.Len())
		}
		if try(whole.Bytes()[:i]) == nil {
			t.Errorf("the history can be cut at %d of %d unnoticed", i, whole.Len())
		}
	}
}

// FuzzRead: whatever a file holds, reading it ends with a history or an error.
func FuzzRead(f *testing.F) {
	shared := shareddisk.New(shareddisk.Config{})
	r, err := shared.Open().Campaign(context.Background(), store.Candidate{})
	if err != nil {
		f.Fatal(err)
	}
	if err := errors.Join(r.Append(context.Background(), []byte("one")), r.Put(context.Background(), conform.Ref([]byte("v")), []byte("v"))); err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	if err := store.Export(context.Background(), &b, shared.Journal()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("serry history 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "history")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		h, err := store.Read(name)
		if err != nil {
			return
		}
		defer h.Close()
		var out bytes.Buffer
		if store.Export(t.Context(), &out, h) == nil && !bytes.Equal(out.Bytes(), b) {
			t.Errorf("a history of %d bytes is exported as one of %d", len(b), out.Len())
		}
	})
}

func ExampleFile() {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	st, err := store.File(dir)
	if err != nil {
		panic(err)
	}
	reign, err := st.Campaign(ctx, store.Candidate{Address: "host:7601"})
	if err != nil {
		panic(err)
	}
	if err := reign.Append(ctx, []byte("worker/0 registered")); err != nil {
		panic(err)
	}
	st.Close()

	history, err := store.Read(dir)
	if err != nil {
		panic(err)
	}
	defer history.Close()
	_, batches, err := history.Load(ctx)
	if err != nil {
		panic(err)
	}
	for batch, err := range batches {
		fmt.Println(string(batch), err)
	}
	// Output: worker/0 registered <nil>
}
