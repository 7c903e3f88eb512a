package detect

import (
	"maps"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// Evidence against a lost task, in words that reach every survivor (C-LOST-3).
const (
	ConnectionClosed = "connection closed"
	NotReading       = "does not read"      // the server closed the connection (F-35)
	StreamNotResumed = "stream not resumed" // by a client of serry's own
	HostSilent       = "host silent"
	ProcessExited    = "process exited: " // and how

	// ToldToEnd follows how a process ended whose launcher had told it to. That is no failure of its own (D-RC-3).
	ToldToEnd = ", after it was told to end"
)

const (
	// resumeGrace is how long a client of serry's own may take to come back: it is made to live through
	// a broken connection (C-LOST-3).
	resumeGrace = 4 * time.Second

	// exitGrace is how long the exit of a process may be seen before the end of its connections. The
	// kernel closes those first; it takes longer only where a child of the process holds them, too.
	exitGrace = coord.Time(time.Second)

	// maxLateness is how late a detector may run before it takes the fault to be its own (C-LOST-6).
	maxLateness = time.Second
)

// Late says whether what was due happens so late that this process cannot have run in between.
func Late(now, due coord.Time) bool { return time.Duration(now-due) > maxLateness }

// A link is what is known of how one life is connected.
type link struct {
	open    int  // connections that carry the life
	resumes bool // a client of serry's own: it resumes a broken stream
	polling bool // the server has not answered the life's last error poll
	waiting int  // registrations of the life that wait

	exit *exit // a process was seen to exit while connections carried the life; or nil

	// With open == 0.
	since coord.Time // when the last connection ended
	entry uint64     // in the list of closings
	broke string     // the evidence in that, or empty: the life was replaced on the connection
	over  bool       // the client said goodbye, so it does not come back
}

// An exit is the word of a witness that is believed until a time.
type exit struct {
	cause string // empty: a good end
	until coord.Time
}

// closings are lives that lost their last connection, the oldest first. All have the same grace, so the
// first one is always the next to fall due.
type closings struct {
	grace coord.Time // set once
	list  []closing
}

// A closing is one time that a life lost its last connection. A life that came back, and perhaps went
// again, has another entry by then, so that an older one does not speak for it.
type closing struct {
	life  serry.Life
	at    coord.Time
	entry uint64
}

// closings is the list for a life with such a link.
func (d *Detector[H]) closings(n *link) *closings {
	if n.resumes {
		return &d.closed[1]
	}
	return &d.closed[0]
}

// Attached says that one more connection carries l. resumes is true for a client of serry's own.
func (d *Detector[H]) Attached(l serry.Life, resumes bool) {
	n := d.links[l]
	if n == nil {
		n = new(link)
		d.links[l] = n
	}
	n.resumes = resumes // an awaited life was only assumed to
	n.open++
	n.over = false
	d.notIdle(l)
}

// Detached says that a connection does not carry l any more. With evidence the connection has ended;
// without, another life of the task has taken it over.
func (d *Detector[H]) Detached(l serry.Life, evidence string, now coord.Time) {
	n := d.links[l]
	if n == nil {
		return
	}
	if n.open--; n.open > 0 {
		return
	}
	d.close(l, n, now, evidence)
	if evidence != "" {
		d.believe(l, n, now)
	}
}

// A Report is the word of a relay that the last local connection of a life has closed, with its error poll
// unanswered.
type Report struct {
	serry.Life
	Resumes  bool // a client of serry's own, which may come back on another connection
	Evidence string
}

// Reported takes a report. This server may have seen neither the connection nor the poll, because both were
// made to a former leader, so the report stands for both (A-SIDE-12). Where another connection carries the
// life, only the poll counts. A server that saw the connection close itself lets its own grace run.
func (d *Detector[H]) Reported(r Report, now coord.Time) {
	if !d.connected(r.Life) {
		return
	}
	n := d.links[r.Life]
	if n == nil {
		n = new(link)
	}
	running := n.broke != "" && n.resumes == r.Resumes && (n.polling || r.Resumes)
	n.polling = true
	if n.open > 0 || running {
		return
	}
	n.resumes, n.over = r.Resumes, false
	d.notIdle(r.Life)
	d.close(r.Life, n, now, r.Evidence)
}

// close starts the grace of a life that no connection carries any more.
func (d *Detector[H]) close(l serry.Life, n *link, now coord.Time, evidence string) {
	d.links[l] = n
	d.entries++
	n.since, n.broke, n.entry = now, evidence, d.entries
	c := d.closings(n)
	c.list = append(c.list, closing{l, now, n.entry})
}

// Polled says whether the error poll of l is left without an answer. A poll that the client withdrew
// stays unanswered (C-LOST-4).
func (d *Detector[H]) Polled(l serry.Life, unanswered bool) {
	if n := d.links[l]; n != nil {
		n.polling = unanswered
	}
}

// Registering counts registrations of l that wait: by is 1 or -1. A life that waits for its registration
// does not depart, although it is not connected yet: it waits for other tasks, perhaps for hours.
func (d *Detector[H]) Registering(l serry.Life, by int) {
	if n := d.links[l]; n != nil {
		n.waiting += by
	}
}

// registers says whether a registration of l waits.
func (d *Detector[H]) registers(l serry.Life) bool {
	n := d.links[l]
	return n != nil && n.waiting > 0
}

// forget drops the link of a life that no connection carries. A life that a connection carries keeps its link,
// because the end of that connection will be counted.
func (d *Detector[H]) forget(l serry.Life) {
	if n := d.links[l]; n != nil && n.open == 0 {
		delete(d.links, l)
		d.notIdle(l)
	}
}

// Deadline says when the next grace ends, if one runs.
func (d *Detector[H]) Deadline() (at coord.Time, ok bool) {
	for i := range d.closed {
		if c := &d.closed[i]; len(c.list) > 0 {
			if due := c.list[0].at + c.grace; !ok || due < at {
				at, ok = due, true
			}
		}
	}
	return at, ok
}

// Tick ends the graces that are over. If that comes much later than it should, this process was held up,
// and so was every client that wanted to come back: all get a new grace (C-LOST-6).
func (d *Detector[H]) Tick(now coord.Time) {
	if due, ok := d.Deadline(); ok && Late(now, due) {
		d.renew(now)
	}
	var found []suspect
	for i := range d.closed {
		c := &d.closed[i]
		for len(c.list) > 0 && c.list[0].at+c.grace <= now {
			l := c.list[0]
			c.list = c.list[1:]
			if n := d.links[l.life]; n != nil && n.open == 0 && n.entry == l.entry {
				found = append(found, n.suspect(l.life))
			}
		}
	}
	d.suspect(found)
}

// suspect says what it means that no connection carries l any more. A stock client dies when its error
// poll breaks; without one it may live on (C-LOST-4).
func (n *link) suspect(l serry.Life) suspect {
	if n.resumes {
		return suspect{l, n.broke != "", StreamNotResumed}
	}
	return suspect{l, n.broke == NotReading || n.broke != "" && n.polling, n.broke}
}

// renew lets all graces begin again. The order of the lists stays: all entries of a list have the same time.
func (d *Detector[H]) renew(now coord.Time) {
	for i := range d.closed {
		for j := range d.closed[i].list {
			c := &d.closed[i].list[j]
			if n := d.links[c.life]; n != nil && n.entry == c.entry {
				n.since = now
			}
			c.at = now
		}
	}
}

// Exited takes the word of a witness that the process of l has ended. An empty cause is a good end.
//
// A life with an incarnation is over at once: the witness saw the process that carried it (A-SIDE-16).
// Without one the witness knows only the number of the task. Then it means the present life, but not
// while a connection carries that: another process may have taken the number for itself, as a program
// may (A-ATT-11). The word is remembered for a moment, until the connection ends, too.
func (d *Detector[H]) Exited(l serry.Life, cause string, now coord.Time) {
	t := d.Task(l.Task)
	if t == nil || t.Incarnation == 0 || l.Incarnation != 0 && l != t.Life {
		return
	}
	if n := d.links[t.Life]; l.Incarnation == 0 && n != nil && n.open > 0 && !d.adrift(t.Life) {
		n.exit = &exit{cause, now + exitGrace}
		return
	}
	d.exited(t.Life, cause)
}

// believe acts on an exit that was seen a moment ago, now that no connection carries l.
func (d *Detector[H]) believe(l serry.Life, n *link, now coord.Time) {
	if e := n.exit; e != nil && e.until >= now {
		n.exit = nil
		d.exited(l, e.cause)
	}
}

// exited ends a life whose process has ended: lost or left, and in any case departed.
func (d *Detector[H]) exited(l serry.Life, cause string) {
	if cause != "" {
		d.suspect([]suspect{{l, true, ProcessExited + cause}})
	} else {
		d.pending = append(d.pending, conclusion{event: coord.Exited{Tasks: []serry.Life{l}}})
	}
	d.pending = append(d.pending, conclusion{departures: []serry.Life{l}})
}

// sorted lists lives in order, because the order of a map must not show in an event.
func sorted(lives map[serry.Life]bool) []serry.Life {
	return slices.SortedFunc(maps.Keys(lives), serry.Life.Compare)
}
