package store

import (
	"bytes"
	"iter"
	"maps"
	"slices"

	"github.com/serry-dev/serry/coord"
)

// Memory is a store that lasts as long as the process, with room for one candidate.
func Memory() Store { return NewShared(SharedConfig{}).Open() }

// A disk is a journal in memory. Nothing written to it is ever changed, so that a reader may go on
// without the lock of its owner.
type disk struct {
	snapshot []byte
	base     Mark // up to which the snapshot covers the journal
	batches  [][]byte
	values   map[coord.Ref][]byte
}

func (d *disk) append(batch []byte) {
	d.batches = append(d.batches, bytes.Clone(batch))
}

func (d *disk) put(ref coord.Ref, value []byte) {
	if _, ok := d.values[ref]; !ok {
		d.values[ref] = append([]byte{}, value...)
	}
}

// end is where the journal ends.
func (d *disk) end() Mark { return d.base + Mark(len(d.batches)) }

// save replaces the batches up to a mark by a snapshot, and removes values that no batch names.
func (d *disk) save(at Mark, snapshot []byte, garbage func(coord.Ref) bool) {
	d.snapshot = append([]byte{}, snapshot...)
	if at > d.base {
		d.batches = slices.Clone(d.batches[at-d.base:])
		d.base = at
	}
	maps.DeleteFunc(d.values, func(ref coord.Ref, _ []byte) bool { return garbage(ref) })
}

// load returns copies, because a machine that is restored from them may keep parts of them.
func (d *disk) load() ([]byte, iter.Seq2[[]byte, error]) {
	batches := d.batches[:len(d.batches):len(d.batches)]
	return bytes.Clone(d.snapshot), func(yield func([]byte, error) bool) {
		for _, b := range batches {
			if !yield(bytes.Clone(b), nil) {
				return
			}
		}
	}
}

// refs lists the values in the order of their digests.
func (d *disk) refs() []coord.Ref {
	return slices.SortedFunc(maps.Keys(d.values), func(a, b coord.Ref) int {
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
