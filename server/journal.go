package server

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

const (
	// maxBatchBytes is how much a wave may add to the journal before its batch ends early, and how much waves
	// are joined to, so that one write stays a write of modest size. One record may be larger; values over
	// coord.AsideBytes are not in records.
	maxBatchBytes = 512 << 10

	// wavesAhead is how many waves may wait for the journal. With so many, the owner steps nothing until
	// the journal has taken some, and calls gather in the queue, which has limits of its own. Fewer would
	// let the disk idle between two batches; more would only be memory.
	wavesAhead = 64
)

// A journal takes waves from the owner, writes down what they change, and then lets them happen. It is a
// goroutine of its own: while it waits for the disk the owner steps the next batch, and all waves that gather
// meanwhile become one write. So the number of writes follows the speed of the disk, and not the number of
// calls.
//
// Three rules keep what callers hear and what the disk holds together:
//
//   - No effect of a wave leaves before its records are durable (C-LOG-2).
//   - If a write fails, nothing of its wave leaves, nor of any later one, and the server ends. Callers then
//     do not know whether their call took effect; they ask the next leader, which does.
//   - A wave that changes nothing, but answers, is confirmed with the store: a leader that was deposed while
//     it was frozen must not answer from its old state (C-TERM-2).
//
// Snapshots are saved in the background, one at a time, while the journal goes on. The snapshot of a hand-over
// is the exception: nothing follows it.
type journal struct {
	// Set in newJournal, then constant.
	reign     store.Reign // the leadership that the journal is written under
	performer *performer
	planted   plant.Faults
	ctx       context.Context // of every request to the store
	cancel    context.CancelCauseFunc

	// Between the owner and run.
	waves chan *wave
	taken chan struct{} // has room for one: tells the owner that there is room for waves again
	spare chan *wave    // empty ones, for the owner to use again
	ended chan struct{} // closed when run has ended, after err was set
	err   error         // why it ended early, or nil

	// Between the owner, run, and the goroutine that saves a snapshot.
	saving atomic.Bool    // from when the owner made a snapshot until it is saved
	saver  sync.WaitGroup // the goroutine
	broken chan error     // takes one: why the save failed

	// Owned by run.
	joined []byte // records of several waves
	pace   pace
	room   int // bytes that may be added while a snapshot is saved

	// Read by the owner and by the metrics page.
	began   atomic.Int64          // coord.Time at which the commit that is under way began, or 0
	stalled atomic.Pointer[stall] // the last stall that is over, or nil
	writes  atomic.Uint64
}

// newJournal makes a journal that does not run yet.
func newJournal(r store.Reign, p *performer, planted plant.Faults) *journal {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &journal{
		reign: r, performer: p, planted: planted, ctx: ctx, cancel: cancel,
		waves:  make(chan *wave, wavesAhead),
		taken:  make(chan struct{}, 1),
		spare:  make(chan *wave, wavesAhead),
		ended:  make(chan struct{}),
		broken: make(chan error, 1),
	}
}

// full says whether there is no room for another wave. A nil journal always has room. So has one that has
// ended: submit then says that it is over. Only the goroutine with the owner's turn adds waves. So where full
// has seen room for one, submit finds room.
func (j *journal) full() bool {
	if j == nil || len(j.waves) < cap(j.waves) {
		return false
	}
	select {
	case <-j.ended:
		return false
	default:
		return true
	}
}

// await waits until there may be room for another wave. Only owner.run calls it: no goroutine that reads a
// connection waits for the journal.
func (j *journal) await() {
	select {
	case <-j.taken:
	case <-j.ended:
	}
}

// submit takes a wave and returns an empty one. It is over when the journal has ended. It never blocks: the
// goroutine that has the owner's turn asks full before it steps, and no other goroutine submits meanwhile.
func (j *journal) submit(w *wave) (next *wave, over bool) {
	select {
	case <-j.ended:
		return new(wave), true
	default:
	}
	select {
	case j.waves <- w:
	default:
		// The owner has stepped although full said that there is no room: its state is ahead of what
		// can be written, and must not be acted on.
		panic("server: a wave for a journal without room")
	}
	select {
	case next = <-j.spare:
	default:
		next = new(wave)
	}
	return next, false
}

