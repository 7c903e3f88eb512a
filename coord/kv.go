package coord

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/google/btree"
	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

// A store holds the keys of an epoch, in order of their bytes.
//
// The order makes a directory a range: everything below "a/b" stands in one row, from "a/b/" on,
// so that a listing or a delete visits only what it returns or removes.
//
// Keys belong to the job and not to a task: they stay when the task that wrote them fails or
// leaves, and the store works for callers in any state (C-KV-9). They go with the epoch
// (C-KV-12). Values are shared: a value that is stored is never changed in place, so a reply may
// point to it while the key has a new value already.
type store struct {
	tree  *btree.BTreeG[Entry]
	bytes int64 // of all keys and values, and of the devices that tasks have described
}

func newStore() store {
	return store{tree: btree.NewG(32, func(a, b Entry) bool { return a.Key < b.Key })}
}

// A keySlot is a key as a call finds it, before the call changes it.
type keySlot struct {
	Entry       // with the key, whether or not it exists
	exists bool // else there is no value
}

// find looks a key up. A call does so once: with many keys the look-up is most of the cost of a put.
func (s *store) find(key string) keySlot {
	e, exists := s.tree.Get(Entry{Key: key})
	return keySlot{Entry{Key: key, Value: e.Value}, exists}
}

// normalise splits a key at slashes, drops empty parts and joins the rest (C-KV-1): "/a//b/" and
// "a/b" are the same key. Calls keep the key as their caller wrote it, too, because answers name
// it that way.
func normalise(key string) string {
	if !strings.Contains(key, "//") {
		return strings.TrimSuffix(strings.TrimPrefix(key, "/"), "/")
	}
	return strings.Join(strings.FieldsFunc(key, func(r rune) bool { return r == '/' }), "/")
}

// checkKey refuses keys that cannot be stored.
func (m *Machine) checkKey(key string) error {
	switch l := m.cfg.Limits; {
	case len(key) > l.KeyBytes:
		return &serry.LimitError{Limit: "key-bytes", Max: int64(l.KeyBytes)}
	case strings.IndexByte(key, 0) >= 0:
		return &serry.InvalidError{What: "key contains a NUL byte"}
	}
	return nil
}

// checkKeyCall refuses calls of replaced lives, and keys that cannot be stored. A call on a key
// need not name a task: in the dialect of jaxlib it names only an incarnation, and some callers
// give not even that. So an unknown caller is no error here, and only one that is known to be
// replaced is refused (C-INC-6).
func (m *Machine) checkKeyCall(w *waiter, key string) error {
	if m.replaced(w) || !w.task.IsZero() && m.staleCaller(w) {
		return serry.ErrStale
	}
	return m.checkKey(key)
}

// serve stores a value and answers the gets that wait for it (C-KV-3).
func (ev InsertKeyValue) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Key); err != nil {
		return nil, err
	}
	old := m.ep.keys.find(normalise(ev.Key))
	if old.exists && !ev.Overwrite {
		if m.cfg.Republished != nil && m.cfg.Republished(old.Key, old.Value, ev.Value) { // C-KV-15
			return Done{}, nil
		}
		return nil, &serry.KeyError{Key: old.Key, Err: serry.ErrExists}
	}
	return Done{}, m.set(old, ev.Value)
}

// set stores a value within the limits. Waiting gets are answered in the order they came, and
// keep their value whatever happens to the key (C-ORD-6, C-ORD-7).
//
// The limits are checked before anything changes: a refused call leaves the store as it was, and
// since nothing was marked as changed, no record of it is written.
func (m *Machine) set(old keySlot, value []byte) error {
	l, s, key := m.cfg.Limits, &m.ep.keys, old.Key
	switch {
	case int64(len(value)) > l.ValueBytes:
		return &serry.LimitError{Limit: "value-bytes", Max: l.ValueBytes}
	case !old.exists && s.tree.Len() >= l.Keys:
		return &serry.LimitError{Limit: "keys", Max: int64(l.Keys)}
	}
	growth := int64(len(value) - len(old.Value))
	if !old.exists {
		growth += int64(len(key))
	}
	if err := s.reserve(growth, l); err != nil {
		return err
	}
	// Nothing can fail from here on. Watchers of keys hear of the change before the gets of this
	// key, and the caller last: it is answered when this returns.
	s.tree.ReplaceOrInsert(Entry{Key: key, Value: value})
	m.keyChanged(key)
	m.notifyKeyWatchers()
	if waiting := m.ep.gets[key]; waiting != nil {
		delete(m.ep.gets, key)
		for _, w := range waiting.take() {
			m.answer(w, Value{Key: w.key, Value: value}, nil)
		}
	}
	return nil
}

// reserve takes room for more bytes, or gives it back if growth is negative. A value that shrinks
// is never refused, also where the store is over its limit because the limit was lowered between
// two runs.
func (s *store) reserve(growth int64, l Limits) error {
	if growth > 0 && s.bytes+growth > l.StoreBytes {
		return &serry.LimitError{Limit: "store-bytes", Max: l.StoreBytes}
	}
	s.bytes += growth
	return nil
}

