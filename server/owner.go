package server

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/stream"
)

// A clock tells service time: how long the server has run. It is monotonic and does not follow the
// wall clock (C-TIME-1).
type clock struct{ start time.Time }

func (c clock) now() coord.Time { return coord.Time(time.Since(c.start)) }

// maxBatch bounds how many items are stepped before their effects leave, so that a flood of calls
// does not hold up the reply to the first.
const maxBatch = 4096

// An owner owns the machine. Its fields are used by whoever holds turn, and by nobody else; what
// others see of its work is published by perform. Its own goroutine, in run, takes a turn when
// something falls due or an item of ours comes; for calls the goroutine that read them does, so that
// an answer need not wait until another goroutine has been woken.
type owner struct {
	turn sync.Mutex

	handler  *handler
	queue    *queue
	clock    clock
	stats    *stats
	progress *progress
	machine  *coord.Machine

	now     coord.Time // of the batch
	time    timeline   // of the machine
	epoch   *epoch     // as of the last step; handler.epoch is as of the last commit
	waiting map[coord.Req]*waiter
	meeting int // waiting calls that wait for other tasks

	detector *detect.Detector[*stream.Session] // decides who is lost

	asked    *item // the call being stepped, or nil
	answered bool  // its reply was among the effects

	wave        *wave
	performer   *performer // where there is no journal
	journal     *journal   // or nil
	size        growth     // of the journal
	room        room       // in its store
	leastGrowth int        // of Config.SnapshotBytes
	refs        refs       // of what lies beside it
	settings    settings   // that it is true for
	over        bool       // the journal is closed: nothing is stepped any more
	history     history

	drained []item     // from the queue
	rest    []item     // those of them that have not been stepped
	spare   []item     // room for the queue
	due     coord.Time // when run wakes up by itself, or never
}

const never = coord.Time(math.MaxInt64)

// run steps the machine until the queue is closed and empty.
func (o *owner) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		o.turn.Lock()
		full, open := o.take()
		if !full {
			o.due = o.next()
		}
		due := o.due
		o.turn.Unlock()
		switch {
		case full:
			o.journal.await()
		case o.queue.length() > 0: // help leaves what comes meanwhile to us
		case !open:
			return
		default:
			o.sleep(timer, due)
		}
	}
}

// helpTurns is how many turns a reader takes before it leaves the rest to run, so that a flood of
// calls does not keep it from its own connection.
const helpTurns = 2

// help takes a turn for the goroutine that queued something, unless another goroutine has it: that one
// finds what was queued, because it looks once more when it has finished.
//
// The goroutine is one that reads a connection, so help never waits: neither for the turn nor for the
// journal. While the journal stands still, heartbeats behind this call are read and answered all the same;
// if they were not, a slow disk would look like a silent host.
func (o *owner) help() {
	for range helpTurns {
		if o.queue.length() == 0 || !o.turn.TryLock() {
			return
		}
		full, _ := o.take()
		late := !full && o.next() < o.due
		o.turn.Unlock()
		if full || late {
			o.queue.nudge()
		}
		if full && o.journal.planted.Has(plant.BlockedReader) {
			o.journal.await()
			o.journal.tellTaken() // the owner waits for it, too
		}
		if full {
			return
		}
	}
	if o.queue.length() > 0 {
		o.queue.nudge()
	}
}

// take steps through one batch of what is queued, or just lets time pass. Where the journal is full it
// does nothing. open says whether more can come.
func (o *owner) take() (full, open bool) {
	if o.journal.full() {
		return true, true
	}
	o.now = o.clock.now() // before the queue is drained, so that nothing in it is later than what is left
	open = true
	if len(o.rest) == 0 {
		o.drained, open = o.queue.drain(o.spare)
		o.rest, o.spare = o.drained, nil
	}
	taken := o.rest[:o.batch(o.rest)]
	o.queue.stepped(taken)
	clear(taken)
	if o.rest = o.rest[len(taken):]; len(o.rest) == 0 {
		o.spare = keep(o.drained)
	}
	return false, open
}

// keep returns the room of items for reuse, unless a burst made it large.
func keep(items []item) []item {
	if cap(items) > 4*maxBatch {
		return nil
	}
	return items[:0]
}

