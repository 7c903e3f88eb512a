package server

import (
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
)

// A fanout encodes replies, and each reply that goes to many callers only once (C-WATCH-9). When a task
// changes its state, every watcher gets the same list of all tasks: to encode it for each would cost the
// square of the number of tasks.
//
// The machine helps: results that are the same for many callers are one pointer, or share their bytes. So
// equal means identical here, and no reply is compared by its content.
type fanout struct {
	// Encoded lists of tasks of the newest version. They are kept from wave to wave, because watchers come
	// back for them one by one.
	version int64
	lists   map[fanoutKey]encoded

	// All other results, for the length of a wave: an address may mean something else in the next.
	ofWave map[fanoutKey]encoded
}

// A fanoutKey tells which replies are the same bytes: what is said, and how the caller reads it.
type fanoutKey struct {
	shape wire.Shape
	said  any // *coord.Picture, *coord.Alive, a valueKey or a changesKey
}

// A valueKey stands for the value of a key: the same bytes in memory.
type valueKey struct {
	key   string
	value *byte
	size  int
}

// A changesKey stands for changes of keys: those that the machine shares are one slice.
type changesKey struct {
	first *coord.Change
	count int
}

// An encoded is a reply as bytes. Many callers share it, so no caller may change it.
type encoded struct {
	body   []byte
	status rpc.Status
}

const (
	// maxLists bounds how many forms of one list of tasks are kept. Clients choose the job name that is
	// echoed to them, so they decide how many forms there are.
	maxLists = 64

	// minSharedValue is the size from which on a value is worth a look into the table.
	minSharedValue = 1 << 10
)

func newFanout() fanout {
	return fanout{lists: make(map[fanoutKey]encoded), ofWave: make(map[fanoutKey]encoded)}
}

// encode writes a reply for a caller of such a shape. Callers whose shapes have the same Form read the same bytes
// of a result; without it, what only errors show of a call would keep their replies apart.
func (f *fanout) encode(s wire.Shape, r coord.Reply) ([]byte, rpc.Status) {
	switch said := r.Result.(type) {
	case *coord.Picture:
		f.turn(said.Version)
		return once(f.lists, fanoutKey{s.Form(), said}, r)
	case *coord.Alive:
		return once(f.ofWave, fanoutKey{s.Form(), said}, r)
	case coord.Changes:
		if n := len(said.Changes); n > 0 {
			return once(f.ofWave, fanoutKey{s.Form(), changesKey{&said.Changes[0], n}}, r)
		}
	case coord.Value:
		if n := len(said.Value); n >= minSharedValue {
			return once(f.ofWave, fanoutKey{s, valueKey{said.Key, &said.Value[0], n}}, r)
		}
	}
	return s.Encode(r)
}

// turn drops the lists of another version.
func (f *fanout) turn(version int64) {
	if version != f.version || len(f.lists) >= maxLists {
		clear(f.lists)
		f.version = version
	}
}

// once takes an encoded reply from a table, or encodes it and puts it there.
func once(kept map[fanoutKey]encoded, k fanoutKey, r coord.Reply) ([]byte, rpc.Status) {
	e, ok := kept[k]
	if !ok {
		e.body, e.status = k.shape.Encode(r)
		kept[k] = e
	}
	return e.body, e.status
}

// endWave forgets what was encoded for this wave alone.
func (f *fanout) endWave() { clear(f.ofWave) }
