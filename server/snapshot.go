package server

import (
	"crypto/sha256"
	"time"

	"github.com/serry-dev/serry/coord"
)

// This file is what the owner adds to the journal: the records of its steps, the large values that those
// name, and snapshots that take the place of older records.

const (
	// tickPeriod is how much service time may be lost in an outage while a deadline is pending
	// (C-TIME-1).
	tickPeriod = coord.Time(time.Second)

	// leastBlobGrowth is how many bytes of large values are added, at least, before a snapshot is made so
	// that the store can drop those that no key has any more. For records Config.SnapshotBytes says it.
	leastBlobGrowth = 64 << 20
)

// A blob is a large value (more than coord.AsideBytes). The journal stores it once, under its digest, and
// records and snapshots only name it: a value of a gigabyte is not copied into every snapshot.
type blob struct {
	ref   coord.Ref
	value []byte
}

// A snapshot is all state of the machine at one moment, to be saved in place of the records up to there.
type snapshot struct {
	bytes []byte
	keep  []coord.Ref     // the blobs that it names; the store may drop all others
	room  int             // how many bytes the journal may grow while it is saved
	saved chan<- struct{} // closed when it is saved; nil unless a hand-over waits for that
}

// growth is what the owner knows of the size of its journal. All fields count what the owner has stepped,
// which is a little ahead of what is written.
type growth struct {
	last  coord.Time // when something was last added
	bytes int        // of records since the last snapshot
	base  int        // of the last snapshot
	blobs int64      // bytes of blobs added since the last snapshot
	kept  int64      // bytes of blobs that the last snapshot names

	// For the room in the store.
	stale    int64 // bytes of blobs from before the last snapshot that it does not name; the next one drops them
	replaced int64 // what goes when the last snapshot is saved
	live     int64 // bytes of all keys and values at the last snapshot
}

// tick is when a record must be written though nothing has happened, if a deadline is pending: the records
// are how the next server knows how much service time has passed.
func (g *growth) tick() coord.Time { return g.last + tickPeriod }

// grown says whether a snapshot is due: what it replaces must be worth what it costs.
func (g *growth) grown(least int) bool {
	return g.bytes >= g.room(least) || g.blobs >= max(leastBlobGrowth, g.kept)
}

// room is how many bytes of records are not worth a snapshot. Twice the size of the last one
// keeps all snapshots together cheaper than the records that they replace.
func (g *growth) room(least int) int { return max(least, 2*g.base) }

// next is the growth after a snapshot. A blob that the new snapshot does not name is dropped in one of two
// steps: with this snapshot if the last one had named it, and with the next if it is newer. The store removes no
// blob that was put since the last save began, because the record that names it may be yet to come.
func (g growth) next(base int, kept, live int64) growth {
	dropped := max(0, g.kept+g.blobs-kept)
	stale := min(g.blobs, dropped)
	return growth{
		last: g.last, base: base, kept: kept, live: live, stale: stale,
		replaced: int64(g.base+g.bytes) + g.stale + dropped - stale,
	}
}

// record adds a record of the last step to the wave, if the step changed state (C-LOG-1).
func (o *owner) record() {
	ev, ok := o.machine.Journaled()
	if !ok {
		return
	}
	before := len(o.wave.records)
	o.wave.records = o.machine.AppendRecord(o.wave.records, ev, o.aside)
	o.size.last = o.now
	o.size.bytes += len(o.wave.records) - before
}

// aside adds a blob to the wave, and returns the name by which the record knows it. If the goroutine that
// read the call has computed the digest, it is not computed again.
func (o *owner) aside(value []byte) coord.Ref {
	if o.current != nil {
		for _, b := range o.current.blobs {
			o.refs[&b.value[0]] = b.ref
		}
	}
	ref := o.refs.of(value)
	o.wave.blobs = append(o.wave.blobs, blob{ref, value})
	o.size.blobs += ref.Size
	return ref
}

// takeSnapshot adds a snapshot of the present state to the wave. It is saved after the records of the wave.
//
// The bytes are made within the owner's turn, since the machine must not change meanwhile, and calls wait for
// that. Only the save is done elsewhere. That is why a snapshot must be worth its cost (see growth.grown).
func (o *owner) takeSnapshot() *snapshot {
	p, kept := &snapshot{}, int64(0)
	refs := make(refs)
	// A value may be stored under several keys; the store keeps it once.
	before := o.history.header(o.settings, time.Now()).append(nil)
	p.bytes = o.machine.AppendSnapshot(before, func(value []byte) coord.Ref {
		ref := o.refs.of(value)
		if _, twice := refs[&value[0]]; !twice {
			p.keep = append(p.keep, ref)
			kept += ref.Size
		}
		refs[&value[0]] = ref
		return ref
	})
	// The new table has only what the machine still holds, so the owner keeps no deleted value alive.
	o.refs = refs
	o.size = o.size.next(len(p.bytes), kept, o.machine.StoreBytes())
	p.room = o.size.room(o.leastGrowth)
	o.wave.snapshot = p
	return p
}

// refs remembers the digests of large values by the address of their first byte, so that each value is
// hashed once. The machine never changes a value in place, and the map keeps it from being collected, so an
// address means one value.
type refs map[*byte]coord.Ref

// of finds the digest of a value, or computes it.
func (r refs) of(value []byte) coord.Ref {
	if ref, ok := r[&value[0]]; ok && ref.Size == int64(len(value)) {
		return ref
	}
	ref := name(value)
	r[&value[0]] = ref
	return ref
}

// name computes the digest of a value.
func name(value []byte) coord.Ref {
	return coord.Ref{Digest: sha256.Sum256(value), Size: int64(len(value))}
}

// blobsOf finds the large values of a call and computes their digests. The goroutine that read the call does
// this: a value of a gigabyte takes a second, for which the owner has no time. AppendRecord is called because
// it knows where events have large values; the record that it makes is thrown away.
func blobsOf(ev coord.Event) (all []blob) {
	if !coord.KindOf(ev).Row().Changes {
		return nil
	}
	coord.AppendRecord(nil, 0, ev, func(value []byte) coord.Ref {
		all = append(all, blob{name(value), value})
		return all[len(all)-1].ref
	})
	return all
}
