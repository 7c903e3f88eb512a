package coord

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/btree"
	"github.com/serry-dev/serry"
)

// changes is the recent history of the store, for clients that watch keys: which key changed at
// which revision. Values are not kept; a watcher hears the present one, so that two changes of
// one key that follow each other closely may reach it as one. The oldest changes are forgotten,
// and a watcher that asks for them is told everything that is there, marked as a new beginning.
//
// A watcher that waits has heard of everything below its directory, whatever the history has
// forgotten since: it waits because there was nothing to tell, and the first change ends its
// wait. So it is told that change alone, and unrelated writes cost it nothing.
type changes struct {
	revision int64
	oldest   int64 // everything after this revision is in log
	log      []keyChange
	bytes    int // of the keys in log

	// Of each key in log the last change, by key; nil until a watcher asks for it.
	last *btree.BTreeG[keyChange]

	watchers map[string]*waiters // by directory, cut to watchDepth parts

	// Changes that watchers have not been told of: those of the present call.
	fresh []keyChange

	// What the last watcher that had to start anew was told, for the next one. It is of Revision,
	// and is not used for any other.
	listed struct {
		dir   string
		found Changes
	}
}

// A keyChange is one write or delete of a key.
type keyChange struct {
	key      string
	revision int64
}

const (
	// maxChangeBytes bounds the keys in the history together.
	maxChangeBytes = 16 << 20

	// watchDepth is by how many parts of their directory watchers are told apart. Those of deeper
	// ones share a list with others that begin alike. So a change looks into this many lists at
	// most, however many slashes the key has.
	watchDepth = 32
)

func newChanges() changes {
	return changes{watchers: make(map[string]*waiters)}
}

// keyChanged notes a change; notifyKeyWatchers tells watchers of all changes of one call. A delete of a
// directory is one call and many changes, and its watchers hear of them in one answer.
func (m *Machine) keyChanged(key string) {
	c := &m.ep.changes
	c.revision++
	m.touch()
	c.note(keyChange{key, c.revision})
	// The history is bounded by number and by bytes, whatever keys clients use.
	for len(c.log) > m.cfg.Limits.Changes || c.bytes > maxChangeBytes && len(c.log) > 0 {
		c.forgetOldest()
	}
	c.listed.found = Changes{} // it was of the revision before
	if len(c.watchers) > 0 {
		c.fresh = append(c.fresh, keyChange{key, c.revision})
	}
}

// note adds a change to the history.
func (c *changes) note(ch keyChange) {
	c.log = append(c.log, ch)
	c.bytes += len(ch.key)
	if c.last != nil {
		c.last.ReplaceOrInsert(ch)
	}
}

// lastChanges is last, made from the log when it is first needed: most jobs have no watchers of
// keys, and a put should not cost them more.
func (c *changes) lastChanges() *btree.BTreeG[keyChange] {
	if c.last == nil {
		c.last = btree.NewG(32, func(a, b keyChange) bool { return a.key < b.key })
		for _, ch := range c.log {
			c.last.ReplaceOrInsert(ch)
		}
	}
	return c.last
}

// forgetOldest drops the oldest change. If the key has not changed since, its last change goes
// with it: who knows only older revisions starts anew in any case.
func (c *changes) forgetOldest() {
	old := c.log[0]
	c.bytes -= len(old.key)
	c.oldest = old.revision
	c.log[0] = keyChange{}
	c.log = c.log[1:]
	if c.last == nil {
		return
	}
	if last, ok := c.last.Get(old); ok && last.revision == old.revision {
		c.last.Delete(old)
	}
}

// serve answers at once where something has changed since, and else when it does. A watcher says
// the last revision that it knows, so it misses nothing between two calls.
func (ev WatchKeys) serve(m *Machine, w *waiter) (Result, error) {
	if err := m.checkKeyCall(w, ev.Dir); err != nil {
		return nil, err
	}
	dir := normalise(ev.Dir)
	found := m.changesSince(dir, ev.After)
	if found.Reset || len(found.Changes) > 0 {
		return found, found.checkSize()
	}
	if m.stopped {
		return nil, serry.ErrStopping
	}
	if err := m.mayWait(w); err != nil {
		return nil, err
	}
	w.key = dir
	m.ep.changes.listOf(dir).add(w)
	return m.hold(w, waitKeys)
}

// checkSize refuses changes that no message can carry.
func (c Changes) checkSize() error {
	var size int64
	for _, ch := range c.Changes {
		size += int64(len(ch.Key) + len(ch.Value))
	}
	return checkReplySize(size)
}

