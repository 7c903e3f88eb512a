package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/serry-dev/serry/internal/plant"
)

// bbolt maps its file into memory and follows whatever page numbers and lengths it finds there; bytes
// that something else has written make it crash, or read what it should not. So before it opens a
// journal, checkPages looks at every page that can be reached, with ordinary reads. What is in the
// values has check sums of its own.

// Numbers of bbolt's file format, version 2. Integers have the byte order of the machine.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltHeader     = 16 // id 8, flags 2, count 2, overflow 4
	boltElement    = 16 // of branches: pos 4, key size 4, id 8; of leaves: flags 4, pos 4, key size 4, value size 4
	boltMeta       = 64 // magic, version, page size, flags: 4 each; root 8, sequence 8, free list, end, transaction, sum: 8 each
	boltBranch     = 1
	boltLeaf       = 2
	boltFree       = 16
	boltBucket     = 1 // flag of an element
	boltNoFreeList = ^uint64(0)
)

// A pageChecker looks at the pages of one file.
type pageChecker struct {
	f        io.ReaderAt
	pageSize int64
	end      uint64 // number of pages in use
	seen     []bool // pages that are part of the tree
	planted  plant.Faults
}

// A boltState is what a meta page says.
type boltState struct {
	pageSize                    int64
	root, freeList, end, number uint64
}

// CheckPages makes sure that bbolt can open a file, which is a journal of a File store or the database of
// an etcd; else the error is [ErrDamaged].
func CheckPages(name string) error {
	var none plant.Faults
	return checkPages(name, none)
}

// checkPages is CheckPages with faults planted in it.
func checkPages(name string, planted plant.Faults) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	c := &pageChecker{f: f, planted: planted}
	state, err := c.state()
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	c.pageSize, c.end = state.pageSize, state.end
	if c.end > uint64(info.Size()/c.pageSize) {
		return c.damaged("it was cut to %d bytes of %d pages of %d bytes", info.Size(), c.end, c.pageSize)
	}
	c.seen = make([]bool, c.end)
	if err := c.tree(state.root, bounds{}, rootLevel); err != nil {
		return err
	}
	return c.freeList(state.freeList)
}

func (c *pageChecker) damaged(what string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(what, args...))
}

func (c *pageChecker) read(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := c.f.ReadAt(b, off); err != nil {
		return nil, c.damaged("read %d bytes at %d: %v", n, off, err)
	}
	return b, nil
}

// state is what the newer of the two meta pages says that are as they were written. One of them is not
// when a crash came in the midst of a transaction: then the transaction before it is the last.
func (c *pageChecker) state() (s boltState, err error) {
	first, ok := c.meta(0)
	if ok {
		s = first
	}
	for size := int64(1 << 10); size <= 1<<24; size <<= 1 { // the second is where the first page ends
		if ok && size != first.pageSize {
			continue
		}
		if second, found := c.meta(size); found && second.pageSize == size && (!ok || second.number > s.number) {
			s, ok = second, true
			break
		}
	}
	if !ok {
		return s, c.damaged("neither of its first pages is that of a journal")
	}
	return s, nil
}

