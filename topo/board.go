package topo

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/serry-dev/serry"
)

// maxPlatforms bounds how many sets of topology keys a board keeps. A job has
// one for each platform of its clients, seldom more than two.
const maxPlatforms = 16

// A Board is a picture of the topologies that the tasks of a job have published.
// It is given the stored keys and values, whatever they are, and says which task
// has not published yet and what each task runs on (P-TOP-2). It keeps the
// values, which must not change afterwards.
type Board struct {
	tasks     int
	platforms map[Keys]*platform
	records   map[string][]byte // by key
}

type platform struct {
	global    []byte // or nil
	published map[serry.TaskIndex]bool
}

// NewBoard makes a board for a job of that many tasks.
func NewBoard(tasks int) *Board {
	return &Board{tasks: tasks, platforms: map[Keys]*platform{}, records: map[string][]byte{}}
}

// Insert takes note of a stored key.
func (b *Board) Insert(key string, value []byte) {
	if topologyFamily(key) == identityFamily {
		if len(b.records) < b.tasks*maxPlatforms {
			b.records[key] = value
		}
		return
	}
	keys, task, ok := parseKey(key)
	if !ok || int(task) >= b.tasks {
		return
	}
	p := b.platforms[keys]
	if p == nil {
		if len(b.platforms) == maxPlatforms {
			return
		}
		p = &platform{published: map[serry.TaskIndex]bool{}}
		b.platforms[keys] = p
	}
	if task < 0 {
		p.global = value
	} else {
		p.published[task] = true
	}
}

// Progress says how far the tasks have come on one platform.
type Progress struct {
	Keys    Keys
	Missing []serry.TaskIndex // have not published, sorted
	Global  bool              // task 0 has published the topology of all
}

// Progress reports on every platform, by name.
func (b *Board) Progress() []Progress {
	var all []Progress
	for keys, p := range b.platforms {
		s := Progress{Keys: keys, Global: p.global != nil}
		for t := range serry.TaskIndex(b.tasks) {
			if !p.published[t] {
				s.Missing = append(s.Missing, t)
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Progress) int {
		return cmp.Or(cmp.Compare(a.Keys.Prefix, b.Keys.Prefix), cmp.Compare(a.Keys.Platform, b.Keys.Platform))
	})
	return all
}

// topology returns the published topology of a platform, or nil.
func (b *Board) topology(keys Keys) (*Topology, error) {
	p := b.platforms[keys]
	if p == nil || p.global == nil {
		return nil, nil
	}
	g, err := parseGlobal(p.global)
	if err != nil {
		return nil, damaged(keys.Global(), err)
	}
	return Read(g)
}

// Records says what each task of a published topology runs on, by number: what
// the task said itself, and what the topology knows. Device ids are those of
// the topology. It is nil where none is published.
func (b *Board) Records(keys Keys) ([]TaskRecord, error) {
	t, err := b.topology(keys)
	if t == nil || err != nil {
		return nil, err
	}
	records := make([]TaskRecord, 0, len(t.tasks))
	for _, task := range t.Tasks() {
		r := TaskRecord{Task: task, Tasks: b.tasks}
		key := keys.Identity(task)
		if said, err := ParseRecord(key, b.records[key]); err == nil { // a record that cannot be read says nothing
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
func parseKey(key string) (keys Keys, task serry.TaskIndex, ok bool) {
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
		if err != nil || n < 0 || keys.Local(serry.TaskIndex(n)) != key {
			return Keys{}, 0, false
		}
		return keys, serry.TaskIndex(n), true
	}
	return Keys{}, 0, false
}
