package client

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/pause"
)

// A KV is the job's key-value store, seen below a prefix. Keys are paths: empty parts between
// slashes do not count. What a view returns is named as below its prefix.
type KV struct {
	store  keyStore
	prefix string // empty, or ends in a slash
}

// A keyStore answers the calls on keys: the service through a member, or a memory.
type keyStore interface {
	change(ctx context.Context, make func(coord.Call) coord.Event) (coord.Result, error)
	read(ctx context.Context, make func(coord.Call) coord.Event) (coord.Result, error)

	// keep returns a value as the store may keep it.
	keep(value []byte) []byte
}

// KV is the store of the job.
func (m *Member) KV() *KV { return &KV{store: m} }

func (m *Member) change(ctx context.Context, make func(coord.Call) coord.Event) (coord.Result, error) {
	call, answered := m.changing()
	defer answered()
	return m.call(ctx, make(call))
}

func (m *Member) read(ctx context.Context, make func(coord.Call) coord.Event) (coord.Result, error) {
	return m.call(ctx, make(m.caller()))
}

// keep returns the value itself: the request that is sent holds a copy.
func (m *Member) keep(value []byte) []byte { return value }

// Sub is the part of the store below prefix.
func (kv *KV) Sub(prefix string) *KV {
	sub := &KV{store: kv.store, prefix: kv.prefix}
	for part := range strings.SplitSeq(prefix, "/") {
		if part != "" { // as the service does, so that it names keys as we do
			sub.prefix += part + "/"
		}
	}
	return sub
}

// Wait returns the value of a key, and waits for one if there is none.
func (kv *KV) Wait(ctx context.Context, key string) ([]byte, error) {
	return value(kv.store.read(ctx, func(c coord.Call) coord.Event {
		return coord.GetKeyValue{Call: c, Key: kv.prefix + key}
	}))
}

// Get returns the value of a key, or serry.ErrNotFound.
func (kv *KV) Get(ctx context.Context, key string) ([]byte, error) {
	return value(kv.store.read(ctx, func(c coord.Call) coord.Event {
		return coord.TryGetKeyValue{Call: c, Key: kv.prefix + key}
	}))
}

// Create stores a value under a key that must not exist, else serry.ErrExists.
func (kv *KV) Create(ctx context.Context, key string, value []byte) error {
	return kv.insert(ctx, key, value, false)
}

// Put stores a value, whatever was there.
func (kv *KV) Put(ctx context.Context, key string, value []byte) error {
	return kv.insert(ctx, key, value, true)
}

func (kv *KV) insert(ctx context.Context, key string, value []byte, overwrite bool) error {
	_, err := kv.store.change(ctx, func(c coord.Call) coord.Event {
		return coord.InsertKeyValue{Call: c, Key: kv.prefix + key, Value: kv.store.keep(value), Overwrite: overwrite}
	})
	return err
}

// Add adds to the number stored under a key, where none is 0, and returns the sum. What is not a
// number is serry.ErrNotNumber.
func (kv *KV) Add(ctx context.Context, key string, delta int64) (int64, error) {
	text, err := value(kv.store.change(ctx, func(c coord.Call) coord.Event {
		return coord.IncrementKeyValue{Call: c, Key: kv.prefix + key, By: delta}
	}))
	if err != nil {
		return 0, err
	}
	sum, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("key %q: the service answered with %q: %w", key, text, serry.ErrNotNumber)
	}
	return sum, nil
}

// Swap stores a value if the present one is old; nil stands for none. Else it is serry.ErrChanged.
func (kv *KV) Swap(ctx context.Context, key string, old, new []byte) error {
	_, err := kv.store.change(ctx, func(c coord.Call) coord.Event {
		return coord.SwapKeyValue{Call: c, Key: kv.prefix + key, Old: old, New: append([]byte{}, new...)}
	})
	return err
}

// List returns everything below dir, at any depth, sorted by key.
func (kv *KV) List(ctx context.Context, dir string) ([]serry.Entry, error) {
	result, err := as[coord.Entries](kv.store.read(ctx, func(c coord.Call) coord.Event {
		return coord.GetKeyValueDir{Call: c, Dir: kv.prefix + dir}
	}))
	if err != nil {
		return nil, err
	}
	entries := result.Entries
	for i := range entries {
		entries[i].Key = strings.TrimPrefix(entries[i].Key, kv.prefix)
	}
	return entries, nil
}

// Delete removes a key and everything below it. That there is nothing is no error.
func (kv *KV) Delete(ctx context.Context, key string) error {
	_, err := kv.store.change(ctx, func(c coord.Call) coord.Event {
		return coord.DeleteKeyValue{Call: c, Key: kv.prefix + key}
	})
	return err
}

// KeyEvent is a word of package serry.
type KeyEvent = serry.KeyEvent

// Watch tells what is below dir, and then every change, until ctx or the member ends. Changes of
// one key that follow each other closely may be told as one.
func (kv *KV) Watch(ctx context.Context, dir string) iter.Seq2[KeyEvent, error] {
	return func(yield func(KeyEvent, error) bool) {
		known := make(map[string]bool)
		wait := firstRetry
		for after := int64(-1); ; {
			changes, err := as[coord.Changes](kv.store.read(ctx, func(c coord.Call) coord.Event {
				return coord.WatchKeys{Call: c, Dir: kv.prefix + dir, After: after}
			}))
			if err == nil && len(changes.Changes) == 0 { // all is gone, or nothing is there; or a bad service
				err = pause.For(ctx, wait)
				wait = min(2*wait, lastRetry)
			}
			if err != nil {
				yield(KeyEvent{}, err)
				return
			}
			after = changes.Revision
			for _, c := range append(forgotten(known, changes), changes.Changes...) {
				e := KeyEvent{Entry: c.Entry, Deleted: c.Deleted, Revision: c.Revision}
				e.Key = strings.TrimPrefix(e.Key, kv.prefix)
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// forgotten brings known, the keys that a watcher was told of, up to date, and returns those that are
// gone without a word: a watcher that is far behind is told only what is there.
func forgotten(known map[string]bool, c coord.Changes) []coord.Change {
	var gone []coord.Change
	if c.Reset {
		there := make(map[string]bool, len(c.Changes))
		for _, ch := range c.Changes {
			there[ch.Key] = true
		}
		for _, key := range slices.Sorted(maps.Keys(known)) {
			if !there[key] {
				gone = append(gone, coord.Change{Entry: coord.Entry{Key: key}, Revision: c.Revision, Deleted: true})
				delete(known, key)
			}
		}
	}
	for _, ch := range c.Changes {
		if ch.Deleted {
			delete(known, ch.Key)
		} else {
			known[ch.Key] = true
		}
	}
	return gone
}

func value(result coord.Result, err error) ([]byte, error) {
	v, err := as[coord.Value](result, err)
	return v.Value, err
}
