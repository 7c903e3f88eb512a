package match_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// A world has two processes, in virtual time, and what lies between them. Each process has a machine for its present
// pair of lives; those of earlier lives go on until they have heard that they are over.
type world struct {
	rand    *rand.Rand
	planted plant.Faults
	now     match.Time
	queue   events
	seq     uint64
	present *pair
	pairs   []*pair
	next    match.Ref
	loss    int  // how many messages of a hundred are lost
	healed  bool // nothing is lost any more
	tame    bool // nothing was ever lost, cut or killed
	trace   *strings.Builder
	broken  error // the first promise that was broken
}

// A pair is two lives.
type pair struct {
	world   *world
	ends    [2]*end
	session int // of the connections that there are now, or 0
	last    int
	over    bool // one of the lives has ended
}

// An end is one life of a pair, with what its engine has under way.
type end struct {
	pair    *pair
	name    string
	m       *match.Machine
	peer    *end
	session int // that this life knows of, or 0
	dead    bool
	lost    bool // it was told that the other one is
	ops     map[match.Ref]*op
	alarm   match.Time
}

// An op is a half of a transfer as the engine and the program see it.
type op struct {
	match.Op
	posted    match.Time
	ends      []match.Verdict
	endedAt   match.Time
	corrected *match.Verdict
	wishedAt  match.Time   // when the program cancelled it, or it failed; Never if it did not
	content   []match.Ref  // of a receive: for each byte, the send that it came from
	moving    bool         // bytes are moved
	left      match.Ranges // of a send: what has to leave
	number    match.Number
	released  bool // of a send: the receiver must not read its memory any more
	readied   bool // its memory can be used
}

func newWorld(seed uint64, planted plant.Faults) *world {
	w := &world{rand: rand.New(rand.NewPCG(seed, 22)), planted: planted, tame: true}
	w.loss = []int{0, 0, 5, 25}[w.rand.IntN(4)]
	w.begin()
	return w
}

// begin starts a pair of lives that have no contact.
func (w *world) begin() {
	p := &pair{world: w}
	for i, name := range []string{"a", "b"} {
		p.ends[i] = &end{pair: p, name: name, ops: make(map[match.Ref]*op), alarm: match.Never}
		p.ends[i].m = match.New(match.Config{Odd: i == 0, Peer: []string{"b", "a"}[i], Carry: 50, Planted: w.planted})
	}
	p.ends[0].peer, p.ends[1].peer = p.ends[1], p.ends[0]
	w.present = p
	w.pairs = append(w.pairs, p)
}

func (w *world) breaks(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("at %v: %s", w.now, fmt.Sprintf(format, args...))
	}
}

// An event is something that happens later.
type event struct {
	at  match.Time
	seq uint64
	do  func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, do})
}

// run lets events happen up to a time.
func (w *world) run(until match.Time) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.broken == nil {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.do()
	}
	w.now = max(w.now, until)
}

// delay is a random time, mostly short.
func (w *world) delay() time.Duration {
	d := time.Duration(w.rand.IntN(2000)) * time.Microsecond
	if w.rand.IntN(20) == 0 {
		d += time.Duration(w.rand.IntN(800)) * time.Millisecond
	}
	return d
}

// up connects the two lives, each of which hears of it at its own time.
func (p *pair) up() {
	if p.over || p.session != 0 {
		return
	}
	p.last++
	p.session = p.last
	s := p.session
	for _, e := range p.ends {
		p.world.after(p.world.delay(), func() { e.hearOf(s) })
	}
}

// hearOf tells a life of connections, unless it knows of them or they are gone.
func (e *end) hearOf(session int) {
	if e.dead || e.session >= session || e.pair.session != session {
		return
	}
	e.hearCut(e.session)
	e.session = session
	e.log("up")
	e.m.Up(e.pair.world.now)
	e.perform()
}

// cut ends the connections. Everything under way is lost; each life hears of it at its own time.
func (p *pair) cut(slow bool) {
	if p.session == 0 {
		return
	}
	p.world.tame = false
	s := p.session
	p.session = 0
	for _, e := range p.ends {
		d := p.world.delay()
		if slow {
			d += time.Duration(p.world.rand.IntN(8000)) * time.Millisecond
		}
		p.world.after(d, func() { e.hearCut(s) })
	}
}

// hearCut tells a life that connections are gone: its engine moves nothing any more.
func (e *end) hearCut(session int) {
	if e.dead || session == 0 || e.session != session {
		return
	}
	e.session = 0
	e.log("down")
	for _, o := range e.ops {
		o.moving = false
	}
	e.m.Down(e.pair.world.now)
	e.perform()
}