// stall is the last time in which a commit took so long that callers noticed. If that commit is still under
// way, the stall lasts until now. It is zero if there was none, or no journal.
func (j *journal) stall(now coord.Time) stall {
	if j == nil {
		return stall{}
	}
	if began := coord.Time(j.began.Load()); began != 0 && detect.Late(now, began) {
		return stall{began, now}
	}
	if last := j.stalled.Load(); last != nil {
		return *last
	}
	return stall{}
}

// close is called after the last wave was submitted, and returns when all waves have happened.
func (j *journal) close() {
	close(j.waves)
	<-j.ended
	j.cancel(nil)
}

// run commits waves until the journal is closed, until a wave cannot be committed, or until another server
// leads. The wave of a hand-over is the last, too: its snapshot is the end of what this server may write.
func (j *journal) run() {
	// In reverse order: requests to the store end, then the goroutine that saves, and only then does the
	// server hear that the journal has ended.
	defer close(j.ended)
	defer j.saver.Wait()
	defer j.cancel(nil)
	group, leaving := make([]*wave, 0, wavesAhead), false
	for {
		select {
		case w, open := <-j.waves:
			if !open {
				return
			}
			group = j.gather(append(group[:0], w))
			leaving = group[len(group)-1].leaves() // asked now: release empties the waves
			j.tellTaken()
		case err := <-j.broken:
			j.fail(err)
			return
		case <-j.reign.Deposed():
			// The store would refuse the waves that are queued. They are dropped with their effects; relays and
			// serry's own clients repeat the calls to the new leader.
			j.err = store.ErrDeposed
			return
		}
		if err := j.commit(group); err != nil {
			j.fail(err)
			return
		}
		if leaving {
			return // the caller of Handover or Shutdown decides what happens to the reign
		}
	}
}

// tellTaken tells owner.run, which may wait in await, that waves have been taken.
func (j *journal) tellTaken() {
	select {
	case j.taken <- struct{}{}:
	default:
	}
}

// fail notes why the journal ends. If the context has ended, the server was told to end without waiting for
// the store, and the error only says that.
func (j *journal) fail(err error) {
	if j.ctx.Err() == nil {
		j.err = err
	}
}

// gather adds the waves that wait to a group, and those that are worth a wait (see pace). A wave with a
// snapshot is the last of its group, because the snapshot covers the journal up to there.
func (j *journal) gather(group []*wave) []*wave {
	size := len(group[0].records)
	var began time.Time // of a wait, if there is one
	came := false       // a wave came while it lasted
	for group[len(group)-1].snapshot == nil && size < maxBatchBytes {
		w, waited := j.next(group, &began)
		if w == nil {
			break
		}
		came = came || waited
		group = append(group, w)
		size += len(w.records)
	}
	if !began.IsZero() {
		j.pace.learn(came)
	}
	return group
}

// next is the next wave, or nil if none has come and it is not worth waiting for one, or waiting longer.
// began is when the group began to wait.
func (j *journal) next(group []*wave, began *time.Time) (w *wave, waited bool) {
	select {
	case w = <-j.waves:
		return w, false
	default:
	}
	patience := j.pace.patience(group, since(*began))
	if patience <= 0 {
		return nil, false
	}
	if began.IsZero() {
		*began = time.Now()
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case w = <-j.waves:
		return w, true
	case <-timer.C:
		return nil, true
	}
}

// since is how long a wait has lasted, 0 if it has not begun.
func since(began time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return time.Since(began)
}

