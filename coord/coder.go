package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// Version is that of the records and snapshots that this package writes. It rises when their form
// changes, when there is a new kind of event, or when the machine would do something else with an
// old record (C-LOG-4). Those of OldestVersion and later are read: a service is upgraded from one
// version to the next without a stop. All others are refused with a [VersionError].
//
// Version 2 has the events Suspect, Lost and Departed that keep the results of a life, because it
// may come back. Its snapshots hold the calls that wait in alive sets, and end with the order in
// which barriers have ended.
const (
	Version       = 2
	OldestVersion = 1
)

// raised makes all machines write the next version, and read it, if it is not empty: see
// [Config.NextVersion]. The linker sets it for a test of upgrades between two builds:
//
//	go build -ldflags '-X github.com/serry-dev/serry/coord.raised=yes'
var raised string

// written is the version that a machine with these settings writes.
func (c Config) written() uint64 {
	if c.NextVersion || raised != "" {
		return Version + 1
	}
	return Version
}

// readable is the latest version that a machine with these settings reads.
func (c Config) readable() uint64 {
	if c.has(plant.ReadNewer) {
		return Version + 1
	}
	return c.written()
}

// A VersionError says that something was written by a version of serry that this one cannot read,
// and what to do.
type VersionError struct {
	What           string // "journal record", "snapshot", "journal file"
	Version        uint64 // that it has
	Oldest, Newest uint64 // that are read
}

func (e *VersionError) Error() string {
	do := "use the newer serry that wrote it"
	if e.Version < e.Oldest {
		do = "let an earlier version of serry, which reads both, go on with it first"
	}
	return fmt.Sprintf("%s of version %d, and this serry reads versions %d to %d: %s", e.What, e.Version, e.Oldest, e.Newest, do)
}

// AsideBytes is the size above which a value is not written into records and snapshots: they hold
// its [Ref], and the value is kept aside (C-LOG-5).
const AsideBytes = 64 << 10

// A Ref stands for a value that is kept aside.
type Ref struct {
	Digest [32]byte // SHA-256
	Size   int64
}

// A coder writes fields, or reads them in the same order. A function that lists the fields of a
// type once serves both directions, so that the two cannot differ:
//
//	func (c *coder) task(p *serry.TaskID) {
//		c.string(&p.Job)
//		signed(c, &p.Index)
//	}
//
// Writing, it takes the values from the pointers; reading, it stores them there. After an error
// it reads nothing but zeros, so that such a function needs no checks of its own: the error is
// looked at once, at the end.
//
// What is read may be any bytes, because a journal may be damaged, or written by an enemy. A
// count is never believed beyond what the bytes that are left could hold, so that memory stays
// within a constant factor of the input.
type coder struct {
	b       []byte // written so far, or left to read
	reading bool
	err     error
	aside   func(value []byte) Ref        // or nil: values stand where they are used
	fetch   func(ref Ref) ([]byte, error) // or nil: there are none aside
	pool    *pool                         // of a snapshot, or nil
	open    []*barrier                    // that were read
}

var errShort = errors.New("ends too early")

// fail notes the first error, and takes away what is left to read.
func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.b = nil
}

// failf is fail with a text made from its arguments.
func (c *coder) failf(format string, args ...any) { c.fail(fmt.Errorf(format, args...)) }

// seal puts a version, a length and a checksum around a body and appends it to dst.
func seal(dst []byte, version uint64, body []byte) []byte {
	start := len(dst)
	dst = append(beforeBody(dst, version, len(body)), body...)
	return binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
}

// beforeBody appends what stands before a body of a size. A snapshot needs it alone: it is
// written in one piece, and its size is known only in the end.
func beforeBody(dst []byte, version uint64, size int) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, version), uint64(size))
}

