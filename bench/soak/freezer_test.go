package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == guardCommand {
		main() // the guard of a test is this binary, too
		return
	}
	os.Exit(m.Run())
}

// A folder is frozen for a time. If the process that made it dies in the middle of a freeze, its guard thaws
// and unmounts it.
func TestFrozenFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "a")
	d, err := mountFrozen(folder)
	if errors.Is(err, errNoFreeze) && os.Getenv("CI") != "true" {
		t.Skipf("this machine cannot freeze a folder: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := d.freeze(50 * time.Millisecond); err != nil {
		t.Errorf("freeze() = %v", err)
	}
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Errorf("WriteFile() after a freeze = %v", err)
	}
	fmt.Fprintln(d.orders, time.Hour)
	d.out.Close() // as the death of this process does
	if err := d.close(); err != nil {
		t.Errorf("close() within a freeze = %v", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat() of a file in the folder = %v; want it to be unmounted", err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Errorf("WriteFile() in the folder below = %v", err)
	}
}
