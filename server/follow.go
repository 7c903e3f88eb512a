package server

import (
	"cmp"
	"maps"
	"slices"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// evidenceHost is what the silence of a host is against all tasks behind it (C-LOST-5).
const evidenceHost = "host silent"

// followers says which hosts are to know of which lives, so that they can answer heartbeats themselves
// (A-SIDE-3). It belongs to the owner.
type followers struct {
	of    map[life][]*stream.Session
	lives map[*stream.Session]map[life]bool
}

func newFollowers() followers {
	return followers{of: make(map[life][]*stream.Session), lives: make(map[*stream.Session]map[life]bool)}
}

func (f *followers) add(l life, s *stream.Session) {
	if f.lives[s][l] {
		return
	}
	if f.lives[s] == nil {
		f.lives[s] = make(map[life]bool)
	}
	f.lives[s][l] = true
	f.of[l] = append(f.of[l], s)
}

// drop forgets a life.
func (f *followers) drop(l life) {
	for _, s := range f.of[l] {
		delete(f.lives[s], l)
	}
	delete(f.of, l)
}

// keep forgets all lives but some.
func (f *followers) keep(may func(life) bool) {
	for l := range f.of {
		if !may(l) {
			f.drop(l)
		}
	}
}

// gone forgets a host, and returns the lives that it followed.
func (f *followers) gone(s *stream.Session) []life {
	lives := f.followed(s)
	for _, l := range lives {
		if f.of[l] = slices.DeleteFunc(f.of[l], func(other *stream.Session) bool { return other == s }); len(f.of[l]) == 0 {
			delete(f.of, l)
		}
	}
	delete(f.lives, s)
	return lives
}

// followed are the lives that a host follows, in order.
func (f *followers) followed(s *stream.Session) []life {
	return slices.SortedFunc(maps.Keys(f.lives[s]), func(a, b life) int {
		return cmp.Or(a.task.Compare(b.task), cmp.Compare(a.incarnation, b.incarnation))
	})
}

// A push is word to a host that no call asked for.
type push struct {
	session  *stream.Session
	standing stream.Standing
}

// standing is what a host is told of a life: what the task shows, if it is its present one.
func (o *owner) standing(l life) stream.Standing {
	st := stream.Standing{Life: stream.Life{Task: l.task, Incarnation: l.incarnation}, Service: o.epoch.service}
	s := o.epoch.seat(l.task)
	if s == nil || s.known.incarnation != l.incarnation {
		return st
	}
	st.State = s.known.state
	if s.known.err != nil {
		st.Error = wire.MarshalError(s.known.err)
	}
	return st
}

// tellOf puts on the wave what the followers of a life are to know.
func (o *owner) tellOf(l life) {
	if hosts := o.followers.of[l]; len(hosts) > 0 {
		st := o.standing(l)
		for _, s := range hosts {
			o.wave.pushes = append(o.wave.pushes, push{s, st})
		}
	}
}

// follow notes that a life came by a connection of a host.
func (o *owner) follow(p *peer, l life) {
	if c, ok := p.conn.(*stream.Conn); ok {
		o.followers.add(l, c.Session())
	}
}

// Words of hosts to the owner.
type (
	acknowledged struct{ event coord.Acknowledge } // results have been delivered
	followed     struct {                          // a host wants to know
		session *stream.Session
		lives   []life
	}
	perished struct { // a process that carried a life has ended
		session *stream.Session
		life    life // without an incarnation: the present one
		cause   string
	}
	offline   struct{ session *stream.Session } // a host has no connection
	left      struct{ session *stream.Session } // a host said goodbye
	muted     []mutedHost                       // nothing is heard of these hosts any more
	mutedHost struct {
		session *stream.Session
		peers   []*peer
	}
)

func (w acknowledged) do(o *owner) { o.step(w.event) }

func (w followed) do(o *owner) {
	for _, l := range w.lives {
		if s := o.epoch.seat(l.task); s != nil && l.incarnation != 0 && s.known.incarnation == l.incarnation {
			o.followers.add(l, w.session)
		}
		o.wave.pushes = append(o.wave.pushes, push{w.session, o.standing(l)})
	}
}

// do ends the life at once: whoever named it saw the process that carried it (A-SIDE-16). Without a
// name it is told from another process of the same task as in [owner.exited].
func (w perished) do(o *owner) {
	s := o.epoch.seat(w.life.task)
	if s == nil {
		return
	}
	if w.life.incarnation == 0 {
		o.exited(exited{w.life.task, w.cause})
		w.life.incarnation = s.known.incarnation
	} else if s.known.incarnation == w.life.incarnation {
		o.gone(w.life, w.cause)
	}
	o.wave.pushes = append(o.wave.pushes, push{w.session, o.standing(w.life)})
}

// do believes what was said of processes that have ended, now that nothing carries their lives.
func (w offline) do(o *owner) {
	for _, l := range o.followers.followed(w.session) {
		if n := o.links.of[l]; n != nil && n.exited != nil && n.until >= o.now && o.adrift(l) {
			cause := n.exited.cause
			n.exited = nil
			o.gone(l, cause)
		}
	}
}

// adrift says whether a life came by streams of clients alone, none of which is connected now. Such a
// stream may be resumed, so that alone is no evidence; but no process is at the other end that could be
// mistaken for another.
func (o *owner) adrift(l life) bool {
	hosts := o.followers.of[l]
	return len(hosts) > 0 && !slices.ContainsFunc(hosts, func(s *stream.Session) bool {
		return s.Kind() != stream.Client || s.Online()
	})
}

// do ends the lives that came by the stream of a client which said goodbye. The grace is for streams that
// break: such a stream may be resumed, one that was closed in order may not. The goodbye of a relay says
// nothing about the tasks behind it, which may connect to another.
func (w left) do(o *owner) {
	lives := o.followers.gone(w.session)
	if w.session.Kind() != stream.Client {
		return
	}
	var found []suspect
	for _, l := range lives {
		if o.links.end(l) {
			found = append(found, suspect{life: l, lost: true, evidence: evidenceClosed})
		}
	}
	o.judge(found)
}

// do finds all lives lost that came by the silent hosts, unless a connection of another host carries
// them, too.
func (w muted) do(o *owner) {
	var found []suspect
	for _, m := range w {
		evidence := evidenceHost
		if m.session.Kind() == stream.Client {
			evidence = evidenceNotResumed
		}
		for _, p := range m.peers {
			for _, c := range p.carried() {
				o.followers.add(c.life, m.session)
			}
			o.end(ended{p, evidence})
		}
		for _, l := range o.followers.gone(m.session) {
			if n := o.links.of[l]; n == nil || n.open == 0 {
				found = append(found, suspect{life: l, lost: true, evidence: evidence})
			}
		}
	}
	o.judge(found)
}

// push queues for hosts what they are to know; flushPushes sends it.
func (p *performer) push(w *wave) {
	for i := range w.pushes {
		w.pushes[i].session.Standing(w.pushes[i].standing)
	}
}

func (w *wave) flushPushes() {
	for i := range w.pushes {
		w.pushes[i].session.Flush()
	}
}

// taskError is nil for a nil pointer, unlike the pointer itself.
func taskError(e *serry.TaskError) error {
	if e == nil {
		return nil
	}
	return e
}