// changesSince tells the present state of every key below dir that changed after a revision,
// oldest change first. A watcher that is too far behind, or comes from another epoch, gets
// everything that is there. It looks at the keys of the directory that have changed, and at no
// others.
func (m *Machine) changesSince(dir string, after int64) Changes {
	c := &m.ep.changes
	// A revision from the future is one of another epoch: revisions begin anew with each.
	if after < c.oldest || after > c.revision {
		return m.listing(dir)
	}
	found := Changes{Revision: c.revision}
	if after == c.revision {
		return found
	}
	from := keyChange{}
	if dir != "" {
		from.key = dir + "/"
	}
	// Below a directory, keys stand in a row; of each only the last change is there.
	var recent []keyChange
	c.lastChanges().AscendGreaterOrEqual(from, func(ch keyChange) bool {
		if ch.revision > after && inDir(ch.key, dir) {
			recent = append(recent, ch)
		}
		return inDir(ch.key, dir)
	})
	slices.SortFunc(recent, func(a, b keyChange) int { return cmp.Compare(a.revision, b.revision) })
	for _, ch := range recent {
		found.Changes = append(found.Changes, m.change(ch))
	}
	return found
}

// change is the present state of a key that changed. If the key is gone by now it was deleted,
// perhaps by a later change of the same call.
func (m *Machine) change(ch keyChange) Change {
	e, exists := m.ep.keys.tree.Get(Entry{Key: ch.key})
	e.Key = ch.key
	return Change{Entry: e, Revision: ch.revision, Deleted: !exists}
}

// listing is everything below a directory, for watchers that must start anew. After a restart
// they come together, mostly for the same directory, so the last listing is kept until a key
// changes.
func (m *Machine) listing(dir string) Changes {
	c := &m.ep.changes
	if c.listed.found.Reset && c.listed.dir == dir {
		return c.listed.found
	}
	found := Changes{Revision: c.revision, Reset: true}
	m.within(dir, func(e Entry) {
		found.Changes = append(found.Changes, Change{Entry: e, Revision: c.revision})
	})
	c.listed.dir, c.listed.found = dir, found
	return found
}

// listOf finds or makes the list in which watchers of a directory wait.
func (c *changes) listOf(dir string) *waiters {
	at := watchedAs(dir)
	if c.watchers[at] == nil {
		c.watchers[at] = new(waiters)
	}
	return c.watchers[at]
}

// watchedAs is the directory under whose name a watcher waits: its own, cut to watchDepth parts.
func watchedAs(dir string) string {
	for end, parts := 0, 0; ; end++ {
		slash := strings.IndexByte(dir[end:], '/')
		if slash < 0 {
			return dir
		}
		if end, parts = end+slash, parts+1; parts == watchDepth {
			return dir[:end]
		}
	}
}

// notifyKeyWatchers answers the watchers of what a call has changed. It looks up the directories
// that a changed key lies in, and not the watchers: a write costs what it tells, however many
// others wait. Lists are answered in the order in which their first change was made, so that
// replies do not depend on map order.
func (m *Machine) notifyKeyWatchers() {
	c := &m.ep.changes
	if len(c.fresh) == 0 {
		return
	}
	// order has the lists with something to tell, in the order of their replies.
	var order []string
	told := make(map[string][]keyChange)
	for _, ch := range c.fresh {
		for dir := range dirsOf(ch.key) {
			if c.watchers[dir] == nil {
				continue
			}
			if told[dir] == nil {
				order = append(order, dir)
			}
			told[dir] = append(told[dir], ch)
		}
	}
	clear(c.fresh)
	c.fresh = c.fresh[:0]
	for _, dir := range order {
		m.tellWatchers(dir, told[dir])
	}
}

// dirsOf visits the directories that a key lies in, up to watchDepth, from the root on: "", "a"
// and "a/b" for the key "a/b/c".
func dirsOf(key string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if !yield("") {
			return
		}
		for end, parts := 0, 0; parts < watchDepth; end++ {
			slash := strings.IndexByte(key[end:], '/')
			if slash < 0 {
				return
			}
			if end, parts = end+slash, parts+1; !yield(key[:end]) {
				return
			}
		}
	}
}

// tellWatchers answers a list of watchers. All who watch the same directory share one result. A
// list may hold watchers of directories deeper than watchDepth, which are put back if nothing
// below theirs has changed.
func (m *Machine) tellWatchers(at string, changed []keyChange) {
	c := &m.ep.changes
	// The list is taken away first: watchers that are put back begin a new one.
	list := c.watchers[at]
	delete(c.watchers, at)
	// Watchers by their whole directory, in the order in which they came.
	shared := make(map[string][]*waiter)
	var order []string
	for _, w := range list.take() {
		if shared[w.key] == nil {
			order = append(order, w.key)
		}
		shared[w.key] = append(shared[w.key], w)
	}
	for _, dir := range order {
		found := Changes{Revision: c.revision}
		for _, ch := range changed {
			if inDir(ch.key, dir) {
				found.Changes = append(found.Changes, m.change(ch))
			}
		}
		err := found.checkSize()
		for _, w := range shared[dir] {
			if len(found.Changes) > 0 {
				m.answer(w, found, err)
			} else { // its directory is deeper than the list tells apart
				c.listOf(dir).add(w)
			}
		}
	}
}

// inDir says whether a key lies below a directory; everything lies below the empty one.
func inDir(key, dir string) bool {
	return dir == "" || len(key) > len(dir) && key[len(dir)] == '/' && strings.HasPrefix(key, dir)
}
