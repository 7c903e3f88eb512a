package launch

import (
	"encoding/json"
	"slices"
	"time"
)

// An unfolder makes of the lines of launchers what each rank does. It is a part of the meeting, and guarded by its lock.
type unfolder struct {
	known map[string][]byte     // details and programs, by digest
	held  map[string][]heldTask // what ranks do, until the digest is known
	asked map[string]tellOrder  // the launcher that has been asked what a digest means
}

// A tellOrder is when a launcher was asked.
type tellOrder struct {
	of *distant
	at time.Time
}

const (
	mostKnown = 1 << 12 // digests, and as many that are not known yet
	mostTell  = 64      // digests of an order

	tellPatience = 10 * time.Second // until the next launcher that uses a digest is asked
)

// A heldTask is what a rank does, as far as it is known.
type heldTask struct {
	lifetime
	from    *distant
	since   time.Time
	detail  string
	program string
	pid     int
	number  int // of the change, of this launcher
}

// A ran task is what a launcher has told of a process.
type ranTask struct {
	lifetime
	pid     int
	program string
	number  int // of the last change: one that is held longer than a later one does not count
}

// folded takes what a message says of what ranks do.
func (m *meeting) folded(d *distant, msg message, cfg Config) error {
	switch {
	case msg.Folded != "":
		return m.unfold(d, msg.Folded, cfg)
	case msg.Detail != "":
		return m.explained(d, msg.Detail, cfg)
	}
	return nil
}

// unfold takes a line of a launcher.
func (m *meeting) unfold(d *distant, line string, cfg Config) error {
	folds, err := readFolds(line, cfg)
	if err != nil {
		return err
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.here[d.node] != d {
		return nil
	}
	for _, o := range folds {
		for i, task := range o.ranks {
			l := lifetime{Task: task, Attempt: o.attempt, Life: o.life}
			r := d.ran[task]
			if r.lifetime != l {
				r = ranTask{lifetime: l, number: r.number}
			}
			if o.program != "" {
				r.pid, r.program = o.pids[i], o.program
			}
			r.number++
			d.ran[task] = r
			m.deliver(heldTask{lifetime: l, from: d, since: now.Add(-o.age), detail: o.detail, program: r.program, pid: r.pid, number: r.number}, cfg)
		}
	}
	return nil
}

// deliver passes on what a rank does, once it is known what its digests mean. It needs mu.
func (m *meeting) deliver(h heldTask, cfg Config) {
	u := &m.mu.unfolder
	for _, digest := range []string{h.detail, h.program} {
		if _, known := u.known[digest]; known || digest == "" {
			continue
		}
		if held, some := u.held[digest]; len(held) < 2*cfg.total() && (some || len(u.held) < mostKnown) {
			u.held[digest] = append(held, h)
			m.askFor(digest)
		}
		return
	}
	if h.from.ran[h.Task].number != h.number || m.mu.here[h.from.node] != h.from {
		return // it has changed since
	}
	var does detail
	ev := classed{lifetime: h.lifetime, PID: h.pid, Host: h.from.host, Age: time.Since(h.since), from: h.from}
	if json.Unmarshal(u.known[h.detail], &does) != nil || h.program != "" && json.Unmarshal(u.known[h.program], &ev.Program) != nil {
		return
	}
	ev.Condition, ev.Left = does.Condition, does.Left
	if ev.check(cfg) == nil {
		m.events.put(ev) // where there is no room there is worse to tell
	}
}

// askFor asks one of the launchers that use a digest what it means. It needs mu.
func (m *meeting) askFor(digest string) {
	u := &m.mu.unfolder
	if a := u.asked[digest]; a.of != nil && m.mu.here[a.of.node] == a.of && time.Since(a.at) < tellPatience {
		return
	}
	for _, h := range slices.Backward(u.held[digest]) {
		if m.mu.here[h.from.node] == h.from {
			u.asked[digest] = tellOrder{h.from, time.Now()}
			h.from.order(order{Tell: []string{digest}})
			return
		}
	}
	delete(u.asked, digest)
	delete(u.held, digest)
}

// explained takes what a launcher says that a digest means. What it was not asked for is no news.
func (m *meeting) explained(d *distant, text string, cfg Config) error {
	if len(text) > mostDetailBytes {
		return nonsense("a detail of %d bytes", len(text))
	}
	digest := foldDigest([]byte(text))
	m.mu.Lock()
	defer m.mu.Unlock()
	u := &m.mu.unfolder
	if u.asked[digest].of != d {
		return nil
	}
	if len(u.known) >= mostKnown {
		clear(u.known)
	}
	u.known[digest] = []byte(text)
	delete(u.asked, digest)
	held := u.held[digest]
	delete(u.held, digest)
	for _, h := range held {
		m.deliver(h, cfg)
	}
	return nil
}

// mostDetailBytes is how long a detail may be: its texts are cut to mostText where they come from.
const mostDetailBytes = 32 << 10

// forget asks others for what a launcher was asked that is lost. It needs mu.
func (m *meeting) forget(d *distant) {
	for _, digest := range sortedKeys(m.mu.asked) {
		if m.mu.asked[digest].of == d {
			delete(m.mu.asked, digest)
			m.askFor(digest)
		}
	}
}
