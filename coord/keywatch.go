package coord

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/google/btree"
	"github.com/serry-dev/serry"
)

// changes is the recent history of the store, for those who watch keys: which key changed at
// which revision. Values are not kept; a watcher hears the present one. The oldest changes are
// forgotten, and who asks for them is told to start anew.
//
// A watcher that waits has heard of everything below its directory, whatever the history has forgotten
// since: it waits because nothing was there to tell, and the first change ends its wait. So it is told
// that change alone, and unrelated writes cost it nothing.
type changes struct {
	revision int64
	oldest   int64 // everything after this revision is in log
	log      []keyChange
	bytes    int                      // of the keys in log
	last     *btree.BTreeG[keyChange] // of each key in log the last change, by key; nil until a watcher asks for it
	watchers map[string]*waiters      // by directory, cut to watchDepth parts
	fresh    []keyChange              // that watchers have not been told of
	listed   struct {                 // what the last watcher who had to start anew was told
		dir   string
		found Changes // of Revision; it is not used for any other
	}
}

type keyChange struct {
	key      string
	revision int64
}

const (
	// maxChangeBytes bounds the keys in the history together.
	maxChangeBytes = 16 << 20

	// watchDepth is by how many parts of their directory watchers are told apart. Those of deeper ones
	// share a list with others that begin alike. So a change looks into this many lists at most,
	// however many slashes the key has.
	watchDepth = 32
)

func newChanges() changes {
	return changes{watchers: make(map[string]*waiters)}
}

// keyChanged notes a change; notifyKeyWatchers tells of all that one call has made.
func (m *Machine) keyChanged(key string) {
	c := &m.ep.changes
	c.revision++
	m.touch()
	c.note(keyChange{key, c.revision})
	for len(c.log) > m.cfg.Limits.Changes || c.bytes > maxChangeBytes && len(c.log) > 0 {
		c.forgetOldest()
	}
	c.listed.found = Changes{}
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

// lastChanges is last, made from the log when it is first needed: most jobs have no watchers of keys, and a
// put should not cost them more.
func (c *changes) lastChanges() *btree.BTreeG[keyChange] {
	if c.last == nil {
		c.last = btree.NewG(32, func(a, b keyChange) bool { return a.key < b.key })
		for _, ch := range c.log {
			c.last.ReplaceOrInsert(ch)
		}
	}
	return c.last
}

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

// serve answers at once where something has changed since, and else when it does.
func (ev WatchKeys) serve(m *Machine, w *waiter) {
	if err := m.checkKeyCall(w, ev.Dir); err != nil {
		m.answer(w, nil, err)
		return
	}
	dir := normalise(ev.Dir)
	found := m.changesSince(dir, ev.After)
	switch {
	case found.Reset || len(found.Changes) > 0:
		m.answerChanges([]*waiter{w}, found)
	case m.stopped:
		m.answer(w, nil, serry.ErrStopping)
	default:
		if err := m.mayWait(w); err != nil {
			m.answer(w, nil, err)
			return
		}
		w.key = dir
		m.ep.changes.listOf(dir).add(w)
		m.hold(w, waitKeys)
	}
}

// answerChanges tells some watchers the same, if a message can carry it.
func (m *Machine) answerChanges(to []*waiter, found Changes) {
	var size int64
	for _, c := range found.Changes {
		size += int64(len(c.Key) + len(c.Value))
	}
	var err error
	var result Result = found
	if size > math.MaxInt32 {
		result, err = nil, &serry.LimitError{Limit: "reply-bytes", Max: math.MaxInt32}
	}
	for _, w := range to {
		m.answer(w, result, err)
	}
}

// changesSince tells the present state of every key below dir that changed after a revision, oldest
// change first. Who is too far behind, or comes from another epoch, gets all that is there.
func (m *Machine) changesSince(dir string, after int64) Changes {
	c := &m.ep.changes
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

// change is the present state of a key that changed.
func (m *Machine) change(ch keyChange) Change {
	e, exists := m.ep.keys.tree.Get(Entry{Key: ch.key})
	e.Key = ch.key
	return Change{Entry: e, Revision: ch.revision, Deleted: !exists}
}

// listing is all that is below a directory, for those who must start anew. After a restart they come
// together, mostly for the same one, so the last listing is kept until a key changes.
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

// watchedAs is a directory up to watchDepth.
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

// notifyKeyWatchers answers everybody who watches what a call has changed.
func (m *Machine) notifyKeyWatchers() {
	c := &m.ep.changes
	if len(c.fresh) == 0 {
		return
	}
	var order []string // of lists with something to tell, for the order of replies
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

// dirsOf goes through the directories that a key lies in, up to watchDepth, from the root on.
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

// tellWatchers answers a list of watchers. All who watch the same directory share one result.
func (m *Machine) tellWatchers(at string, changed []keyChange) {
	c := &m.ep.changes
	list := c.watchers[at]
	delete(c.watchers, at)
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
		if len(found.Changes) > 0 {
			m.answerChanges(shared[dir], found)
			continue
		}
		for _, w := range shared[dir] { // its directory is deeper than the list tells apart
			c.listOf(dir).add(w)
		}
	}
}

// inDir says whether a key lies below a directory; everything lies below the empty one.
func inDir(key, dir string) bool {
	return dir == "" || len(key) > len(dir) && key[len(dir)] == '/' && strings.HasPrefix(key, dir)
}