// commit writes down what the waves of a group change, and lets the waves happen:
//
//  1. Large values are written first, so that no record names a value that is not there (C-LOG-5).
//  2. If a snapshot is being saved, and the journal has grown by as much again meanwhile, it waits for that:
//     otherwise a store that is slow to save would fill up with records that nothing replaces.
//  3. The records of the group are one write. A group without records that answers a caller is confirmed
//     with the store instead: this server may have been deposed while it did not run (C-TERM-2).
//  4. The waves happen.
//  5. If the last wave has a snapshot, it is saved: in the background, or at once for a hand-over.
func (j *journal) commit(group []*wave) error {
	defer j.time()()
	records, answers := j.join(group)
	snapshot := group[len(group)-1].snapshot
	if err := j.put(group); err != nil {
		return err
	}
	// Callers wait here for the snapshot, and the machine's time stands still with them (see time). A snapshot
	// that is made but not yet being saved is not waited for: its wave is in this group, or behind it.
	if j.room -= len(records); j.room < 0 && j.saving.Load() {
		j.saver.Wait()
	}
	if j.planted.Has(plant.ReplyBeforeJournal) {
		records = bytes.Clone(records) // the waves are used again
		j.release(group)
	}
	began := time.Now()
	switch {
	case len(records) > 0:
		j.writes.Add(1)
		if err := j.reign.Append(j.ctx, records); err != nil {
			return err
		}
	case answers && !j.planted.Has(plant.NoConfirm): // C-TERM-2
		if err := j.reign.Confirm(j.ctx); err != nil {
			return err
		}
	}
	if !j.planted.Has(plant.ReplyBeforeJournal) {
		j.pace.note(time.Since(began), group, len(j.waves))
		j.release(group)
	}
	switch {
	case snapshot == nil:
	case snapshot.saved != nil:
		return j.saveLast(snapshot)
	default:
		j.saveMeanwhile(snapshot)
	}
	return nil
}

// time notes that a commit begins, and returns what notes its end. The owner reads both: while a commit takes
// long, the machine's time stands still (see timeline.go).
func (j *journal) time() (done func()) {
	clock := j.performer.handler.clock
	began := max(1, clock.now())
	j.began.Store(int64(began))
	return func() {
		if now := clock.now(); detect.Late(now, began) {
			j.stalled.Store(&stall{began, now})
		}
		j.began.Store(0)
	}
}

// join puts the records of a group in a row, and says whether any caller or host hears of the group. A group of one
// wave is written from where its records lie.
func (j *journal) join(group []*wave) (records []byte, answers bool) {
	if len(group) == 1 {
		return group[0].records, group[0].answers()
	}
	j.joined = j.joined[:0]
	if j.planted.Has(plant.HalfGroup) {
		group = group[:len(group)-1]
	}
	for _, w := range group {
		j.joined = append(j.joined, w.records...)
		answers = answers || w.answers()
	}
	return j.joined, answers
}

// put writes the large values of a group, each under its digest.
//
// A crash after this and before the write leaves values that no record names. The store removes them with a
// later snapshot.
func (j *journal) put(group []*wave) error {
	if j.planted.Has(plant.SkipPut) {
		return nil
	}
	for _, w := range group {
		for _, b := range w.blobs {
			if err := j.reign.Put(j.ctx, b.ref, b.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// release lets waves happen, and gives them back to the owner. They happen here, on the goroutine of the journal:
// handing them to another one would cost a wake-up for each write. An empty wave for which spare has no room is
// left to the garbage collector, so that this never blocks.
func (j *journal) release(group []*wave) {
	for _, w := range group {
		j.performer.perform(w)
		select {
		case j.spare <- w:
		default:
		}
	}
}

// save saves a snapshot that covers the journal up to here.
func (j *journal) save(p *snapshot) error {
	return j.reign.Save(j.ctx, j.reign.Mark(), p.bytes, p.keep)
}

// saveMeanwhile saves a snapshot of the journal up to here while the journal goes on. A save that fails ends
// the journal: saving stays true, so that no other is begun, and run finds the error. The mark is taken here
// and not by the goroutine that saves: records that are written from now on are not in the snapshot, and must
// not be replaced by it.
func (j *journal) saveMeanwhile(p *snapshot) {
	at := j.reign.Mark()
	j.room = p.room
	j.saver.Go(func() {
		if err := j.reign.Save(j.ctx, at, p.bytes, p.keep); err != nil {
			j.broken <- err
			return
		}
		j.saving.Store(false)
		j.performer.handler.queue.nudge() // if room is scarce, the owner may want another snapshot at once
	})
}

// saveLast saves the snapshot that a hand-over waits for, after one that may still be under way. A store takes
// one save at a time, and an older snapshot must not take the place of this one.
func (j *journal) saveLast(p *snapshot) error {
	j.saver.Wait()
	select {
	case err := <-j.broken:
		return err
	default:
	}
	if err := j.save(p); err != nil {
		return err
	}
	close(p.saved)
	return nil
}