// kill ends a life, and begins a new pair. The other life hears of it later.
func (w *world) kill(victim int) {
	p := w.present
	w.tame = false
	p.over = true
	p.session = 0
	p.ends[victim].dead = true
	other := p.ends[1-victim]
	w.after(w.delay()+time.Duration(w.rand.IntN(4000))*time.Millisecond, func() {
		other.lost = true
		other.hearCut(other.session)
		other.log("lose")
		other.m.Lose(w.now, match.Verdict{Code: match.Unavailable, Text: "peer " + other.peer.name + " is lost"})
		other.perform()
	})
	w.begin()
}

// post adds an operation to a life.
func (e *end) post(o match.Op) (*op, error) {
	w := e.pair.world
	w.next++
	o.Ref = w.next
	state := &op{Op: o, posted: w.now, wishedAt: match.Never, readied: o.Ready}
	if !o.Send {
		state.content = make([]match.Ref, o.Shape.Bytes)
	}
	e.ops[o.Ref] = state
	err := e.m.Post(w.now, o)
	if err != nil {
		delete(e.ops, o.Ref)
		return nil, err
	}
	e.perform()
	return state, nil
}

func (e *end) log(format string, args ...any) {
	if t := e.pair.world.trace; t != nil {
		fmt.Fprintf(t, "%v %s: %s\n", e.pair.world.now, e.name, fmt.Sprintf(format, args...))
	}
}

// perform does what the machine wants, and sets the alarm.
func (e *end) perform() {
	w := e.pair.world
	for _, a := range e.m.Take() {
		switch a := a.(type) {
		case *match.Tell:
			if a.Carry {
				a.Message.Data = e.load(a.Message)
			}
			e.log("tells %v", a.Message)
			e.send(a.Message)
		case match.Take:
			e.log("takes %d bytes for %d", len(a.Data), a.Ref)
			e.take(e.ops[a.Ref])
		case match.Move:
			e.log("moves %v of %d", a.Ranges, a.Ref)
			o := e.ops[a.Ref]
			o.moving, o.left, o.number = true, a.Ranges, a.Number
			e.moveSome(o, e.session)
		case match.Expect:
			e.log("expects %v for %d", a.Ranges, a.Ref)
			o := e.ops[a.Ref]
			o.moving, o.number = true, a.Number
			e.m.Started(w.now, a.Ref)
			if a.Place.Known() {
				e.readFrom(o, a)
			}
		case match.Stop:
			e.log("stops %d", a.Ref)
			e.stop(e.ops[a.Ref], e.session)
		case match.End:
			e.log("ends %d: %v", a.Ref, a.Verdict)
			e.ops[a.Ref].released = !a.Held
			e.ended(e.ops[a.Ref], a.Verdict)
		case match.Release:
			e.log("releases %d", a.Ref)
			e.ops[a.Ref].released = true
		case match.Correct:
			e.log("corrects %d: %v", a.Ref, a.Verdict)
			v := a.Verdict
			e.ops[a.Ref].corrected = &v
		}
	}
	if at := e.m.Deadline(); at != e.alarm && at < match.Never {
		e.alarm = at
		w.after(max(0, at-w.now), func() {
			if !e.dead && e.alarm == at {
				e.alarm = match.Never
				e.m.Advance(w.now)
				e.perform()
			}
		})
	}
}

// ended checks an end: it is the first one, and the engine moves nothing.
func (e *end) ended(o *op, v match.Verdict) {
	o.ends = append(o.ends, v)
	o.endedAt = e.pair.world.now
	if len(o.ends) > 1 {
		e.pair.world.breaks("%s: transfer %v ended %d times: %v", e.name, o.ID, len(o.ends), o.ends)
	}
}

// send gives a message to the medium, which may lose it, double it, or let others overtake it.
func (e *end) send(m match.Message) {
	w, session := e.pair.world, e.session
	copies := 1
	if !w.healed {
		switch n := w.rand.IntN(100); {
		case n < w.loss:
			copies = 0
			w.tame = false
		case n < w.loss+3:
			copies = 2
		}
	}
	for range copies {
		w.after(w.delay(), func() {
			if e.pair.session != session || e.peer.dead {
				return
			}
			e.peer.hearOf(session)
			e.peer.m.Receive(w.now, m)
			e.peer.perform()
		})
	}
}

// load reads the data of a send into an offer.
func (e *end) load(m match.Message) []byte {
	ref, ok := e.m.Sender(m.Number)
	if !ok || len(e.ops[ref].ends) > 0 {
		e.pair.world.breaks("%s: memory of transfer %v is read after its end", e.name, m.ID)
		return nil
	}
	e.ops[ref].number = m.Number
	return make([]byte, m.Shape.Bytes)
}

// take writes what an offer carried into the memory of a receive.
func (e *end) take(o *op) {
	if len(o.ends) > 0 || o.moving {
		e.pair.world.breaks("%s: memory of transfer %v is written after its end, or while its bytes move", e.name, o.ID)
		return
	}
	source := e.other(o)
	if source == nil || source.number == 0 {
		e.pair.world.breaks("%s: transfer %v takes data that no send has", e.name, o.ID)
		return
	}
	for i := range o.content {
		o.content[i] = source.Ref
	}
}

