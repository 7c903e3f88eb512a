package kernel

import (
	"os"
	"runtime/debug"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/memory"
)

// No byte beyond a slice is read or written: the slices lie between pages that must not be touched.
func TestNothingBeyondTheSlices(t *testing.T) {
	lab.Clause(t, "CL-KRN-1")
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	pages := [4][]byte{guarded(t), guarded(t), guarded(t), guarded(t)}
	eachKernel(t, func(t *testing.T, op Op, dt memory.DType) {
		for size := 0; size <= 300; size += dt.Bits() / 8 {
			for _, cut := range []func([]byte) []byte{
				func(page []byte) []byte { return page[:size] },
				func(page []byte) []byte { return page[len(page)-size:] },
			} {
				dst := cut(pages[0])
				for n := 2; n < len(pages); n++ {
					inputs := make([][]byte, n)
					for i := range inputs {
						inputs[i] = cut(pages[i+1])
					}
					if err := Reduce(op, dt, dst, inputs...); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}

// guarded is a page between two that must not be touched.
func guarded(t *testing.T) []byte {
	t.Helper()
	size := os.Getpagesize()
	all, err := unix.Mmap(-1, 0, 3*size, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(all); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mprotect(all[size:2*size], unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	return all[size : 2*size : 2*size]
}
