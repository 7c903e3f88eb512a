package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckedIn says whether the generated code in the repository is what gen writes today, no file
// more and no file less.
func TestCheckedIn(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the compiler")
	}
	root := filepath.Join("..", "..")
	fetchTools(t, root)
	fresh := t.TempDir()
	if err := generate(root, fresh); err != nil {
		t.Fatalf("generate() = %v", err)
	}
	want, got := readGenerated(t, fresh), readGenerated(t, root)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s is not what its .proto file gives; run: go run ./internal/gen", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s comes from no .proto file", name)
		}
	}
}

// fetchTools skips the test where the compiler is not here and cannot be fetched.
func fetchTools(t *testing.T, root string) {
	t.Helper()
	out, err := exec.Command("go", "-C", filepath.Join(root, "internal/gen/protoc"), "mod", "download").CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("go mod download: %v\n%s", err, out)
	}
	t.Skipf("GENERATED CODE IS NOT CHECKED: the compiler cannot be fetched: %v\n%s", err, out)
}

func readGenerated(t *testing.T, root string) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := fs.WalkDir(os.DirFS(root), "wire", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".pb.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		texts[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
