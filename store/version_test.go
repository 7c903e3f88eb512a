package store_test

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/store"
)

// unpack puts a journal of the first format into a folder. A snapshot was being written when its process
// was killed.
func unpack(t *testing.T, dir string) (name string) {
	t.Helper()
	f, err := os.Open("testdata/journal-1.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(dir, "journal.db")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// C-LOG-4: a journal of the format before is read as it is, and a server goes on with it.
func TestFileFormatBefore(t *testing.T) {
	dir := t.TempDir()
	name := unpack(t, dir)
	first := conform.Loaded{Snapshot: string(conform.Bytes("snapshot", 3500)), Saved: true, Batches: []string{"three", "", string(conform.Bytes("five", 3000)), "six"}}
	value := conform.Bytes("value", 2500)
	check := func(what string, j store.Journal, want conform.Loaded) {
		t.Helper()
		if diff := cmp.Diff(want, conform.Load(t, j)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if b, err := j.Get(t.Context(), conform.Ref(value)); err != nil || string(b) != string(value) {
			t.Errorf("%s: Get() = %d bytes, %v", what, len(b), err)
		}
	}
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	h, err := store.Read(dir)
	if err != nil {
		t.Fatalf("Read() = %v", err)
	}
	check("Read()", h, first)
	h.Close()
	if after, err := os.ReadFile(name); err != nil || string(after) != string(before) {
		t.Errorf("Read() has changed the journal: %v", err)
	}
	st := openFile(t, dir)
	r := conform.Campaign(t, st, "b")
	check("File()", r, first)
	conform.Append(t, r, "seven")
	first.Batches = append(first.Batches, "seven")
	check("Append()", r, first)
	store.Crash(st)
	r = conform.Campaign(t, openFile(t, dir), "c")
	check("File() after that", r, first)
	if err := r.Save(t.Context(), r.Mark()-1, []byte("all but the last"), []coord.Ref{conform.Ref(value)}); err != nil {
		t.Fatal(err)
	}
	check("Save()", r, conform.Loaded{Snapshot: "all but the last", Saved: true, Batches: []string{"seven"}})
}

// C-LOG-4: a journal and an exported history of the next version are refused, with a sentence that names
// both versions and says what to do; and nothing is changed.
func TestNextVersion(t *testing.T) {
	dir := t.TempDir()
	name := unpack(t, dir)
	if err := store.Reformat(name, store.FileFormat+1); err != nil {
		t.Fatal(err)
	}
	exported := filepath.Join(dir, "history")
	if err := os.WriteFile(exported, []byte("serry history 2\n..."), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"File(), version 3 of 1 to 2":       func() error { _, err := store.File(dir); return err },
		"Read(), version 3 of 1 to 2":       func() error { _, err := store.Read(dir); return err },
		"export, version 2 of 1 to 1":       func() error { _, err := store.Read(exported); return err },
		"File() again, version 3 of 1 to 2": func() error { _, err := store.File(dir); return err },
	} {
		err := open()
		ve, ok := errors.AsType[*coord.VersionError](err)
		if !ok || errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "use the newer serry that wrote it") {
			t.Errorf("%s: %v; want an error that says what to do", what, err)
			continue
		}
		_, versions, _ := strings.Cut(what, ", version ")
		if want := strings.NewReplacer(" of ", ", and this serry reads versions ").Replace(versions); !strings.Contains(ve.Error(), want) {
			t.Errorf("%s: %v; want it to name the versions %s", what, err, want)
		}
	}
}