// batch steps through some of the items and whatever has fallen due, then lets the effects happen. It says
// how many of the items it took.
func (o *owner) batch(items []item) (taken int) {
	if o.over {
		return len(items)
	}
	held := o.holdTime()
	for taken < min(len(items), maxBatch) && len(o.wave.records) < maxBatchBytes {
		o.time.pass(items[taken].at)
		if o.item(&items[taken]); o.over {
			return len(items)
		}
		taken++
	}
	now := o.now
	if taken < len(items) {
		now = items[taken].at // what comes next may be an arrival in time
	}
	o.time.pass(now)
	if due, ok := o.machine.Deadline(); ok && !held && (due <= o.time.now || o.journal != nil && o.size.tick() <= o.now) {
		o.step(coord.Tick{})
		o.size.last = o.now
	}
	o.detector.Tick(o.now)
	o.judge()
	if o.progress.due(o.now, o.meeting > 0) {
		o.progress.report(o.time.now, o.machine.View())
	}
	o.count(items[:taken])
	o.commit()
	return taken
}

// count counts a batch.
func (o *owner) count(items []item) {
	o.stats.batches.Add(1)
	for i := range items {
		if items[i].event != nil {
			o.stats.events.Add(1)
		}
	}
}

// commit lets the wave happen. With a journal, the goroutine of the journal does that, once the write is
// durable (C-LOG-2).
func (o *owner) commit() {
	if o.journal == nil {
		o.performer.perform(o.wave)
		return
	}
	if (o.size.grown(o.leastGrowth) || o.scarce()) && o.journal.saving.CompareAndSwap(false, true) {
		o.picture()
	}
	if !o.wave.idle() {
		o.wave, o.over = o.journal.hand(o.wave)
	}
}

// next says when the next thing falls due, or never.
func (o *owner) next() coord.Time {
	if o.over {
		return never // whatever falls due is for the successor
	}
	due, ok := o.machine.Deadline()
	if due = o.time.clock(due); ok && o.time.held(o.now) {
		due = o.now + lookAgain
	} else if ok && o.journal != nil {
		due = min(due, o.size.tick())
	}
	if at, some := o.detector.Deadline(); some {
		due, ok = earlier(due, ok, at)
	}
	if at, some := o.progress.next(o.meeting > 0); some {
		due, ok = earlier(due, ok, at)
	}
	if !ok {
		return never
	}
	return due
}

// sleep waits until something falls due, or until somebody has more to do.
func (o *owner) sleep(timer *time.Timer, due coord.Time) {
	if due == never {
		timer.Stop()
		<-o.queue.wake
		return
	}
	timer.Reset(time.Duration(due - o.clock.now()))
	select {
	case <-o.queue.wake:
	case <-timer.C:
	}
}

func earlier(a coord.Time, some bool, b coord.Time) (coord.Time, bool) {
	if some && a < b {
		return a, true
	}
	return b, true
}

func (o *owner) item(it *item) {
	switch w := it.word.(type) {
	case nil, []laid:
		o.call(it)
	case withdrawn:
		o.withdraw(w)
	case ended:
		o.end(w)
	case silences:
		o.silent(w)
	case exited:
		o.detector.Exited(serry.Life{Task: w.task}, w.cause, o.now)
	case accused:
		o.detector.Accused(w.task, w.evidence)
	case leaving:
		o.leave(w)
	case errand:
		w.do(o)
	case viewing:
		w.answer <- o.machine.View() // has room
	case ordered:
		o.step(w.event)
		if w.event == (coord.Stop{}) {
			o.stopped()
		}
		o.wave.done = append(o.wave.done, w.done)
	}
	o.judge()
}

// step moves the machine and collects what must happen.
func (o *owner) step(ev coord.Event) {
	effects := o.machine.Step(o.time.now, ev)
	if o.journal != nil {
		o.record()
	}
	o.collect(effects)
}

// collect puts effects on the wave.
func (o *owner) collect(effects []coord.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case coord.Reply:
			o.reply(e)
		case coord.Changed:
			o.changed(e)
		case coord.Opened:
			o.opened(e)
		case coord.Note:
			o.history.add(o.time.now, e)
			o.wave.notes = append(o.wave.notes, e)
		}
	}
}