// unseal takes the first sealed body from b, if it is of a version up to newest; what is its name
// in errors. The seal is the same in all versions, so that damage is told apart from a version that
// cannot be read: an operator must know whether to restore a backup or to use another build.
func unseal(b []byte, newest uint64, what string) (body, rest []byte, err error) {
	version, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, errShort
	}
	size, m := binary.Uvarint(b[n:])
	if start := n + m; m <= 0 || size > uint64(len(b)-start) || len(b)-start-int(size) < crc32.Size {
		return nil, nil, errShort
	}
	// The checksum is looked at before the version: damage to the version itself is damage.
	end := n + m + int(size)
	if binary.LittleEndian.Uint32(b[end:]) != checksum(b[:end]) {
		return nil, nil, errors.New("checksum is wrong")
	}
	if version < OldestVersion || version > newest {
		return nil, nil, &VersionError{What: what, Version: version, Oldest: OldestVersion, Newest: newest}
	}
	return b[n+m : end], b[end+crc32.Size:], nil
}

// checksum is CRC-32C, for which processors have an instruction. It finds damage; it is no
// defence against an enemy.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// unsigned writes a number in as few bytes as it needs: one below 128. Most numbers of a record
// are small.
func unsigned[T ~uint64](c *coder, p *T) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, uint64(*p))
		return
	}
	u, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail(errShort)
		return
	}
	*p, c.b = T(u), c.b[n:]
}

// signed is unsigned for numbers that may be negative. A number that does not fit the type of the
// field is an error, and not another number.
func signed[T ~int | ~int32 | ~int64](c *coder, p *T) {
	if !c.reading {
		c.b = binary.AppendVarint(c.b, int64(*p))
		return
	}
	i, n := binary.Varint(c.b)
	if n <= 0 || int64(T(i)) != i {
		c.fail(errShort)
		return
	}
	*p, c.b = T(i), c.b[n:]
}

// flags writes up to 8 booleans in a byte. A bit that has no flag is an error: it was written by
// a version that has more flags, and to ignore one would be to misunderstand the record.
func (c *coder) flags(all ...*bool) {
	var b byte
	for i, p := range all {
		if *p && !c.reading {
			b |= 1 << i
		}
	}
	c.byte(&b)
	if b>>len(all) != 0 {
		c.failf("flags are %#x, of %d", b, len(all))
	}
	for i, p := range all {
		*p = b>>i&1 != 0
	}
}

// byte writes a byte as it is: a kind, a form or flags.
func (c *coder) byte(p *byte) {
	switch {
	case !c.reading:
		c.b = append(c.b, *p)
	case len(c.b) == 0:
		c.fail(errShort)
	default:
		*p, c.b = c.b[0], c.b[1:]
	}
}

// count writes how many entries follow, each of one byte or more. Reading, a count above the
// number of bytes that are left is an error, before memory is spent on it.
func (c *coder) count(n int) int {
	u := uint64(n)
	unsigned(c, &u)
	if c.reading && u > uint64(len(c.b)) {
		c.fail(errShort)
	}
	if c.err != nil {
		return 0
	}
	return int(u)
}

// string writes a text as its length and its bytes.
func (c *coder) string(p *string) {
	n := c.count(len(*p))
	if !c.reading {
		c.b = append(c.b, *p...)
		return
	}
	*p, c.b = string(c.b[:n]), c.b[n:]
}

// list writes a slice, by a function that writes one entry. An empty slice is read as nil.
func list[T any](c *coder, p *[]T, each func(*T)) {
	n := c.count(len(*p))
	if c.reading {
		*p = slices.Grow([]T(nil), n)[:n]
	}
	for i := 0; i < n && c.err == nil; i++ {
		each(&(*p)[i])
	}
}

// The forms of a value.
const (
	noValue byte = iota
	valueHere
	valueAside
)

