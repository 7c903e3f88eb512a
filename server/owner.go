package server

import (
	"math"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/internal/seldom"
	"github.com/serry-dev/serry/wire/stream"
)

// A clock tells service time: how long the service has run, over all servers that it had. It is monotonic and
// does not follow the wall clock, which an operator may set (C-TIME-1).
type clock struct{ start time.Time }

func (c clock) now() coord.Time { return coord.Time(time.Since(c.start)) }

// maxBatch bounds how many items are stepped before their effects leave, so that a flood of calls does not hold
// up the reply to the first. It is large, because all replies of a batch to one connection are one write.
const maxBatch = 4096

// An owner owns the machine: it takes items from the queue, steps the machine through them, and hands
// the effects on. No field of it is used without the turn.
//
// The turn is a lock, not a goroutine. Two kinds of goroutines take it. owner.run takes it when something
// falls due or a command comes. A goroutine that reads a connection takes it for the calls that it has just
// queued (see help), so that an answer need not wait until another goroutine has been woken: waking one cost
// more than all the rest of a key call. Whichever goroutine has the turn does the same work.
//
// A turn steps one batch of items. What must happen because of them gathers in a wave, and the whole wave
// leaves after the batch: at once, or with a journal when its records are durable. So nothing that a caller
// or another goroutine can see is ever ahead of the journal (C-LOG-2).
//
// Other goroutines never read what changes here. They get copies: of the epoch and its tasks from the
// performer, when a wave happens, and of the machine and the account by the commands viewWanted and
// booksWanted. A view or an account that a person asks for may be ahead of the journal (see [Server.View]);
// what the performer publishes never is.
type owner struct {
	turn sync.Mutex

	// Set in newOwner, then constant.
	handler   *handler
	queue     *queue
	clock     clock
	stats     *stats
	progress  *progress
	performer *performer // lets waves happen where there is no journal
	journal   *journal   // or nil

	// The service.
	machine       *coord.Machine
	detector      *detect.Detector[*stream.Session] // decides which lives are lost
	epoch         *epoch                            // as of the last step; handler.epoch is as of the last commit
	waiting       map[coord.Req]*waiter             // calls that the machine has not answered
	waitingBytes  int64                             // their requests
	strangerBytes int64                             // of them, those of strangers
	meeting       int                               // those of them that wait for other tasks
	history       history                           // what happened lately, for people
	refused       seldom.Limit[refusedCall]         // calls whose refusal was noted lately
	usual         usual                             // how long barriers take
	accountant    *accountant                       // how the time of the job is used
	over          bool                              // the journal has ended, or another server leads: nothing is stepped

	// Time.
	now  coord.Time // on the clock, of the batch
	time timeline   // of the machine, which may be behind the clock
	due  coord.Time // when run wakes up by itself, or never

	// The step that is under way, and what has gathered since the last commit.
	current   *item // the call that is being stepped, or nil
	answered  bool  // its reply was among the effects
	wave      *wave
	livesOver []serry.Life // whose keys of links are to be deleted

	// The journal, as far as the owner must know it.
	size        growth   // how much it has grown
	room        room     // what its store can hold
	leastGrowth int      // Config.SnapshotBytes
	refs        refs     // digests of large values
	settings    settings // that its records are made under

	// Items.
	drained []item // from the queue
	rest    []item // the part of drained that has not been stepped
	spare   []item // an empty slice for the queue
}

// never is when run wakes up if nothing falls due.
const never = coord.Time(math.MaxInt64)

// run takes turns until the queue is closed and empty. It sleeps while there is nothing to do, and while the
// journal has no room for another wave.
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
		case o.queue.length() > 0: // a helper that found the turn taken left its items to this loop
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

