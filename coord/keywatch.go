package coord

import (
	"math"
	"slices"
	"strings"

	"github.com/serry-dev/serry"
)

// changes is the recent history of the store, for those who watch keys. Every change has a
// revision; the oldest are forgotten, and who asks for them is told to start anew.
type changes struct {
	revision int64
	oldest   int64 // everything after this revision is in log
	log      []Change
	watchers waiters
}

// keyChanged notes a change and tells everybody who watches it.
func (m *Machine) keyChanged(e Entry, deleted bool) {
	c := &m.ep.changes
	c.revision++
	c.log = append(c.log, Change{Entry: e, Revision: c.revision, Deleted: deleted})
	if len(c.log) >= 2*m.cfg.Limits.Changes {
		c.log = slices.Clone(c.log[len(c.log)-m.cfg.Limits.Changes:])
		c.oldest = c.log[0].Revision - 1
	}
	if c.watchers.live() == 0 {
		return
	}
	for _, w := range c.watchers.take() {
		if inDir(e.Key, w.key) {
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

// changesSince collects what changed below dir after a revision. Who is too far behind, or comes
// from another epoch, gets all that is there.
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
	from := len(c.log) - int(c.revision-after)
	for _, ch := range c.log[max(from, 0):] {
		if inDir(ch.Key, dir) {
			found.Changes = append(found.Changes, ch)
		}
	}
	return found
}

// inDir says whether a key lies below a directory; everything lies below the empty one.
func inDir(key, dir string) bool {
	return dir == "" || len(key) > len(dir) && key[len(dir)] == '/' && strings.HasPrefix(key, dir)
}
