package link_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	arena "github.com/serry-dev/serry/memory"
)

// segmentsOf counts the mappings and the open files of segments that this process has.
func segmentsOf(t *testing.T) (mappings, files int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range open {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.Contains(name, "memfd:serry") {
			files++
		}
	}
	return strings.Count(string(maps), "memfd:serry"), files
}

// Processes of one host read the segments of each other. They cannot write them, and nothing of a segment is left when both
// sides have closed it, or when the link ends before it was borrowed.
func TestSegmentsOfTheHost(t *testing.T) {
	clause.Cite(t, "CL-TRN-16", "CL-TRN-19", "CL-TRN-31", "TR-G-10")
	w := &world{job: newJob(), t: t}
	m, n := w.join(life(0, 10)), w.join(life(1, 11))
	a, b := w.linked(m, n)
	mine, theirs := lent(t, a, b, m, 1)
	passWord(t, mine, theirs)
	back, there := lent(t, b, a, n, 1) // the other way, under the same name
	passWord(t, back, there)
	if !faults(func() { theirs.Bytes()[0] = 1 }) {
		t.Error("a borrowed segment was written")
	}
	if err := mine.Close(); err != nil {
		t.Error(err)
	}
	if got := theirs.Word(64).Load(); got != 50 {
		t.Errorf("after its owner has closed it, the segment has %d; want 50", got)
	}
	if err := errors.Join(theirs.Close(), back.Close(), there.Close()); err != nil {
		t.Error(err)
	}
	left, err := m.NewSegment(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Lend(t.Context(), 2, left), left.Close()); err != nil {
		t.Error(err)
	}
	a.Shutdown(errors.New("enough"))
	<-b.Done()
	if mappings, files := segmentsOf(t); mappings != 0 || files != 0 {
		t.Errorf("%d mappings and %d files are left; want none", mappings, files)
	}
}

// faults says whether the processor refuses what f does.
func faults(f func()) (refused bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { refused = recover() != nil }()
	f()
	return false
}

// Segments are lent through sockets of the host only.
func TestNoSegmentsOverTCP(t *testing.T) {
	clause.Cite(t, "CL-TRN-16")
	w := &world{job: newJob(), t: t, options: link.Options{TCPOnly: true}}
	m, n := w.join(life(0, 10)), w.join(life(1, 11))
	a, _ := w.linked(m, n)
	s, err := m.NewSegment(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := a.Lend(t.Context(), 1, s); !errors.Is(err, link.ErrNoLending) {
		t.Errorf("Lend() over TCP = %v; want ErrNoLending", err)
	}
}

// memfd is anonymous memory that is sealed in one way.
func memfd(t *testing.T, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("serry liar", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "serry liar")
	t.Cleanup(func() { file.Close() })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return file
}

// A segment whose owner could take its memory away, or that is none, is refused, and so is every other hand-over that does not
// keep to the protocol. The link stays up.
func TestSegmentsOfALiar(t *testing.T) {
	clause.Cite(t, "CL-TRN-16", "CL-TRN-25")
	w := &world{job: newJob(), t: t}
	m, n := w.join(life(0, 10)), w.join(life(1, 11))
	a, b := w.linked(m, n)
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	good := memfd(t, arena.ArenaAlign, sealed)
	devNull, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer devNull.Close()
	lend := link.Header{Type: link.LendType}
	name := binary.LittleEndian.AppendUint64(nil, 7)
	for _, row := range []struct {
		what  string
		set   uint64
		head  link.Header
		bytes []byte
		files []*os.File
		want  string
	}{
		{"can shrink", a.Set(), lend, name, []*os.File{memfd(t, arena.ArenaAlign, sealed&^unix.F_SEAL_SHRINK)}, "its size may change"},
		{"can be written", a.Set(), lend, name, []*os.File{memfd(t, arena.ArenaAlign, sealed&^unix.F_SEAL_FUTURE_WRITE)}, "its seals"},
		{"empty", a.Set(), lend, name, []*os.File{memfd(t, 0, sealed)}, "its size"},
		{"odd", a.Set(), lend, name, []*os.File{memfd(t, 4096, sealed)}, "its size"},
		{"vast", a.Set(), lend, name, []*os.File{memfd(t, 1<<41, sealed)}, "bytes of a segment"},
		{"no memory", a.Set(), lend, name, []*os.File{devNull}, "no anonymous memory"},
		{"no file", a.Set(), lend, name, nil, "0 files"},
		{"two files", a.Set(), lend, name, []*os.File{good, good}, "2 files"},
		{"three files", a.Set(), lend, name, []*os.File{good, good, good}, "files"},
		{"no name", a.Set(), lend, nil, []*os.File{good}, "segment not taken"},
		{"another frame", a.Set(), link.Header{Type: 4}, name, []*os.File{good}, "type 4"},
		{"another link", a.Set() + 1, lend, name, []*os.File{good}, "its link is gone"},
	} {
		err := a.HandOver(t.Context(), row.set, row.head, row.bytes, row.files...)
		if _, ok := errors.AsType[*link.RefusedError](err); !ok || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v; want a refusal with %q", row.what, err, row.want)
		}
	}
	for i := range link.MaxLoans + 1 {
		err := a.HandOver(t.Context(), a.Set(), lend, binary.LittleEndian.AppendUint64(nil, uint64(i)), good)
		if full := i == link.MaxLoans; (err != nil) != full || full && !strings.Contains(err.Error(), "segments lent") {
			t.Fatalf("segment %d is lent: %v; want at most %d", i, err, link.MaxLoans)
		}
	}
	if err := a.HandOver(t.Context(), a.Set(), lend, make([]byte, 8), good); err == nil || !strings.Contains(err.Error(), "lent before") {
		t.Errorf("a name twice: %v; want a refusal", err)
	}
	exchange(t, a, b, 1)
	a.Shutdown(errors.New("enough"))
	<-b.Done()
	good.Close()
	n.Close(context.Background()) // the goroutines that took the files have ended
	if mappings, _ := segmentsOf(t); mappings != 0 {
		t.Errorf("%d mappings are left; want none", mappings)
	}
}

// A process of another user, or one that does not know the secret, lends nothing.
func TestSegmentsOfAnotherUser(t *testing.T) {
	clause.Cite(t, "CL-TRN-25", "CL-TRN-16")
	w := &world{job: newJob(), t: t}
	m, n := w.join(life(0, 10)), w.join(life(1, 11))
	a, _ := w.linked(m, n)
	s, err := m.NewSegment(1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	n.SetUser(os.Getuid() + 1)
	err = a.Lend(t.Context(), 1, s)
	if r, ok := errors.AsType[*link.RefusedError](err); !ok || r.Code != link.OtherUser {
		t.Errorf("Lend() of another user = %v; want a refusal", err)
	}
}
