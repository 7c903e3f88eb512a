package server

import (
	"fmt"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// A room is the space in a store of limited size (C-LIM-1). A store that is full takes no record at all, not
// even that a task has died, so the service must refuse calls before it is full. It is too late when the store
// itself says so: etcd then takes nothing but deletes until a person repairs it.
//
// The owner knows what it has written: the snapshot, the records since, and the blobs. It refuses in two
// steps, by what a call leaves behind (coord.Row):
//
//   - A call that stores a value is refused if all that is there, and another snapshot of it, would not fit
//     into the capacity.
//   - A call that leaves other state, such as a barrier, is refused a quarter of the capacity later.
//
// All else goes on: deletes, which make room; registrations and heartbeats, without which clients die; and what
// the server itself finds out. Callers cannot make those amount to much.
type room struct {
	store.Limited       // or nil: the store is never full
	capacity      int64 // bytes; 0: the store does not know how much it holds before it is full
}

// roomOf asks the store of a leadership whether it can be full. A store in memory cannot: its keys have limits of
// their own.
func roomOf(r store.Reign) room {
	if l, ok := r.(store.Limited); ok {
		return room{l, l.Capacity()}
	}
	return room{}
}

const (
	// roomLimit is what callers are told is full.
	roomLimit = "room in the store for keys, journal and snapshots " +
		"(delete keys, or raise the quota: serry serve --quota, or --quota-backend-bytes of your own etcd)"

	// vitalRoom is which part of the capacity comes on top for calls that leave state but no value.
	vitalRoom = 4

	// worthRoom is which part of the capacity a snapshot must free, at least, to be made because there is
	// little room.
	worthRoom = 16
)

// held is how many bytes the store holds. While a snapshot is being saved, the store has both the new one and
// what it replaces.
func (g *growth) held(saving bool) int64 {
	n := int64(g.base+g.bytes) + g.kept + g.blobs + g.stale
	if saving {
		n += g.replaced
	}
	return n
}

// needed is the most that the store must hold: now, or when the next snapshot is saved. That snapshot is about
// as large as the last one and the records since.
func (g *growth) needed(saving bool) int64 {
	return max(g.held(saving), g.held(false)+int64(g.base+g.bytes))
}

// freed is how many bytes the store would hold less after a snapshot: the records and the blobs since the last
// one, without what the keys have really grown by. live is the size of all keys and values.
func (g *growth) freed(live int64) int64 {
	return int64(g.bytes) + g.blobs + g.stale - (live - g.live)
}

// scarce says whether a snapshot should be saved early, because there is little room and it would make some.
// Without the second condition a store full of live values would save one snapshot after the other.
func (o *owner) scarce() bool {
	return o.room.capacity > 0 && o.size.needed(o.journal.saving.Load()) > o.room.capacity/2 &&
		o.size.freed(o.machine.StoreBytes()) > o.room.capacity/worthRoom
}

// refuses says why the store has no room for a call, or nil. A call that was made before, under the same request
// id, is not refused: it may have had its effect, and its sender must hear of that (C-REQ-2).
func (o *owner) refuses(it *item, c coord.Call) error {
	if o.room.Limited == nil {
		return nil
	}
	row, limit, size := coord.KindOf(it.event).Row(), o.room.capacity, int64(0)
	switch row.Keeps {
	case coord.KeepsLittle:
		return nil
	case coord.KeepsState:
		limit += limit / vitalRoom
	case coord.KeepsValue:
		size = stored(it.bytes)
	}
	stores := row.Keeps == coord.KeepsValue
	full := o.room.Full()
	// short goes by what the owner has counted. Full is the word of the store, which may be full although the
	// count is low, for example where other programs use its disk. Then calls that store a value are refused,
	// and all others wait in the journal until there is room.
	if short := limit > 0 && o.size.needed(o.journal.saving.Load())+size > limit; !short && (full == nil || !stores) || o.machine.Taken(c) {
		return nil
	}
	if full != nil && limit == 0 {
		return &serry.LimitError{Limit: fmt.Sprintf("%s is full (%s); the room in it", full.What, full.Fix)}
	}
	if full != nil {
		return &serry.LimitError{Limit: fmt.Sprintf("%s is full (%s); its room for the service", full.What, full.Fix), Max: o.room.capacity}
	}
	return &serry.LimitError{Limit: roomLimit, Max: limit}
}

// stored is how much room a call takes that stores a value: a small value is in the journal and in the next
// snapshot, a large one is there once.
func stored(requestBytes int64) int64 {
	if requestBytes > coord.AsideBytes {
		return requestBytes
	}
	return 2 * requestBytes
}
