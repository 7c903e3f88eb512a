// Gen writes the Go code of every wire/*/*.proto anew. Run it from the root of the repository after
// a change to one of them, and commit what it wrote:
//
//	go run ./internal/gen
//
// The compiler and its plugins are in a module of their own, in the folder protoc beside this file,
// and are fetched at the versions named there.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if err := generate(".", "."); err != nil {
		fmt.Fprintln(os.Stderr, "serry: error:", err)
		os.Exit(1)
	}
}

// generate writes the code of all .proto files below root to the same places below out.
func generate(root, out string) error {
	args, err := arguments(root, out)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"run", "-C", filepath.Join(root, "internal/gen/protoc"), "."}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("protoc: %w", err)
	}
	return nil
}

// arguments makes both folders absolute, since protoc runs in another one, and finds the files.
func arguments(root, out string) ([]string, error) {
	args := make([]string, 2)
	for i, dir := range []string{root, out} {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		args[i] = abs
	}
	files, err := filepath.Glob(filepath.Join(root, "wire", "*", "*.proto"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no wire/*/*.proto here; run from the root of the repository")
	}
	for _, f := range files {
		rel, err := filepath.Rel(root, f)
		if err != nil {
			return nil, err
		}
		args = append(args, filepath.ToSlash(rel))
	}
	return args, nil
}
