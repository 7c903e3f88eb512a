package store

import (
	"bytes"
	"iter"
	"slices"

	"github.com/serry-dev/serry/coord"
)

// Memory is a store that lasts as long as the process, with room for one candidate.
func Memory() Store { return NewShared(SharedConfig{}).Open() }

// A disk is a journal in memory. Nothing written to it is ever changed, so that a reader may go on
// without the lock of its owner.
type disk struct {
	snapshot []byte
	batches  [][]byte
	values   map[coord.Ref]aside
}

// An aside is a value beside the journal.
type aside struct {
	bytes []byte
	age   age
}

// An age tells how many snapshots a reign had begun when it put a value aside, starting at one. Values
// of earlier reigns have age zero.
type age uint64

// stale says whether a value that no snapshot of age now names can be removed. One that was put since
// the snapshot before may belong to a batch that is not appended yet.
func (a age) stale(now age) bool { return a+1 < now }

func (d *disk) append(batch []byte) {
	d.batches = append(d.batches, bytes.Clone(batch))
}

func (d *disk) put(ref coord.Ref, value []byte, a age) {
	old, ok := d.values[ref]
	if !ok {
		old.bytes = bytes.Clone(value)
	}
	d.values[ref] = aside{bytes: old.bytes, age: a}
}

// save replaces the first batches of the journal, and removes the values that nothing names.
func (d *disk) save(snapshot []byte, covered int, keep []coord.Ref, now age) {
	d.snapshot = append([]byte{}, snapshot...)
	d.batches = slices.Clone(d.batches[covered:])
	kept := make(map[coord.Ref]bool, len(keep))
	for _, ref := range keep {
		kept[ref] = true
	}
	for ref, v := range d.values {
		if !kept[ref] && v.age.stale(now) {
			delete(d.values, ref)
		}
	}
}

// load hands out copies: whoever restores a machine from them may keep parts of them.
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
	refs := make([]coord.Ref, 0, len(d.values))
	for ref := range d.values {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

func compareRefs(a, b coord.Ref) int { return bytes.Compare(a.Digest[:], b.Digest[:]) }

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
