package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/mesh/restore"
)

var rewrite = flag.Bool("rewrite", false, "write what the example prints to output.txt")

// TestMain lets this binary be a task, too: launchers start themselves.
func TestMain(m *testing.M) {
	if os.Getenv(envVerb) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Four processes that look like four hosts save; then they come back shuffled, with one host replaced.
// The output says who was recognised, and from which file every device got its bytes: always that of its
// own shard, which the tasks compare with what it must be. docs/IDENTITY.md shows the same output.
func TestRestart(t *testing.T) {
	lab.Clause(t, "P-RMP-2", "P-RMP-4", "P-RMP-7", "P-RMP-8", "P-RMP-12", "EX-RMP-5", "P-TOP-3", "P-TOP-4", "P-TOP-5")
	var got bytes.Buffer
	if err := show(t.Context(), &got); err != nil {
		t.Fatalf("show() = %v\n%s", err, got.Bytes())
	}
	if *rewrite {
		if err := os.WriteFile("output.txt", got.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("output.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("show() printed other than output.txt (-want +got)\n%s", diff)
	}
	if guide, err := os.ReadFile("../../docs/IDENTITY.md"); err != nil || !bytes.Contains(guide, want) {
		t.Errorf("docs/IDENTITY.md does not show output.txt (%v)", err)
	}
}

// Bytes that are not those that were saved restore nothing, whoever they belong to.
func TestRestartRefusesOtherBytes(t *testing.T) {
	lab.Clause(t, "P-RMP-7")
	s := stage{dir: t.TempDir(), out: io.Discard}
	hosts := []machine{{"a", 1}, {"b", 1}}
	if err := s.run(verbSave, hosts, true); err != nil {
		t.Fatal(err)
	}
	disk := folder(filepath.Join(s.dir, "disk-machine-b"))
	theirs, err := os.ReadFile(filepath.Join(s.dir, "disk-machine-a", "W-0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.write("W-2", theirs); err != nil {
		t.Fatal(err)
	}
	heard := &bytes.Buffer{}
	s.out = heard
	if err := s.run(verbRestore, hosts, true); err == nil || !strings.Contains(heard.String(), "task 1: restart: error: W-2: not what was saved") {
		t.Errorf("restore with the bytes of another shard = %v; want task 1 to refuse file W-2\n%s", err, heard)
	}
}

// What is saved can be read back in all its forms.
func TestSavedStep(t *testing.T) {
	lab.Clause(t, "P-RMP-1", "P-RMP-9")
	s := stage{dir: t.TempDir(), out: io.Discard}
	if err := s.run(verbSave, []machine{{"a", 1}, {"b", 1}}, false); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	dir := filepath.Join(s.dir, "disk-machine-b", restore.MetadataFolder)
	for _, name := range []string{restore.TableFile, restore.MeshFile, restore.ManifestFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	if got := string(files[restore.TableFile]); got != "[[0, 1], [2, 3]]" {
		t.Errorf("%s = %s; want the devices of both tasks", restore.TableFile, got)
	}
	f, err := restore.ParseFolder(dir, files, false)
	if err != nil || f.Manifest == nil || f.Manifest.Tasks[1].Devices[0].UUID != "GPU-b-0" {
		t.Errorf("ParseFolder() = %+v, %v; want what the devices were", f, err)
	}
}
