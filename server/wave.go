package server

import (
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/wire/stream"
)

// A wave is everything that must happen because of one batch, once the batch is committed: what other
// goroutines may know, what callers and hosts are told, and what goes to the log. The owner fills it while it
// steps; a performer lets it happen. Between the two stands the journal, if there is one.
//
// No effect may leave before the records are durable. Suppose that replies left earlier, and the server died
// before its write. The task that came last to a barrier has heard that the barrier has passed, and goes on.
// The next leader finds no record of its arrival. A task whose reply was lost repeats its call there, and waits
// for a task that does not come again. The same holds for the tables: a heartbeat that is answered from a
// registration which is then lost makes a task believe that it is a member.
type wave struct {
	epoch    *epoch            // to publish, or nil
	shown    []showing         // to publish
	admitted []*sharedTask     // tasks that learn from the replies that they are registered
	replies  []outgoing        // in the order of the machine
	pushes   []push            // to hosts
	notes    []coord.Note      // for the log
	done     []chan<- struct{} // of operator events, to be closed

	// With a journal.
	records  []byte    // of the batch
	blobs    []blob    // that its records name
	snapshot *snapshot // to save after it, or nil
}

// idle says whether nothing must happen, so that the journal need not see the wave.
func (w *wave) idle() bool {
	return w.epoch == nil && len(w.shown)+len(w.replies)+len(w.notes)+len(w.done)+len(w.records)+len(w.pushes) == 0 && w.snapshot == nil
}

// answers says whether a caller or a host hears of the wave. Then it must not be the wave of a deposed leader,
// even if it changes nothing (C-TERM-2).
func (w *wave) answers() bool { return len(w.replies)+len(w.done)+len(w.pushes) > 0 }

// leaves says whether this is the last wave of a leader that hands over.
func (w *wave) leaves() bool { return w.snapshot != nil && w.snapshot.saved != nil }

// A showing is a change of what handlers may know of a task. It is a copy, because the owner may have changed the
// task again before the wave happens.
type showing struct {
	shared *sharedTask
	task   detect.Task
}

// An outgoing is one reply to one call. It is encoded by the performer, not by the owner: that takes most of the
// time of a large reply, and the owner's turn is what all calls wait for.
type outgoing struct {
	to     origin
	reply  coord.Reply
	kind   coord.Kind // of a call that waited
	waited coord.Time // 0 if it was answered at once
}

// A performer lets waves happen, one after the other. It belongs to one goroutine: with a journal to the one
// that commits, which performs a wave while the owner steps the next; without one to whichever goroutine has
// the owner's turn.
type performer struct {
	// Set once.
	handler *handler
	stats   *stats
	log     noteLog
	streams *stream.Server

	fanout  fanout
	touched []*peer // connections with replies that have not been flushed
}

// newPerformer makes what lets the effects of waves happen. One goroutine owns it: the journal's, or the owner's where
// there is no journal.
func newPerformer(s *Server) *performer {
	return &performer{handler: s.handler, stats: s.stats, log: noteLog{s.cfg.Log}, fanout: newFanout(), streams: s.streams}
}

// perform lets the effects of a wave happen, and empties it. The order:
//
//   - Tables are published before replies leave, so that the first heartbeat after a registration finds its
//     task.
//   - Standings are queued for hosts before replies are: a relay that gets the reply to a registration answers
//     the next heartbeat of the task itself, and must know its standing by then.
//   - Replies keep the order of the machine (C-ORD-1), and each connection is flushed once (F-13).
//   - The log comes last, because a slow disk or terminal must not hold up replies.
func (p *performer) perform(w *wave) {
	p.publish(w)
	for i := range w.pushes {
		w.pushes[i].session.Standing(w.pushes[i].standing)
	}
	for i := range w.replies {
		p.send(&w.replies[i])
	}
	for _, to := range p.touched {
		to.inWave = false
		to.conn.Flush()
	}
	for i := range w.pushes {
		w.pushes[i].session.Flush()
	}
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
		s.shared.shown.Store(&s.task)
	}
	for _, s := range w.admitted {
		s.seen.Store(int64(p.handler.clock.now()))
		s.registering.Add(-1)
	}
	if w.epoch != nil {
		p.handler.epoch.Store(w.epoch)
		p.streams.Epoch(w.epoch.service)
	}
}

// eagerFlushBytes is the size from which on a reply is sent before the next is made. Otherwise a large reply to
// ten thousand callers would lie in ten thousand output buffers at one time.
const eagerFlushBytes = 4 << 10

// send hands one reply to its transport.
func (p *performer) send(out *outgoing) {
	// The connection may have closed since the step: then the transport drops the reply.
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

// clear empties a wave for reuse, and lets go of what it pointed to. Slices that a burst made large are dropped.
func (w *wave) clear() {
	clear(w.shown)
	clear(w.admitted)
	clear(w.replies)
	clear(w.notes)
	clear(w.done)
	clear(w.pushes)
	clear(w.blobs)
	*w = wave{
		shown: w.shown[:0], admitted: w.admitted[:0], replies: w.replies[:0], notes: w.notes[:0], done: w.done[:0], pushes: w.pushes[:0],
		records: w.records[:0], blobs: w.blobs[:0],
	}
	if cap(w.replies) > 4*maxBatch {
		w.replies = nil
	}
	if cap(w.records) > 4*maxBatchBytes {
		w.records = nil
	}
}
