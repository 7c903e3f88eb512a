package launch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// A folder that another program has put in the place of the shim's is neither used nor removed.
func TestShimFolderOfAnother(t *testing.T) {
	lab.Clause(t, "D-ST-10")
	t.Setenv("TMPDIR", t.TempDir())
	m := &local{run: "r", guard: &guard{}}
	dir, err := m.keepShim()
	if _, missing := os.Stat(filepath.Join(dir, "sitecustomize.py")); err != nil || missing != nil {
		t.Fatalf("keepShim() = %q, %v, %v; want a folder with the shim", dir, err, missing)
	}
	if again, err := m.keepShim(); err == nil || again != "" {
		t.Errorf("keepShim() where there is a folder = %q, %v; want none, and an error", again, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "sitecustomize.py")); err != nil {
		t.Errorf("what was there is gone: %v", err)
	}
}