// moveSome sends a piece of a transfer, and the rest later.
func (e *end) moveSome(o *op, session int) {
	w := e.pair.world
	if !o.moving || e.session != session || e.dead {
		return
	}
	if len(o.ends) > 0 {
		w.breaks("%s: memory of transfer %v is read after its end", e.name, o.ID)
		return
	}
	if !o.readied { // the engine has prepared to send, and waits for the data
		w.after(time.Millisecond, func() { e.moveSome(o, session) })
		return
	}
	r := o.left[0]
	piece := match.Range{From: r.From, To: min(r.To, r.From+1+int64(w.rand.IntN(8)))}
	if o.left = o.left[1:]; piece.To < r.To {
		o.left = append(match.Ranges{{From: piece.To, To: r.To}}, o.left...)
	}
	w.after(w.delay(), func() { e.peer.arrives(o, piece, session) })
	if len(o.left) > 0 {
		w.after(w.delay(), func() { e.moveSome(o, session) })
		return
	}
	o.moving = false
	w.after(0, func() { // the engine is told a moment later
		if !e.dead && e.session == session && !o.moving {
			e.m.Sent(w.now, o.Ref)
			e.perform()
		}
	})
}

// arrives writes a piece into the memory of its receive, if the link has memory for it.
func (e *end) arrives(from *op, piece match.Range, session int) {
	w := e.pair.world
	if e.dead || e.session != session || e.pair.session != session {
		return
	}
	for _, o := range e.ops {
		if o.Send || o.number != from.number || !o.moving {
			continue
		}
		if len(o.ends) > 0 {
			w.breaks("%s: memory of transfer %v is written after its end", e.name, o.ID)
			return
		}
		for i := piece.From; i < piece.To; i++ {
			o.content[i] = from.Ref
		}
		e.m.Arrived(w.now, o.Ref, piece)
		if len(o.ends) > 0 {
			o.moving = false
		}
		e.perform()
		return
	}
}

// place tells the machine where the peer can read the data of a send. The arena has the number of the connections that it was
// lent by.
func (e *end) place(o *op) {
	if e.dead || e.session == 0 || len(o.ends) > 0 {
		return
	}
	e.m.Place(e.pair.world.now, o.Ref, match.Place{Arena: uint64(e.session), Offset: int64(o.Ref)})
	e.perform()
}

// readFrom begins to copy the data of a receive from the memory of the sender, or finds that it cannot.
func (e *end) readFrom(o *op, a match.Expect) {
	w, session := e.pair.world, e.session
	if a.Place.Arena != uint64(session) || w.rand.IntN(5) == 0 {
		w.after(w.delay(), func() {
			if !e.dead && e.session == session && o.moving {
				e.m.Unreadable(w.now, o.Ref)
				e.perform()
			}
		})
		return
	}
	source := e.peer.ops[match.Ref(a.Place.Offset)]
	pause := []int{0, 500, 8000}[w.rand.IntN(3)]
	w.after(w.delay(), func() { e.copySome(o, source, a.Ranges, session, pause) })
}

// copySome copies a piece, and the rest later. Between pieces it pauses for up to so many milliseconds, since a process may
// get no processor for long.
func (e *end) copySome(o, source *op, left match.Ranges, session, pause int) {
	w := e.pair.world
	if !o.moving || e.session != session || e.dead {
		return
	}
	if len(o.ends) > 0 || source.released && !e.peer.dead {
		w.breaks("%s: memory of transfer %v is copied after its end here or there", e.name, o.ID)
		return
	}
	r := left[0]
	piece := match.Range{From: r.From, To: min(r.To, r.From+1+int64(w.rand.IntN(8)))}
	if left = left[1:]; piece.To < r.To {
		left = append(match.Ranges{{From: piece.To, To: r.To}}, left...)
	}
	for i := piece.From; i < piece.To; i++ {
		o.content[i] = source.Ref
	}
	o.moving = len(left) > 0
	e.m.Arrived(w.now, o.Ref, piece)
	e.perform()
	if len(left) > 0 {
		if w.healed {
			pause = 0
		}
		d := w.delay() + time.Duration(w.rand.IntN(pause+1))*time.Millisecond
		w.after(d, func() { e.copySome(o, source, left, session, pause) })
	}
}

// stop ends the movement of bytes, which takes a moment: a piece may still be on its way.
func (e *end) stop(o *op, session int) {
	w := e.pair.world
	w.after(time.Duration(w.rand.IntN(3000))*time.Microsecond, func() {
		if e.dead || e.session != session {
			return
		}
		sent := o.Send && !o.moving
		o.moving = false
		e.m.Stopped(w.now, o.Ref, sent)
		e.perform()
	})
}
