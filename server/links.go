package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// Evidence against a task whose last connection has ended, in words that reach every survivor.
const (
	evidenceClosed     = "connection closed"
	evidenceNotReading = "does not read" // F-35: the server closed it
	evidenceNotResumed = "stream not resumed"
	evidenceExited     = "process exited: " // and how
)

// resumeGrace is how long a client of our own dialect may take to come back: it is made to live
// through a broken connection (C-LOST-3).
const resumeGrace = 4 * time.Second

// links counts, for every life of a task, the connections that carry it. It belongs to the owner.
type links struct {
	of    map[life]*link
	cut   [2]cuttings   // of stock clients, and of our own
	ready []life        // lives that lost their state while nothing carried them any more
	idle  map[life]bool // connected lives that nothing carries, without evidence against them
	fresh map[life]bool // those of idle of which the machine has not been told
}

// cuttings are the lives that lost their last connection, in that order.
type cuttings struct {
	grace coord.Time // set once
	list  []cutting
}

// A link is what is known of how one life is connected.
type link struct {
	open    int        // connections that carry it
	own     bool       // it is a client of our own
	since   coord.Time // with open == 0: since when
	broke   string     // with open == 0: how the last transport ended, or empty: the life was replaced on it
	over    bool       // with open == 0: its host said goodbye, so it does not come back
	polling bool       // its last error poll was not answered by us
	waiting int        // registrations of it that wait
	exited  *exited    // its process is said to have ended, while connections carried it; or nil
	until   coord.Time // with exited: when that is not believed any more
}

// A cutting is a moment at which a life lost its last connection.
type cutting struct {
	life
	at coord.Time
}

func newLinks(grace time.Duration) *links {
	return &links{
		of:    make(map[life]*link),
		idle:  make(map[life]bool),
		fresh: make(map[life]bool),
		cut:   [2]cuttings{{grace: coord.Time(grace)}, {grace: coord.Time(max(grace, resumeGrace))}},
	}
}

// cuttings is where the cuttings of such a life are kept.
func (k *links) cuttings(n *link) *cuttings {
	if n.own {
		return &k.cut[1]
	}
	return &k.cut[0]
}

// attach notes that one more connection carries l.
func (k *links) attach(l life, own bool) {
	n := k.of[l]
	if n == nil {
		n = new(link)
		k.of[l] = n
	}
	n.own = own // what a link that awaits its life does not know before
	n.open++
	n.over = false
	k.notIdle(l)
}

// detach notes that a connection does not carry l any more. broke is the evidence if it ended.
func (k *links) detach(l life, now coord.Time, broke string) {
	n := k.of[l]
	if n == nil {
		return
	}
	if n.open--; n.open == 0 {
		n.since, n.broke = now, broke
		c := k.cuttings(n)
		c.list = append(c.list, cutting{l, now})
	}
}

// end notes that the host of l, a client of our own dialect, said goodbye, and says whether nothing
// carries l any more. What the end of a connection means for other dialects, C-LOST-4 says.
func (k *links) end(l life) bool {
	n := k.of[l]
	if n == nil || n.open > 0 || !n.own {
		return false
	}
	n.over = true
	return true
}

// exit says whether, and of what, the process of a life has ended that nothing carries any more.
func (k *links) exit(l life, now coord.Time) (cause string, ok bool) {
	n := k.of[l]
	if n == nil || n.open > 0 || n.exited == nil || n.until < now {
		return "", false
	}
	return n.exited.cause, true
}

// polled notes whether an error poll of l is left without an answer. A poll that the client
// withdrew stays unanswered (C-LOST-4).
func (k *links) polled(l life, unanswered bool) {
	if n := k.of[l]; n != nil {
		n.polling = unanswered
	}
}

// registering counts registrations of l that wait.
func (k *links) registering(l life, by int) {
	if n := k.of[l]; n != nil {
		n.waiting += by
	}
}

// waits says whether a registration of l waits.
func (k *links) waits(l life) bool {
	n := k.of[l]
	return n != nil && n.waiting > 0
}

// next says when due has something to say.
func (k *links) next() (at coord.Time, ok bool) {
	for i := range k.cut {
		if c := &k.cut[i]; len(c.list) > 0 {
			at, ok = earlier(at, ok, c.list[0].at+c.grace)
		}
	}
	return at, ok
}

