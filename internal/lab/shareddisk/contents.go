package shareddisk

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// contents is a journal in memory. Nothing written to it is ever changed, so that a reader may go on
// without the lock of its owner.
type contents struct {
	snapshot []byte
	base     store.Mark // up to which the snapshot covers the journal
	batches  [][]byte
	values   map[coord.Ref][]byte
}

func (c *contents) append(batch []byte) {
	c.batches = append(c.batches, bytes.Clone(batch))
}

func (c *contents) put(ref coord.Ref, value []byte) {
	if _, ok := c.values[ref]; !ok {
		c.values[ref] = append([]byte{}, value...)
	}
}

// end is where the journal ends.
func (c *contents) end() store.Mark { return c.base + store.Mark(len(c.batches)) }

// save replaces the batches up to a mark by a snapshot, and removes values that no batch names.
func (c *contents) save(at store.Mark, snapshot []byte, garbage func(coord.Ref) bool) {
	c.snapshot = append([]byte{}, snapshot...)
	if at > c.base {
		c.batches = slices.Clone(c.batches[at-c.base:])
		c.base = at
	}
	maps.DeleteFunc(c.values, func(ref coord.Ref, _ []byte) bool { return garbage(ref) })
}

// load returns copies, because a machine that is restored from them may keep parts of them.
func (c *contents) load() ([]byte, iter.Seq2[[]byte, error]) {
	batches := c.batches[:len(c.batches):len(c.batches)]
	return bytes.Clone(c.snapshot), func(yield func([]byte, error) bool) {
		for _, b := range batches {
			if !yield(bytes.Clone(b), nil) {
				return
			}
		}
	}
}

// refs lists the values in the order of their digests.
func (c *contents) refs() []coord.Ref {
	return slices.SortedFunc(maps.Keys(c.values), func(a, b coord.Ref) int {
		return bytes.Compare(a.Digest[:], b.Digest[:])
	})
}

// each is a sequence of values without errors.
func each(refs []coord.Ref) iter.Seq2[coord.Ref, error] {
	return func(yield func(coord.Ref, error) bool) {
		for _, ref := range refs {
			if !yield(ref, nil) {
				return
			}
		}
	}
}

// checkValue refuses what cannot be kept under ref, as every store does.
func checkValue(ref coord.Ref, value []byte) error {
	if ref.Size > store.MaxValue {
		return &store.SizeError{Size: ref.Size, Limit: store.MaxValue}
	}
	if int64(len(value)) != ref.Size {
		return fmt.Errorf("shareddisk: value of %d bytes put as one of %d", len(value), ref.Size)
	}
	return nil
}
