package memory_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

func TestDTypes(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	valid := 0
	for number := memory.DType(-1); number < 50; number++ {
		if !number.Valid() {
			continue
		}
		valid++
		if back, err := memory.ParseDType(number.String()); back != number || err != nil {
			t.Errorf("ParseDType(%q) = %v, %v; want %d", number.String(), back, err, number)
		}
	}
	if valid != 32 {
		t.Errorf("%d element types; want 32", valid)
	}
	for _, row := range []struct {
		dtype memory.DType
		count int64
		want  int64 // -1: an error
	}{
		{memory.F32, 3, 12}, {memory.BF16, 3, 6}, {memory.C128, 2, 32}, {memory.PRED, 5, 5},
		{memory.S4, 3, 2}, {memory.U2, 5, 2}, {memory.S1, 9, 2}, {memory.F6E2M3FN, 4, 4}, {memory.F4E2M1FN, 0, 0},
		{memory.F32, -1, -1}, {memory.F64, math.MaxInt64, -1}, {memory.U1, math.MaxInt64, -1}, {13, 1, -1}, {0, 1, -1}, {99, 1, -1},
	} {
		got, err := row.dtype.Bytes(row.count)
		if (err != nil) != (row.want < 0) || err == nil && got != row.want {
			t.Errorf("%v.Bytes(%d) = %d, %v; want %d", row.dtype, row.count, got, err, row.want)
		}
	}
	for _, name := range []string{"", "tuple", "F32", "token"} {
		if got, err := memory.ParseDType(name); err == nil {
			t.Errorf("ParseDType(%q) = %v; want an error", name, got)
		}
	}
}

// gpu stands for memory of a device.
type gpu int64

func (g gpu) Len() int64 { return int64(g) }

