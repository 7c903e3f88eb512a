package server

import (
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/rpc"
	"github.com/serry-dev/serry/wire/stream"
)

// A wave is what must happen because of one batch, once the batch is committed.
type wave struct {
	epoch   *epoch // to publish, or nil
	shown   []showing
	greeted []*seat // by the replies
	replies []outgoing
	notes   []coord.Note
	pushes  []push            // to hosts
	done    []chan<- struct{} // orders to report as done

	// With a journal.
	records  []byte    // of the batch
	values   []laid    // that its records name
	snapshot *pictured // to save after it, or nil
}

// idle says whether nothing must happen.
func (w *wave) idle() bool {
	return w.epoch == nil && len(w.shown)+len(w.replies)+len(w.notes)+len(w.done)+len(w.records)+len(w.pushes) == 0 && w.snapshot == nil
}

// answers says whether somebody hears of a wave, so that it must not be that of a deposed leader
// (C-TERM-2).
func (w *wave) answers() bool { return len(w.replies)+len(w.done)+len(w.pushes) > 0 }

// leaves says whether this is the last wave of a leader that hands over.
func (w *wave) leaves() bool { return w.snapshot != nil && w.snapshot.saved != nil }

// A showing is a change of what handlers may know of a task.
type showing struct {
	seat *seat
	task detect.Task
}

// An outgoing is one reply to one call.
type outgoing struct {
	to     origin
	reply  coord.Reply
	kind   coord.Kind // of a call that waited
	waited coord.Time // 0 if it was answered at once
}

// A performer lets waves happen, one after the other. With a journal that is done by the goroutine
// which commits, while the owner steps the next batch already; without one by the owner itself.
type performer struct {
	handler *handler
	stats   *stats
	log     noteLog
	fanout  fanout
	touched []*peer // to flush
	streams *stream.Server
}

func newPerformer(s *Server) *performer {
	return &performer{handler: s.handler, stats: s.stats, log: noteLog{s.cfg.Log}, fanout: newFanout(), streams: s.streams}
}

// perform lets the effects of a wave happen, and empties it. Tables are published before replies
// leave, so that the first heartbeat after a registration finds its task; replies keep the order of
// the machine (C-ORD-1); each connection is flushed once (F-13).
func (p *performer) perform(w *wave) {
	p.publish(w)
	p.push(w)
	for i := range w.replies {
		p.send(&w.replies[i])
	}
	for _, to := range p.touched {
		to.inWave = false
		to.conn.Flush()
	}
	w.flushPushes()
	clear(p.touched)
	p.touched = p.touched[:0]
	p.log.notes(w.notes)
	for _, d := range w.done {
		close(d)
	}
	w.clear()
	p.fanout.endWave()
}

// publish shows handlers what the wave has changed. The time of a task that learns that it is registered
// begins now, however long the journal took.
func (p *performer) publish(w *wave) {
	for _, s := range w.shown {
		s.seat.shown.Store(&s.task)
	}
	for _, s := range w.greeted {
		s.seen.Store(int64(p.handler.clock.now()))
		s.greetings.Add(-1)
	}
	if w.epoch != nil {
		p.handler.epoch.Store(w.epoch)
		p.streams.Epoch(w.epoch.service)
	}
}

// eagerFlushBytes is the size from which on a reply is sent before the next is made, so that one
// buffer serves all that get it: ten thousand copies of a large reply are not kept at one time.
const eagerFlushBytes = 4 << 10

// send hands one reply to its transport.
func (p *performer) send(out *outgoing) {
	body, st := p.fanout.encode(out.to.shape, out.reply)
	to := out.to.peer
	out.to.stats.answered(st.Code, len(body))
	if row := out.kind.Row(); row.Meets && row.Limited() {
		p.stats.barrierWait(out.waited)
	}
	to.conn.Reply(out.to.call, body, st)
	if len(body) >= eagerFlushBytes {
		to.conn.Flush()
		return
	}
	if !to.inWave {
		to.inWave = true
		p.touched = append(p.touched, to)
	}
}

// clear makes room for the next wave and lets go of what this one pointed to.
func (w *wave) clear() {
	clear(w.shown)
	clear(w.greeted)
	clear(w.replies)
	clear(w.notes)
	clear(w.done)
	clear(w.pushes)
	clear(w.values)
	*w = wave{
		shown: w.shown[:0], greeted: w.greeted[:0], replies: w.replies[:0], notes: w.notes[:0], done: w.done[:0], pushes: w.pushes[:0],
		records: w.records[:0], values: w.values[:0],
	}
	if cap(w.replies) > 4*maxBatch {
		w.replies = nil
	}
	if cap(w.records) > 4*maxBatchBytes {
		w.records = nil
	}
}

// A fanout encodes replies, each of those that go to many only once (C-WATCH-9).
type fanout struct {
	version  int64 // of the pictures kept
	pictures map[fanoutKey]encoded
	ofWave   map[fanoutKey]encoded
}

// A fanoutKey tells which replies are the same bytes: what is said, and how the caller reads it.
type fanoutKey struct {
	shape wire.Shape
	said  any // *coord.Picture, *coord.Alive, a valueKey or a changesKey
}

type valueKey struct {
	key   string
	value *byte
	size  int
}

// A changesKey stands for changes of keys: those that the machine shares are one slice.
type changesKey struct {
	first *coord.Change
	count int
}

type encoded struct {
	body   []byte
	status rpc.Status
}

const (
	// maxPictures bounds how many forms of one picture are kept. Clients choose the job name that
	// is echoed to them, so their number is not ours to know.
	maxPictures = 64

	// minSharedValue is the size from which on a value is worth a look at the table.
	minSharedValue = 1 << 10
)

func newFanout() fanout {
	return fanout{pictures: make(map[fanoutKey]encoded), ofWave: make(map[fanoutKey]encoded)}
}

func (f *fanout) encode(s wire.Shape, r coord.Reply) ([]byte, rpc.Status) {
	switch said := r.Result.(type) {
	case *coord.Picture:
		f.turn(said.Version)
		return once(f.pictures, fanoutKey{s.Form(), said}, r)
	case *coord.Alive:
		return once(f.ofWave, fanoutKey{s.Form(), said}, r)
	case coord.Changes:
		if n := len(said.Changes); n > 0 {
			return once(f.ofWave, fanoutKey{s.Form(), changesKey{&said.Changes[0], n}}, r)
		}
	case coord.Value:
		if n := len(said.Value); n >= minSharedValue {
			return once(f.ofWave, fanoutKey{s, valueKey{said.Key, &said.Value[0], n}}, r)
		}
	}
	return s.Encode(r)
}

// turn drops the pictures of an older version.
func (f *fanout) turn(version int64) {
	if version != f.version || len(f.pictures) >= maxPictures {
		clear(f.pictures)
		f.version = version
	}
}

func once(kept map[fanoutKey]encoded, k fanoutKey, r coord.Reply) ([]byte, rpc.Status) {
	e, ok := kept[k]
	if !ok {
		e.body, e.status = k.shape.Encode(r)
		kept[k] = e
	}
	return e.body, e.status
}

func (f *fanout) endWave() { clear(f.ofWave) }
