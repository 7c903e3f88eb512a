package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The kernels in the repository are what the generator writes today.
func TestCheckedIn(t *testing.T) {
	for name, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the generator writes; run: go run ./internal/gen/avx2", name)
		}
	}
}