// value writes bytes that may be many: a large value goes to aside, and only its name is written
// (C-LOG-5). Nil and empty are told apart, because a swap needs both: nil stands for an absent
// key.
func (c *coder) value(p *[]byte) {
	form := valueHere
	switch {
	case *p == nil:
		form = noValue
	case len(*p) > AsideBytes && c.aside != nil:
		form = valueAside
	}
	c.byte(&form)
	switch {
	case c.err != nil || form == noValue:
	case form == valueHere:
		n := c.count(len(*p))
		if !c.reading {
			c.b = append(c.b, *p...)
			return
		}
		*p, c.b = append(make([]byte, 0, n), c.b[:n]...), c.b[n:]
	case form == valueAside && c.reading:
		*p = c.fetched()
	case form == valueAside:
		ref := c.aside(*p)
		c.b = append(c.b, ref.Digest[:]...)
		signed(c, &ref.Size)
	default:
		c.failf("value of form %d", form)
	}
}

// fetched reads the name of a value and gets the value itself, which must be as long as the name
// says.
func (c *coder) fetched() []byte {
	var ref Ref
	if len(c.b) < len(ref.Digest) {
		c.fail(errShort)
		return nil
	}
	c.b = c.b[copy(ref.Digest[:], c.b):]
	signed(c, &ref.Size)
	switch {
	case c.err != nil:
		return nil
	case c.fetch == nil:
		c.failf("value %x is kept aside, and there is no such place", ref.Digest[:4])
		return nil
	}
	v, err := c.fetch(ref)
	if err != nil {
		c.failf("value %x: %w", ref.Digest[:4], err)
		return nil
	}
	if v == nil || int64(len(v)) != ref.Size {
		c.failf("value %x has %d bytes, want %d", ref.Digest[:4], len(v), ref.Size)
		return nil
	}
	return v
}

// now writes the time of a record or a snapshot. A time in the second half of the range is an
// error: machines add timeouts to it, and no service runs for 146 years.
func (c *coder) now(p *Time) {
	signed(c, p)
	if *p < 0 || *p > math.MaxInt64/2 {
		c.failf("service time %d", *p)
	}
}

// task writes the name of a task, known or not: a call may name any.
func (c *coder) task(p *serry.TaskID) {
	c.string(&p.Job)
	signed(c, &p.Index)
}

// A taskRun stands for consecutive tasks of one job.
type taskRun struct {
	first serry.TaskID
	n     int
}

// tasks writes a list of tasks as runs. The list of a barrier of ten thousand tasks takes a few
// bytes, and the order of any list is kept, since members compare lists as they were written.
func (c *coder) tasks(p *[]serry.TaskID) {
	runs, total := runsOf(*p), 0
	list(c, &runs, func(r *taskRun) {
		c.task(&r.first)
		signed(c, &r.n)
		if r.n < 1 || r.n > MaxTasks-total || r.first.Index > math.MaxInt-(r.n-1) {
			c.failf("a list of more than %d tasks", MaxTasks)
			return
		}
		total += r.n
	})
	// The sum of all runs was checked against the largest cluster before this memory is asked
	// for.
	if !c.reading || c.err != nil || total == 0 {
		return
	}
	*p = make([]serry.TaskID, 0, total)
	for _, r := range runs {
		for i := range r.n {
			*p = append(*p, serry.TaskID{Job: r.first.Job, Index: r.first.Index + i})
		}
	}
}

// runsOf cuts a list into runs, each as long as possible.
func runsOf(all []serry.TaskID) []taskRun {
	var runs []taskRun
	for len(all) > 0 {
		first, n := all[0], 1
		for n < len(all) && all[n].Index-n == first.Index && all[n].Index > first.Index && all[n].Job == first.Job {
			n++
		}
		runs = append(runs, taskRun{first, n})
		all = all[n:]
	}
	return runs
}

// jobs writes a list of jobs in the order given.
func (c *coder) jobs(p *[]Job) {
	list(c, p, func(j *Job) {
		c.string(&j.Name)
		signed(c, &j.Tasks)
	})
}