// help takes a turn for the goroutine that queued something. If another goroutine has the turn, help returns:
// that goroutine finds what was queued, because each looks at the queue once more after it has given the turn
// back. No item is left behind: either TryLock succeeds here, or it fails before the other goroutine looks
// again.
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
		// run sleeps until o.due. If something falls due earlier now, it must be woken to set its timer.
		early := !full && o.next() < o.due
		o.turn.Unlock()
		if full || early {
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

// take steps through one batch of what is queued, or just lets time pass. While the journal has no room for
// the wave it steps nothing: to step and then wait would hold the turn, and with it every reader. open says
// whether more can come.
func (o *owner) take() (full, open bool) {
	if o.journal.full() {
		o.turnAway()
		return true, true
	}
	// The time is read before the queue is drained, so that every item that is left there is later.
	o.now = o.clock.now()
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

// keep returns a slice for reuse, unless a burst made it large: memory for the largest burst ever would stay for
// ever.
func keep(items []item) []item {
	if cap(items) > 4*maxBatch {
		return nil
	}
	return items[:0]
}

// batch steps through some of the items and then through what has fallen due, and commits. It says how many of
// the items it took.
//
// Items come before deadlines. An arrival that was read before its barrier's deadline must count, however
// long it lay in the queue; so each item is stepped at the time at which it was queued, and a deadline
// fires only when no item from before it is left.
func (o *owner) batch(items []item) (taken int) {
	// The items are dropped, so that the queue empties and run can end. Their callers get no answer from this
	// server; relays and serry's own clients repeat the calls to the next one.
	if o.over {
		return len(items)
	}
	// A stall must be noticed before the first item lets time pass, because time that has passed cannot be
	// taken back.
	held := o.holdTime()
	// A batch ends early when its records are as many as one write should have.
	for taken < min(len(items), maxBatch) && len(o.wave.records) < maxBatchBytes {
		o.time.pass(items[taken].at)
		if o.item(&items[taken]); o.over {
			return len(items)
		}
		taken++
	}
	// Time passes up to now, or up to the first item that is left: that may be an arrival in time.
	now := o.now
	if taken < len(items) {
		now = items[taken].at
	}
	o.time.pass(now)
	// With a journal a Tick is also stepped when nothing was recorded for a while, so that the next server
	// knows how much time has passed.
	if due, ok := o.machine.Deadline(); ok && !held && (due <= o.time.now || o.journal != nil && o.size.tick() <= o.now) {
		o.step(coord.Tick{})
		o.size.last = o.now
	}
	// The detector goes by the clock, not by the machine's time (see timeline). It comes after the items: a
	// life that has come back in this batch must not be lost by the end of its grace.
	o.detector.Tick(o.now)
	o.judge()
	if o.progress.due(o.now, o.meeting > 0) {
		o.progress.report(o.time.now, o.machine.View())
	}
	o.count(items[:taken])
	o.commit()
	return taken
}

// count counts a batch and its calls.
func (o *owner) count(items []item) {
	o.stats.batches.Add(1)
	for i := range items {
		if items[i].event != nil {
			o.stats.events.Add(1)
		}
	}
}

// commit lets the wave happen. With a journal, the journal goroutine releases the effects once the write is
// durable (C-LOG-2), and the owner steps the next batch meanwhile.
func (o *owner) commit() {
	if o.journal == nil {
		o.performer.perform(o.wave)
		return
	}
	// The snapshot shows the machine after this wave, so it goes with the wave and is saved behind its records.
	// The journal clears saving when the snapshot is saved: until then no other one is made, but for that of a
	// hand-over.
	if (o.size.grown(o.leastGrowth) || o.scarce()) && o.journal.saving.CompareAndSwap(false, true) {
		o.takeSnapshot()
	}
	if !o.wave.idle() {
		o.wave, o.over = o.journal.submit(o.wave)
	}
}

// next says when owner.run must take a turn although no item comes, or never.
func (o *owner) next() coord.Time {
	due := never
	if o.over {
		return due // what falls due from now on is for the successor
	}
	switch at, ok := o.machine.Deadline(); {
	case !ok:
	case o.time.held(o.now):
		due = o.now + lookAgain
	case o.journal != nil:
		due = min(o.time.clock(at), o.size.tick())
	default:
		due = o.time.clock(at)
	}
	if at, ok := o.detector.Deadline(); ok {
		due = min(due, at)
	}
	if at, ok := o.progress.next(o.meeting > 0); ok {
		due = min(due, at)
	}
	return due
}

// sleep waits until something falls due, or until the queue has more. The timer belongs to run: a helper that
// makes something fall due earlier wakes run, which sleeps again for less.
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

// item does what an item asks for, and then what the detector concludes from it.
func (o *owner) item(it *item) {
	if it.command != nil {
		it.command.do(o)
	} else {
		o.call(it)
	}
	o.judge()
}

// step moves the machine by one event, notes what the journal must hold of it, and collects the effects. It
// is the only place that steps the machine.
func (o *owner) step(ev coord.Event) {
	effects := o.machine.Step(o.time.now, ev)
	if o.journal != nil {
		o.record()
	}
	o.collect(effects)
}

// collect takes the effects of a step: it keeps the owner's own tables true, and puts on the wave what others
// will see.
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
			o.note(e)
		}
	}
}

// note adds a note to the history that serry status and serry why show, and puts it on the wave for the log.
func (o *owner) note(n coord.Note) {
	o.history.add(o.time.now, n)
	o.usual.ended(n, o.time.now)
	o.wave.notes = append(o.wave.notes, n)
	if n.Since > 0 {
		n.Since = o.time.clock(n.Since)
	}
	o.accountant.noted(n, o.time.clock(o.time.now)) // which goes by the clock
}
