//go:build linux

package transfer

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// A mapped file that has shrunk would end the process that reads behind its end. Seals forbid it; a fault that happens all the
// same is an error.
func TestMappedFileThatShrinks(t *testing.T) {
	clause.Cite(t, "TR-G-14", "TRT-255")
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	const size = 4 << 20
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	from, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(from)
	to := make([]byte, size)
	if err := copyShared(to, from); err != nil {
		t.Fatalf("copyShared() = %v", err)
	}
	if err := file.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	if err := copyShared(to, from); !errors.Is(err, ErrFailed) {
		t.Errorf("copyShared() of a file that has shrunk = %v; want ErrFailed", err)
	}
	if err := copyShared(to[:size/2], from[:size/2]); err != nil {
		t.Errorf("copyShared() of the rest = %v", err)
	}
}
