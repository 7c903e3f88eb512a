package coord

import (
	"math"
	"strings"

	"github.com/serry-dev/serry"
)

// changes is the recent history of the store, for those who watch keys: which key changed at
// which revision. Values are not kept; a watcher hears the present one. The oldest changes are
// forgotten, and who asks for them is told to start anew.
type changes struct {
	revision int64
	oldest   int64 // everything after this revision is in log
	log      []keyChange
	bytes    int // of the keys in log
	watchers waiters
}

type keyChange struct {
	key      string
	revision int64
}

// maxChangeBytes bounds the keys in the history together.
const maxChangeBytes = 16 << 20

// keyChanged notes a change and tells everybody who watches it.
func (m *Machine) keyChanged(key string) {
	c := &m.ep.changes
	c.revision++
	m.touch()
	c.log = append(c.log, keyChange{key, c.revision})
	c.bytes += len(key)
	for len(c.log) > m.cfg.Limits.Changes || c.bytes > maxChangeBytes && len(c.log) > 0 {
		c.bytes -= len(c.log[0].key)
		c.oldest = c.log[0].revision
		c.log[0] = keyChange{}
		c.log = c.log[1:]
	}
	if c.watchers.live() == 0 {
		return
	}
	for _, w := range c.watchers.take() {
		if inDir(key, w.key) {
			m.answer(w, m.changesSince(w.key, w.after), nil)
		} else {
			c.watchers.add(w)
		}
	}
}

// watchKeys answers at once where something has changed since, and else when it does.
func (m *Machine) watchKeys(w *waiter, ev WatchKeys) {
	if err := m.checkKeyCall(w, ev.Dir); err != nil {
		m.answer(w, nil, err)
		return
	}
	dir := normalise(ev.Dir)
	found := m.changesSince(dir, ev.After)
	var size int64
	for _, c := range found.Changes {
		size += int64(len(c.Key) + len(c.Value))
	}
	switch {
	case size > math.MaxInt32:
		m.answer(w, nil, &serry.LimitError{Limit: "reply-bytes", Max: math.MaxInt32})
	case found.Reset || len(found.Changes) > 0:
		m.answer(w, found, nil)
	case m.stopped:
		m.answer(w, nil, serry.ErrStopping)
	default:
		if err := m.mayWait(w); err != nil {
			m.answer(w, nil, err)
			return
		}
		w.key, w.after = dir, ev.After
		m.ep.changes.watchers.add(w)
		m.hold(w, waitKeys)
	}
}

// changesSince tells the present state of every key below dir that changed after a revision. Who
// is too far behind, or comes from another epoch, gets all that is there.
func (m *Machine) changesSince(dir string, after int64) Changes {
	c := &m.ep.changes
	found := Changes{Revision: c.revision}
	if after < c.oldest || after > c.revision {
		found.Reset = true
		m.ep.keys.tree.Ascend(func(e Entry) bool {
			if inDir(e.Key, dir) {
				found.Changes = append(found.Changes, Change{Entry: e, Revision: c.revision})
			}
			return true
		})
		return found
	}
	recent := c.log[len(c.log)-int(c.revision-after):]
	last := make(map[string]int64, len(recent))
	for _, ch := range recent {
		last[ch.key] = ch.revision
	}
	for _, ch := range recent {
		if last[ch.key] != ch.revision || !inDir(ch.key, dir) {
			continue
		}
		e, exists := m.ep.keys.tree.Get(Entry{Key: ch.key})
		e.Key = ch.key
		found.Changes = append(found.Changes, Change{Entry: e, Revision: ch.revision, Deleted: !exists})
	}
	return found
}

// inDir says whether a key lies below a directory; everything lies below the empty one.
func inDir(key, dir string) bool {
	return dir == "" || len(key) > len(dir) && key[len(dir)] == '/' && strings.HasPrefix(key, dir)
}