// call steps the machine with a call of a client.
func (o *owner) call(it *item) {
	p := it.from.peer
	if p.closed {
		return // the call was read by one goroutine while another saw the connection end
	}
	asked, _ := coord.CallOf(it.event)
	kind := coord.KindOf(it.event)
	if limit := o.handler.limits.CallsWaiting; kind.Row().Limited() && len(p.calls) >= limit {
		err := &serry.LimitError{Limit: "calls waiting on one connection", Max: int64(limit)}
		o.wave.replies = append(o.wave.replies, outgoing{to: it.from, reply: coord.Reply{Err: err}})
		return
	}
	if err := o.refuses(it, asked); err != nil {
		it.from.answer(refusal(it.from.shape, err)) // at once: the journal may stand still for the same reason
		p.conn.Flush()
		return
	}
	if kind == coord.KindRegisterTask {
		o.departIdle()
	}
	l := o.speaker(asked)
	o.speak(it.from, l, kind)
	o.asked, o.answered = it, false
	o.step(it.event)
	o.asked = nil
	if !o.answered {
		o.hold(it, kind, l)
	}
	switch kind {
	case coord.KindPollForError:
		o.detector.Polled(l, !o.answered)
	case coord.KindRegisterTask:
		o.detector.DepartFormer(l)
	}
}

// departIdle lets lives depart that no connection carries, if the job has failed: only then can a
// registration open the next epoch, and their departure decides whether it does (C-EPOCH-2b).
func (o *owner) departIdle() {
	if o.machine.Failed() {
		o.detector.DepartIdle()
		o.judge()
	}
}

// speaker is the life that a call is of: the one it names, or else the one the task has now.
func (o *owner) speaker(c coord.Call) serry.Life {
	l := serry.Life{Task: c.Task, Incarnation: c.Incarnation}
	if t := o.detector.Task(c.Task); t != nil && l.Incarnation == 0 {
		l.Incarnation = t.Incarnation
	}
	return l
}

// speak notes that the connection of a call has carried l, if l is a life the service knows or one
// that wants to register.
func (o *owner) speak(from origin, l serry.Life, k coord.Kind) {
	registers := k == coord.KindRegisterTask
	t, p := o.detector.Task(l.Task), from.peer
	if t == nil || l.Incarnation == 0 || !registers && t.Incarnation != l.Incarnation {
		return
	}
	present := t.Incarnation == l.Incarnation
	switch {
	case registers && present:
		o.epoch.seat(l.Task).seen.Store(int64(o.now)) // C-HB-7
		if t.Departed {
			o.detector.Returned(l)
			o.publish(l.Task)
		}
	case registers:
		// A registration says nothing about another life of the task. If it counted for the present
		// one, a process that hangs would stay alive for as long as its successor tries to replace it.
		// A registration that is accepted counts when the machine says so, see changed.
	case p.carries(l):
		return
	}
	added, replaced := p.speak(l, registers, func(other serry.Life) bool {
		return t.State == serry.Connected && t.Incarnation == other.Incarnation
	})
	if added {
		o.detector.Attached(l, from.shape.Dialect == wire.Own)
	}
	if o.follow(p, l); registers && present {
		o.tellOf(l)
	}
	for _, other := range replaced {
		o.detector.Detached(other, "", o.now)
	}
}

// opened takes over a new epoch.
func (o *owner) opened(e coord.Opened) {
	o.epoch = newEpoch(e, wire.NewCodec(e.Jobs))
	o.history.opened()
	o.wave.epoch = o.epoch
	var opener serry.Life
	if o.asked != nil {
		c, _ := coord.CallOf(o.asked.event)
		opener = serry.Life{Task: c.Task, Incarnation: c.Incarnation}
	}
	o.detector.Opened(e.Jobs, opener)
}

// stopped publishes an epoch without tasks, so that no heartbeat is called a good one any more
// (C-HB-1).
func (o *owner) stopped() {
	o.epoch = &epoch{service: o.epoch.service, codec: o.epoch.codec}
	o.wave.epoch = o.epoch
	o.detector.Stopped()
}

// end drops everything that hangs on a connection.
func (o *owner) end(w ended) {
	p := w.peer
	p.closed = true
	for _, call := range slices.Sorted(maps.Keys(p.calls)) {
		o.withdraw(withdrawn{p, call})
	}
	for _, c := range p.carried() {
		o.detector.Detached(c.Life, w.evidence, o.now)
	}
}
