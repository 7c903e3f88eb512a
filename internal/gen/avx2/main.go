// Avx2 writes the vector kernels of package kernel anew: assembly for processors of amd64 with AVX2, and the Go file that
// declares and lists the functions. Run it from the root of the repository after a change here, and commit what it wrote:
//
//	go run ./internal/gen/avx2
//
// All kernels have the same two loops, over two inputs and over any number. They differ in how an element is loaded,
// combined and stored, and kinds.go says just that: a new type or kind is a row there.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, "serry: error:", err)
		os.Exit(1)
	}
}

// generate writes the files below root.
func generate(root string) error {
	for name, text := range files() {
		if err := os.WriteFile(filepath.Join(root, filepath.FromSlash(name)), []byte(text), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// files has the text of every file, by its path.
func files() map[string]string {
	return map[string]string{
		"internal/kernel/avx2_amd64.s":  assembly(),
		"internal/kernel/avx2_amd64.go": declarations(),
	}
}