// due returns the lives that nothing has carried for the grace. If that comes much later than it
// should, this process was held up, and so was whoever wanted to come back: all get a new grace
// (C-LOST-6).
func (k *links) due(now coord.Time) []suspect {
	if at, ok := k.next(); ok && late(now, at) {
		k.renew(now)
	}
	var found []suspect
	for i := range k.cut {
		c := &k.cut[i]
		for len(c.list) > 0 && c.list[0].at+c.grace <= now {
			if n := k.of[c.list[0].life]; n != nil && n.open == 0 && n.since == c.list[0].at {
				found = append(found, n.suspect(c.list[0].life))
			}
			c.list = c.list[1:]
		}
	}
	for _, l := range k.ready {
		if n := k.of[l]; n != nil && n.open == 0 {
			found = append(found, suspect{life: l})
		}
	}
	k.ready = k.ready[:0]
	return found
}

// suspect says what it means that nothing carries l any more. A stock client dies of that if its
// error poll breaks; without one it may live on (C-LOST-4).
func (n *link) suspect(l life) suspect {
	if n.own {
		return suspect{life: l, lost: n.broke != "", evidence: evidenceNotResumed}
	}
	return suspect{life: l, lost: n.broke == evidenceNotReading || n.broke != "" && n.polling, evidence: n.broke}
}

func (k *links) renew(now coord.Time) {
	for i := range k.cut {
		for j := range k.cut[i].list {
			c := &k.cut[i].list[j]
			if n := k.of[c.life]; n != nil && n.since == c.at {
				n.since = now
			}
			c.at = now
		}
	}
}

// revisit is called when the state of l has changed: if nothing carries it, it may have departed.
func (k *links) revisit(l life, now coord.Time) {
	if n := k.of[l]; n != nil && n.open == 0 && (n.over || n.since+k.cuttings(n).grace <= now) {
		k.ready = append(k.ready, l)
	}
}

// forget drops a life that has departed.
func (k *links) forget(l life) {
	if n := k.of[l]; n != nil && n.open == 0 {
		delete(k.of, l)
		k.notIdle(l)
	}
}

// forgetIdle drops the lives of a former epoch that nothing carries.
func (k *links) forgetIdle() {
	for l := range k.idle {
		k.forget(l)
	}
}

// isIdle notes a connected life that nothing carries, and notIdle takes that back.
func (k *links) isIdle(l life) {
	if !k.idle[l] {
		k.idle[l], k.fresh[l] = true, true
	}
}

func (k *links) notIdle(l life) {
	delete(k.idle, l)
	delete(k.fresh, l)
}

// A suspect is a life that a detector has something to say about.
type suspect struct {
	life
	lost     bool // reason enough to call it dead if it is connected
	evidence string
}

// judge turns suspects into verdicts. A connected task can be lost; one that has left or failed can
// only depart, and so can a life that was replaced (C-EPOCH-3).
func (o *owner) judge(found []suspect) {
	for len(found) > 0 {
		var losses []coord.Loss
		var departures []coord.Departure
		for _, f := range found {
			connected := o.connected(f.life)
			switch {
			case connected && f.lost:
				losses = append(losses, coord.Loss{Task: f.task, Incarnation: f.incarnation, Evidence: f.evidence})
			case connected:
				o.links.isIdle(f.life)
			case !connected && !o.links.waits(f.life):
				departures = append(departures, coord.Departure{Task: f.task, Incarnation: f.incarnation})
			}
		}
		o.pronounce(losses, departures)
		found = o.links.due(o.now) // who was lost may have departed by that
	}
}

// departIdle tells the machine of connected lives that nothing carries any more. They may be clients that can
// do without a connection for a while, or hosts that are cut off. So this waits until their departure decides
// something: the job has failed, and a task wants to register for the next epoch (C-EPOCH-2b). The machine is
// told of each of them once.
func (o *owner) departIdle() {
	if len(o.links.fresh) == 0 || !o.machine.Failed() {
		return
	}
	var gone []coord.Departure
	for l := range o.links.fresh {
		gone = append(gone, coord.Departure{Task: l.task, Incarnation: l.incarnation})
	}
	clear(o.links.fresh)
	slices.SortFunc(gone, func(a, b coord.Departure) int {
		return cmp.Or(a.Task.Compare(b.Task), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	o.step(coord.Departed{Tasks: gone})
}

func (o *owner) connected(l life) bool {
	s := o.epoch.seat(l.task)
	return s != nil && s.known.incarnation == l.incarnation && s.known.state == serry.Connected
}

func (o *owner) pronounce(losses []coord.Loss, departures []coord.Departure) {
	if len(losses) > 0 {
		o.stats.lost(losses)
		o.step(coord.Lost{Tasks: losses})
	}
	if len(departures) == 0 {
		return
	}
	for _, d := range departures {
		l := life{d.Task, d.Incarnation}
		if s := o.epoch.seat(d.Task); s != nil && s.known.incarnation == d.Incarnation {
			s.known.departed = true
			o.show(s)
		}
		if o.links.forget(l); o.links.of[l] == nil {
			o.followers.drop(l)
		}
	}
	o.step(coord.Departed{Tasks: departures})
}