func TestRegions(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	numbers := []float64{1, 2, 3, 4}
	r := memory.OfSlice(numbers)
	if r.Len() != 32 || r.Space() != memory.Host {
		t.Errorf("OfSlice(4 float64) has %d bytes in space %v; want 32 in host", r.Len(), r.Space())
	}
	part := r.Slice(8, 24).Slice(8, 16)
	if got := *(*float64)(unsafe.Pointer(&part.Bytes()[0])); got != 3 {
		t.Errorf("the third number is %v; want 3", got)
	}
	if cap(part.Bytes()) != 8 {
		t.Errorf("a slice of 8 bytes can grow to %d", cap(part.Bytes()))
	}
	d := memory.OnDevice(gpu(100)).Slice(10, 30).Slice(5, 20)
	if m, at := d.Device(); d.Space() != memory.Device || m != gpu(100) || at != 15 || d.Len() != 15 || d.Bytes() != nil {
		t.Errorf("slice of a device = %+v at %d, %d bytes, space %v", m, at, d.Len(), d.Space())
	}
	if got := (memory.Region{}).Slice(0, 0).Len(); got != 0 {
		t.Errorf("the empty region has %d bytes", got)
	}
	for _, row := range [][2]int64{{-1, 2}, {3, 2}, {0, 33}, {33, 33}} {
		if !panics(func() { r.Slice(row[0], row[1]) }) {
			t.Errorf("Slice(%d, %d) of 32 bytes did not panic", row[0], row[1])
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func newArena(t *testing.T, size int64, o memory.ArenaOptions) *memory.Arena {
	t.Helper()
	a, err := memory.NewArena(size, o)
	if errors.Is(err, memory.ErrUnsupported) && runtime.GOOS != "linux" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// What one process writes into its arena, another reads; it can neither write there nor change the size.
func TestArenaIsShared(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	for _, huge := range []bool{false, true} {
		t.Run(fmt.Sprintf("huge=%v", huge), func(t *testing.T) {
			a := newArena(t, 3<<20, memory.ArenaOptions{HugePages: huge})
			if a.Len() != 4<<20 {
				t.Errorf("an arena for 3 MiB has %d bytes; want 4 MiB", a.Len())
			}
			r, err := a.Alloc(100)
			if err != nil {
				t.Fatal(err)
			}
			if uintptr(unsafe.Pointer(&r.Bytes()[0]))%memory.ArenaAlign != 0 {
				t.Errorf("the arena lies at %p", &r.Bytes()[0])
			}
			copy(r.Bytes(), "hello")

			fd, err := syscall.Dup(int(a.File().Fd()))
			if err != nil {
				t.Fatal(err)
			}
			b, err := memory.OpenArena(os.NewFile(uintptr(fd), "peer"))
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			_, at := r.Arena()
			seen, err := b.Region(at, r.Len())
			if err != nil || string(seen.Bytes()[:5]) != "hello" || seen.Space() != memory.Shared {
				t.Errorf("the other process reads %q, %v", seen.Bytes()[:5], err)
			}
			if _, err := b.Alloc(1); err == nil || !b.ReadOnly() {
				t.Error("Alloc of an arena of another process succeeded")
			}
			if err := a.File().Truncate(1 << 20); err == nil {
				t.Error("the arena could be made smaller")
			}
			if _, err := syscall.Mmap(int(a.File().Fd()), 0, 4096, syscall.PROT_WRITE, syscall.MAP_SHARED); err == nil {
				t.Error("the arena could be mapped for writing")
			}
		})
	}
}

func TestOpenArenaRefuses(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	if runtime.GOOS != "linux" {
		t.Skip("arenas need memfd")
	}
	plain, err := os.CreateTemp(t.TempDir(), "plain")
	if err != nil {
		t.Fatal(err)
	}
	plain.Truncate(memory.ArenaAlign)
	if _, err := memory.OpenArena(plain); err == nil {
		t.Error("OpenArena of a file that can shrink succeeded")
	}
	a := newArena(t, 1, memory.ArenaOptions{})
	for _, row := range [][2]int64{{-1, 1}, {1, -1}, {a.Len(), 1}, {0, a.Len() + 1}, {math.MaxInt64, 1}, {1, math.MaxInt64}} {
		if _, err := a.Region(row[0], row[1]); err == nil {
			t.Errorf("Region(%d, %d) of %d bytes succeeded", row[0], row[1], a.Len())
		}
	}
	for _, size := range []int64{0, -1, math.MaxInt64} {
		if _, err := memory.NewArena(size, memory.ArenaOptions{}); err == nil {
			t.Errorf("NewArena(%d) succeeded", size)
		}
	}
}

// Regions that are taken at the same time never overlap, and what is given back can be taken again.
func TestAllocAndFree(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	a := newArena(t, memory.ArenaAlign, memory.ArenaOptions{})
	rapid.Check(t, func(t *rapid.T) {
		type taken struct {
			memory.Region
			mark byte
		}
		var live []taken
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
				for _, b := range live[i].Bytes() {
					if b != live[i].mark {
						t.Fatalf("a region was overwritten by another")
					}
				}
				a.Free(live[i].Region)
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				continue
			}
			r, err := a.Alloc(rapid.Int64Range(0, memory.ArenaAlign/4).Draw(t, "size"))
			if err != nil {
				if !errors.Is(err, memory.ErrFull) || len(live) == 0 {
					t.Fatalf("Alloc() = %v with %d regions taken", err, len(live))
				}
				continue
			}
			for i := range r.Bytes() {
				r.Bytes()[i] = byte(step)
			}
			live = append(live, taken{r, byte(step)})
		}
		for _, r := range live {
			a.Free(r.Region)
		}
		whole, err := a.Alloc(memory.ArenaAlign)
		if err != nil {
			t.Fatalf("after everything was given back: %v", err)
		}
		a.Free(whole)
		if !panics(func() { a.Free(whole) }) {
			t.Fatal("Free of a free region did not panic")
		}
	})
}

// A part of a region cannot be given back, and no size is too large to be refused.
func TestBadAllocAndFree(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	a := newArena(t, memory.ArenaAlign, memory.ArenaOptions{})
	r, err := a.Alloc(1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][2]int64{{0, 500}, {64, 128}, {64, 1000}, {0, 0}} {
		if !panics(func() { a.Free(r.Slice(part[0], part[1])) }) {
			t.Errorf("Free of bytes %d to %d of a region did not panic", part[0], part[1])
		}
	}
	for _, size := range []int64{memory.ArenaAlign + 1, math.MaxInt64 - 63, math.MaxInt64} {
		if _, err := a.Alloc(size); !errors.Is(err, memory.ErrFull) {
			t.Errorf("Alloc(%d) = %v; want ErrFull", size, err)
		}
	}
	a.Free(r)
	if r, err = a.Alloc(memory.ArenaAlign); err != nil {
		t.Errorf("Alloc() of all = %v", err)
	}
	a.Close()
	a.Free(r) // gone with the arena
}

func TestClosedArena(t *testing.T) {
	clause.Cite(t, "CL-DES-8")
	a := newArena(t, 1, memory.ArenaOptions{})
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Errorf("Close twice = %v", err)
	}
	if _, err := a.Alloc(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Alloc of a closed arena = %v; want ErrClosed", err)
	}
}

func ExampleNewArena() {
	a, err := memory.NewArena(1<<20, memory.ArenaOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	r, _ := a.Alloc(1024)
	fmt.Println(r.Len(), r.Space())
	fmt.Println(r.Slice(0, 512).Len())
	// Output:
	// 1024 arena
	// 512
}