func (c *pageChecker) meta(off int64) (s boltState, ok bool) {
	b := make([]byte, boltHeader+boltMeta)
	if _, err := c.f.ReadAt(b, off); err != nil {
		return s, false
	}
	b = b[boltHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(b[:boltMeta-8])
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	if u32(b) != boltMagic || u32(b[4:]) != boltVersion || u64(b[boltMeta-8:]) != sum.Sum64() {
		return s, false
	}
	s = boltState{pageSize: int64(u32(b[8:])), root: u64(b[16:]), freeList: u64(b[32:]), end: u64(b[40:]), number: u64(b[48:])}
	return s, s.pageSize >= 1<<10 && s.pageSize <= 1<<24
}

// A page is the head of a page, and where its bytes are.
type page struct {
	id       uint64
	flags    uint16
	count    int
	off, len int64
}

// take reads the head of a page that nothing else has led to yet.
func (c *pageChecker) take(id uint64) (p page, err error) {
	if id < 2 || id >= c.end {
		return p, c.damaged("page %d of %d", id, c.end)
	}
	p = page{id: id, off: int64(id) * c.pageSize}
	b, err := c.read(p.off, boltHeader)
	if err != nil {
		return p, err
	}
	more := uint64(binary.NativeEndian.Uint32(b[12:]))
	if binary.NativeEndian.Uint64(b) != id || id+more >= c.end {
		return p, c.damaged("page %d is not what it should be", id)
	}
	for i := id; i <= id+more; i++ {
		if c.seen[i] {
			return p, c.damaged("page %d is used twice", i)
		}
		c.seen[i] = true
	}
	p.flags, p.count = binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	p.len = int64(more+1) * c.pageSize
	return p, nil
}

// A bounds is the range of keys that belong below a branch: from low on, and before high. Nil: no bound.
type bounds struct{ low, high []byte }

func (k bounds) hold(key []byte) bool {
	return (k.low == nil || bytes.Compare(k.low, key) <= 0) && (k.high == nil || bytes.Compare(key, k.high) < 0)
}

// A bucketLevel is how deep a bucket lies in others. The root holds buckets alone. Those in the root hold
// keys, but stagedBucket holds a bucket as well: the snapshot that a Save has begun to write. What lies
// in that one is keys.
type bucketLevel int

const (
	rootLevel bucketLevel = iota
	topLevel
	stagedLevel
)

// mayHold says whether an element of a kind belongs into a bucket of this level.
func (l bucketLevel) mayHold(bucket bool) bool {
	if bucket {
		return l < stagedLevel
	}
	return l > rootLevel
}

// tree looks at a page of a bucket and those below it.
func (c *pageChecker) tree(id uint64, keys bounds, level bucketLevel) error {
	p, err := c.take(id)
	if err != nil {
		return err
	}
	switch p.flags {
	case boltBranch:
		return c.branch(p, keys, level)
	case boltLeaf:
		return c.leaf(p, keys, level)
	}
	return c.damaged("page %d is of no known kind", id)
}

// elements reads the table at the beginning of a page.
func (c *pageChecker) elements(p page) ([]byte, error) {
	n := int64(p.count) * boltElement
	if boltHeader+n > p.len {
		return nil, c.damaged("page %d has no room for %d elements", p.id, p.count)
	}
	return c.read(p.off+boltHeader, n)
}

// key reads the key of element i, which lies pos bytes behind the element and ends with more bytes of a
// value.
func (c *pageChecker) key(p page, i int, pos, size, more uint32) ([]byte, error) {
	off := boltHeader + int64(i)*boltElement + int64(pos)
	if off+int64(size)+int64(more) > p.len {
		return nil, c.damaged("page %d, element %d is out of bounds", p.id, i)
	}
	return c.read(p.off+off, int64(size))
}

func (c *pageChecker) branch(p page, keys bounds, level bucketLevel) error {
	table, err := c.elements(p)
	if err != nil {
		return err
	}
	if p.count == 0 {
		return c.damaged("page %d is an empty branch", p.id)
	}
	ids, at := make([]uint64, p.count), make([][]byte, p.count)
	for i := range ids {
		e := table[i*boltElement:]
		ids[i] = binary.NativeEndian.Uint64(e[8:])
		at[i], err = c.key(p, i, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]), 0)
		if err != nil {
			return err
		}
		if !keys.hold(at[i]) || i > 0 && bytes.Compare(at[i-1], at[i]) >= 0 {
			return c.damaged("page %d, key %d is out of order", p.id, i)
		}
	}
	for i, id := range ids {
		below := bounds{low: at[i], high: keys.high}
		if i+1 < len(at) {
			below.high = at[i+1]
		}
		if err := c.tree(id, below, level); err != nil {
			return err
		}
	}
	return nil
}

func (c *pageChecker) leaf(p page, keys bounds, level bucketLevel) error {
	table, err := c.elements(p)
	if err != nil {
		return err
	}
	var last []byte
	for i := range p.count {
		e := table[i*boltElement:]
		u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(e[at:]) }
		flags, pos, size, more := u32(0), u32(4), u32(8), u32(12)
		key, err := c.key(p, i, pos, size, more)
		if err != nil {
			return err
		}
		if !keys.hold(key) || i > 0 && bytes.Compare(last, key) >= 0 {
			return c.damaged("page %d, key %d is out of order", p.id, i)
		}
		last = key
		isBucket := flags&boltBucket != 0
		if !level.mayHold(isBucket) || isBucket && level == topLevel && c.planted.Has(plant.UnreadableStage) {
			return c.damaged("page %d, element %d is of no known kind", p.id, i)
		}
		if !isBucket {
			continue
		}
		value := p.off + boltHeader + int64(i)*boltElement + int64(pos) + int64(size)
		if err := c.bucket(p, value, int64(more), level+1); err != nil {
			return err
		}
	}
	return nil
}

// bucket looks at a bucket that is the value of an element: the number of its root, or zero and then a
// page without a number.
func (c *pageChecker) bucket(p page, off, size int64, level bucketLevel) error {
	if size < 16 {
		return c.damaged("page %d has half a bucket", p.id)
	}
	b, err := c.read(off, 16)
	if err != nil {
		return err
	}
	if root := binary.NativeEndian.Uint64(b); root != 0 {
		return c.tree(root, bounds{}, level)
	}
	if size < 16+boltHeader {
		return c.damaged("page %d has half a bucket", p.id)
	}
	if b, err = c.read(off+16, boltHeader); err != nil {
		return err
	}
	inner := page{id: p.id, count: int(binary.NativeEndian.Uint16(b[10:])), off: off + 16, len: size - 16}
	if binary.NativeEndian.Uint16(b[8:]) != boltLeaf {
		return c.damaged("page %d has a bucket of no known kind", p.id)
	}
	return c.leaf(inner, bounds{}, level)
}

// freeList looks at the list of free pages. serry writes none, other programs may.
func (c *pageChecker) freeList(id uint64) error {
	if id == boltNoFreeList {
		return nil
	}
	p, err := c.take(id)
	if err != nil {
		return err
	}
	if p.flags != boltFree {
		return c.damaged("page %d is no list of free pages", id)
	}
	b, err := c.read(p.off+boltHeader, p.len-boltHeader)
	if err != nil {
		return err
	}
	count := uint64(p.count)
	if count == 0xFFFF { // the number does not fit, and is the first entry
		count = binary.NativeEndian.Uint64(b)
		b = b[8:]
	}
	if count > uint64(len(b)/8) {
		return c.damaged("page %d has no room for %d free pages", id, count)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(b[8*i:])
		if free < 2 || free >= c.end || c.seen[free] {
			return c.damaged("page %d is called free", free)
		}
		c.seen[free] = true
	}
	return nil
}