// serve answers at once if the key has a value, or else when it is set (C-KV-4). Clients leave
// gets open that they gave up long ago, so a waiting get costs an entry in a list and nothing
// else.
func (ev GetKeyValue) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Key); err != nil {
		return nil, err
	}
	key := normalise(ev.Key)
	if e, ok := m.ep.keys.tree.Get(Entry{Key: key}); ok {
		return Value{Key: ev.Key, Value: e.Value}, nil
	}
	if err := m.mayWait(w); err != nil {
		return nil, err
	}
	if m.stopped { // what is stored stays readable, but no call waits any more
		return nil, serry.ErrStopping
	}
	list := m.ep.gets[key]
	if list == nil {
		list = new(waiters)
		m.ep.gets[key] = list
	}
	w.key = ev.Key
	list.add(w)
	return m.hold(w, waitGet)
}

// serve never waits (C-KV-5).
func (ev TryGetKeyValue) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Key); err != nil {
		return nil, err
	}
	e, ok := m.ep.keys.tree.Get(Entry{Key: normalise(ev.Key)})
	if !ok {
		return nil, &serry.KeyError{Key: ev.Key, Err: serry.ErrNotFound}
	}
	return Value{Key: ev.Key, Value: e.Value}, nil
}

// serve adds to a number in decimal text; an absent one is 0 (C-KV-6).
func (ev IncrementKeyValue) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Key); err != nil {
		return nil, err
	}
	old := m.ep.keys.find(normalise(ev.Key))
	number := old.Value
	if !old.exists {
		number = []byte("0")
	}
	sum, err := add(number, ev.By)
	if err != nil {
		return nil, &serry.KeyError{Key: ev.Key, Value: string(number[:min(len(number), 64)]), Err: err}
	}
	return Value{Key: ev.Key, Value: sum}, m.set(old, sum)
}

// add adds to a decimal number of 64 bits, with blanks around it allowed. A sum that does not fit
// is an error like a text that is no number: it must not wrap around.
func add(text []byte, by int64) ([]byte, error) {
	n, err := strconv.ParseInt(strings.Trim(string(text[:min(len(text), 64)]), " \t\n\v\f\r"), 10, 64)
	if err != nil || by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
		return nil, serry.ErrNotNumber
	}
	return strconv.AppendInt(nil, n+by, 10), nil
}

// checkReplySize refuses a reply that no message can carry: lengths in messages have 31 bits.
func checkReplySize(size int64) error {
	if size > math.MaxInt32 {
		return &serry.LimitError{Limit: "reply-bytes", Max: math.MaxInt32}
	}
	return nil
}

// serve lists what is below a directory, at any depth (C-KV-7). A key of the same name as the
// directory is not below it.
func (ev GetKeyValueDir) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Dir); err != nil {
		return nil, err
	}
	var found []Entry
	var size int64
	m.below(normalise(ev.Dir), func(e Entry) {
		found = append(found, e)
		size += int64(len(e.Key) + len(e.Value))
	})
	return Entries{Entries: found}, checkReplySize(size)
}

// serve lists keys without their values, of which some are programs of hundreds of megabytes.
func (ev ListKeys) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Dir); err != nil {
		return nil, err
	}
	var found []KeySize
	var size int64
	m.within(normalise(ev.Dir), func(e Entry) {
		found = append(found, KeySize{Key: e.Key, Size: int64(len(e.Value))})
		size += int64(len(e.Key))
	})
	return Sizes{Keys: found}, checkReplySize(size)
}

// below visits everything whose key starts with the directory and a slash, in order. For the
// empty directory, that is every key which starts with a slash, so none: the reference service
// lists nothing there.
func (m *Machine) below(dir string, visit func(Entry)) {
	prefix := dir + "/"
	m.ep.keys.tree.AscendGreaterOrEqual(Entry{Key: prefix}, func(e Entry) bool {
		if !strings.HasPrefix(e.Key, prefix) {
			return false
		}
		visit(e)
		return true
	})
}

// within is below, but the empty directory has every key in it, as in the calls of serry's own
// clients.
func (m *Machine) within(dir string, visit func(Entry)) {
	if dir != "" {
		m.below(dir, visit)
		return
	}
	m.ep.keys.tree.Ascend(func(e Entry) bool {
		visit(e)
		return true
	})
}

// serve removes a key and everything below it, in one step (C-KV-8). To remove nothing is no
// error.
func (ev DeleteKeyValue) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Key); err != nil {
		return nil, err
	}
	key := normalise(ev.Key)
	// The keys are collected first: a tree must not change while it is walked through.
	doomed := []string{key}
	m.below(key, func(e Entry) { doomed = append(doomed, e.Key) })
	for _, k := range doomed {
		if e, ok := m.ep.keys.tree.Delete(Entry{Key: k}); ok {
			m.ep.keys.bytes -= int64(len(e.Key) + len(e.Value))
			m.keyChanged(k)
		}
	}
	m.notifyKeyWatchers()
	return Done{}, nil
}

// serve stores a value if the key still has the one that the caller knows. That is how two
// callers change one key without losing a change: the slower one hears ErrChanged, reads again
// and retries.
func (ev SwapKeyValue) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Key); err != nil {
		return nil, err
	}
	old := m.ep.keys.find(normalise(ev.Key))
	switch {
	case (old.exists != (ev.Old != nil) || !bytes.Equal(old.Value, ev.Old)) && !m.cfg.has(plant.SwapAlways):
		return nil, &serry.KeyError{Key: ev.Key, Err: serry.ErrChanged}
	case ev.New == nil:
		return nil, &serry.InvalidError{What: "a swap needs a new value"}
	}
	return Done{}, m.set(old, ev.New)
}
