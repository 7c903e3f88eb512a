package topo

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// maxPlatforms bounds how many sets of topology keys a board keeps. A job has
// one for each platform of its clients, seldom more than two.
const maxPlatforms = 16

// A Board is the service's picture of the topologies that its tasks publish. It
// is told of every insert and delete, whatever the key, and says what has
// changed under a task that came back, and who has not published yet (P-TOP-2).
// It keeps the values it is given and must not find them changed.
type Board struct {
	tasks     int
	platforms map[Keys]*platform
	records   map[string][]byte // by key
}

type platform struct {
	first  time.Duration // when its first local topology came
	global []byte        // or nil
	posts  map[Task]*post
}

// A post is the latest thing that a task has said.
type post struct {
	value, record []byte
	incarnation   serry.Incarnation
	at            time.Duration
}

// NewBoard makes a board for a job of that many tasks.
func NewBoard(tasks int) *Board {
	return &Board{tasks: tasks, platforms: map[Keys]*platform{}, records: map[string][]byte{}}
}

// A Write is one insert as the service saw it, whether it was stored, taken for
// a republish, or refused because the key was there: a client of jaxlib goes on
// after that, so what it offered is what it runs on.
type Write struct {
	At          time.Duration // of the service's time
	Key         string
	Value       []byte
	Incarnation serry.Incarnation // of the writer, or 0
}

// Insert takes note of a write and returns what it shows, often nothing.
func (b *Board) Insert(w Write) []Event {
	if topologyFamily(w.Key) == identityFamily {
		if len(b.records) < b.tasks*maxPlatforms {
			b.records[w.Key] = w.Value
		}
		return nil
	}
	keys, task, ok := parseKey(w.Key)
	if !ok || int(task) >= b.tasks {
		return nil
	}
	p := b.platforms[keys]
	if p == nil {
		if len(b.platforms) == maxPlatforms {
			return nil
		}
		p = &platform{first: w.At, posts: map[Task]*post{}}
		b.platforms[keys] = p
	}
	if task < 0 {
		if p.global == nil {
			p.global = w.Value
		}
		return nil
	}
	now := &post{w.Value, b.records[keys.Identity(task)], w.Incarnation, w.At}
	was := p.posts[task]
	p.posts[task] = now
	return b.changes(w.Key, task, was, now)
}

func (b *Board) changes(key string, task Task, was, now *post) []Event {
	local, err := ParseLocal(now.value)
	if err != nil {
		return []Event{{Task: task, Change: Damaged, Field: key, Now: err.Error()}}
	}
	if was == nil {
		return nil
	}
	former, err := ParseLocal(was.value)
	if err != nil { // told when it came
		return nil
	}
	return Changes(Publication{former, was.readRecord(key)}, Publication{local, now.readRecord(key)})
}

func (p *post) readRecord(key string) *TaskRecord {
	if p.record == nil {
		return nil
	}
	r, _ := ParseRecord(key, p.record) // nil if it cannot be read: then nothing is known
	return r
}

// Delete takes note that a key is gone, as when an operator clears a platform so
// that a job with other devices can start.
func (b *Board) Delete(key string) {
	delete(b.records, key)
	keys, task, ok := parseKey(key)
	p := b.platforms[keys]
	if !ok || p == nil {
		return
	}
	if task < 0 {
		p.global = nil
	} else {
		delete(p.posts, task)
	}
	if p.global == nil && len(p.posts) == 0 {
		delete(b.platforms, keys)
	}
}

// A Standing is how far the tasks have come on one platform.
type Standing struct {
	Keys      Keys
	Published []Published
	Missing   []Task        // sorted
	Waited    time.Duration // since the first task published; 0 when none is missing
	Global    bool          // task 0 has published the topology of all
}

// Published is one task's part in a [Standing].
type Published struct {
	Task        Task
	Incarnation serry.Incarnation
	At          time.Duration
	Devices     int // -1 if what it published cannot be read
}

// Standings reports on every platform, by name.
func (b *Board) Standings(now time.Duration) []Standing {
	var all []Standing
	for keys, p := range b.platforms {
		s := Standing{Keys: keys, Global: p.global != nil}
		for t := range Task(b.tasks) {
			post, ok := p.posts[t]
			if !ok {
				s.Missing = append(s.Missing, t)
				s.Waited = now - p.first
				continue
			}
			devices := -1
			if l, err := ParseLocal(post.value); err == nil {
				devices = len(l.Devices)
			}
			s.Published = append(s.Published, Published{t, post.incarnation, post.at, devices})
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Standing) int {
		return cmp.Or(cmp.Compare(a.Keys.Prefix, b.Keys.Prefix), cmp.Compare(a.Keys.Platform, b.Keys.Platform))
	})
	return all
}

// Topology returns the published topology of a platform, or nil.
func (b *Board) Topology(keys Keys) (*Topology, error) {
	p := b.platforms[keys]
	if p == nil || p.global == nil {
		return nil, nil
	}
	g, err := ParseGlobal(p.global)
	if err != nil {
		return nil, damaged(keys.Global(), err)
	}
	return Read(g)
}

// Records says what each task of a published topology runs on, by number: what
// the task said itself, and what the topology knows. Device ids are those of
// the topology. It is nil where none is published.
func (b *Board) Records(keys Keys) ([]TaskRecord, error) {
	t, err := b.Topology(keys)
	if t == nil || err != nil {
		return nil, err
	}
	records := make([]TaskRecord, 0, len(t.tasks))
	for _, task := range t.Tasks() {
		r := TaskRecord{Task: task, Tasks: b.tasks}
		key := keys.Identity(task)
		if said := (&post{record: b.records[key]}).readRecord(key); said != nil {
			r = *said
			r.Task = task
		}
		r.adopt(keys.Platform, t.byTask[task])
		records = append(records, r)
	}
	return records, nil
}

// WantsKey reports whether a [Board] makes anything of a key.
func WantsKey(key string) bool {
	switch topologyFamily(key) {
	case localFamily, globalFamily, identityFamily:
		return true
	}
	return false
}

// parseKey takes a topology key apart. Task is -1 for a global one.
func parseKey(key string) (keys Keys, task Task, ok bool) {
	parts := strings.SplitN(key, "/", 4)
	family := topologyFamily(key)
	if len(parts) < 2 || parts[1] == "" {
		return Keys{}, 0, false
	}
	keys = Keys{Prefix: strings.TrimSuffix(parts[0], family), Platform: parts[1]}
	switch {
	case family == globalFamily && len(parts) == 2:
		return keys, -1, true
	case family == localFamily && len(parts) == 3:
		n, err := strconv.ParseInt(parts[2], 10, 32)
		if err != nil || n < 0 || keys.Local(Task(n)) != key {
			return Keys{}, 0, false
		}
		return keys, Task(n), true
	}
	return Keys{}, 0, false
}
