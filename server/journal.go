package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"sync/atomic"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/detect"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

const (
	// maxBatchBytes is how much a wave may add to the journal before it is cut short, and how much
	// waves are joined to, so that one write stays a write of modest size.
	maxBatchBytes = 512 << 10

	// wavesAhead is how many waves may wait for the journal. With so many, the owner steps nothing until
	// the journal has taken some, and calls gather in the queue, which has limits of its own.
	wavesAhead = 64

	// tickPeriod is how much service time may be lost in an outage while a deadline is pending
	// (C-TIME-1).
	tickPeriod = coord.Time(time.Second)

	// leastValues is the same for values that lie aside.
	leastValues = 64 << 20
)

// A journal takes waves from the owner, writes down what they change, and then lets them happen. It is
// a goroutine of its own: while it waits for the disk the owner steps on, and what gathers meanwhile is
// one write, too. So the number of writes follows the speed of the disk, and not the number of calls.
//
// When something cannot be written nothing of its wave leaves, nor of any later one.
//
// Snapshots are saved in the background, one at a time, while the journal goes on; but for the one that a
// hand-over waits for.
type journal struct {
	reign     store.Reign
	performer *performer
	planted   plant.Faults
	ctx       context.Context // of everything the store is asked for
	cancel    context.CancelCauseFunc

	waves chan *wave
	taken chan struct{} // has room for one: tells the owner that there is room for waves again
	spare chan *wave    // that have happened
	ended chan struct{} // closed when the goroutine has ended, after err was set
	err   error         // why it ended early, or nil

	saving atomic.Bool    // from when the owner made a snapshot until it is saved
	saver  sync.WaitGroup // of what saves it
	broken chan error     // takes one: why that failed

	// Owned by run.
	joined []byte // records of several waves
	pace   pace
	room   int // bytes that may be added while a snapshot is saved

	began   atomic.Int64          // coord.Time at which the commit that is under way began, or 0
	stalled atomic.Pointer[stall] // the last that is over, or nil
	writes  atomic.Uint64
}

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

// full says whether there is no room for another wave. A nil journal always has some, and one that has
// ended refuses waves in hand.
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

// await waits until there may be room for another wave.
func (j *journal) await() {
	select {
	case <-j.taken:
	case <-j.ended:
	}
}

// hand takes a wave and returns room for the next one. It is over when the journal has ended. It never
// blocks: whoever has the owner's turn asks full first, and nobody else hands over waves meanwhile.
func (j *journal) hand(w *wave) (next *wave, over bool) {
	select {
	case <-j.ended:
		return new(wave), true
	default:
	}
	select {
	case j.waves <- w:
	default:
		panic("server: a wave for a journal without room")
	}
	select {
	case next = <-j.spare:
	default:
		next = new(wave)
	}
	return next, false
}

// stall is the last time in which a commit took so long that callers noticed; it ends now if the commit is
// under way. Without one, and without a journal, it is zero.
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

// close is called by the owner after the last wave, and returns when all have happened.
func (j *journal) close() {
	close(j.waves)
	<-j.ended
	j.cancel(nil)
}

// run commits waves until the owner closes the journal, or until one cannot be committed.
func (j *journal) run() {
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
			leaving = group[len(group)-1].leaves()
			j.tellTaken()
		case err := <-j.broken:
			j.fail(err)
			return
		case <-j.reign.Deposed():
			j.err = store.ErrDeposed
			return
		}
		if err := j.commit(group); err != nil {
			j.fail(err)
			return
		}
		if leaving {
			return // what happens to the reign from now on is not our concern
		}
	}
}

// tellTaken tells the owner that waves have been taken.
func (j *journal) tellTaken() {
	select {
	case j.taken <- struct{}{}:
	default:
	}
}

// fail notes why the journal ends, unless somebody ended the server, and did not wait for the store.
func (j *journal) fail(err error) {
	if j.ctx.Err() == nil {
		j.err = err
	}
}

// gather adds the waves that wait, and those that are worth a wait, up to one with a snapshot: that covers
// the journal to there.
func (j *journal) gather(group []*wave) []*wave {
	size := len(group[0].records)
	var began time.Time // of a wait, if there is one
	came := false       // somebody, while it lasted
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

// next is the next wave, or nil if there is none and a wait for one is not worth it, or none any more.
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

func since(began time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return time.Since(began)
}

// commit writes down what the waves of a group change, makes sure that the service is still ours, and
// lets them happen.
func (j *journal) commit(group []*wave) error {
	defer j.time()()
	records, answers := j.join(group)
	snapshot := group[len(group)-1].snapshot
	if err := j.put(group); err != nil {
		return err
	}
	if j.room -= len(records); j.room < 0 && j.saving.Load() {
		j.saver.Wait()
	}
	if j.planted.Has(plant.ReplyBeforeJournal) {
		records = bytes.Clone(records) // the waves are used again
		j.happen(group)
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
		j.happen(group)
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

// time notes that a commit begins, and returns what notes its end.
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

// join puts the records of a group in a row, and says whether somebody hears of it.
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

// put lays the large values of a group aside, before a record names them (C-LOG-5).
func (j *journal) put(group []*wave) error {
	if j.planted.Has(plant.SkipPut) {
		return nil
	}
	for _, w := range group {
		for _, v := range w.values {
			if err := j.reign.Put(j.ctx, v.ref, v.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// happen lets waves happen, and gives them back.
func (j *journal) happen(group []*wave) {
	for _, w := range group {
		j.performer.perform(w)
		select {
		case j.spare <- w:
		default:
		}
	}
}

// save saves a snapshot of the journal up to here.
func (j *journal) save(p *pictured) error {
	return j.reign.Save(j.ctx, j.reign.Mark(), p.bytes, p.keep)
}

// saveMeanwhile saves a snapshot of the journal up to here while the journal goes on.
func (j *journal) saveMeanwhile(p *pictured) {
	at := j.reign.Mark()
	j.room = p.room
	j.saver.Go(func() {
		if err := j.reign.Save(j.ctx, at, p.bytes, p.keep); err != nil {
			j.broken <- err // and there is no other: saving stays true
			return
		}
		j.saving.Store(false)
		j.performer.handler.queue.nudge() // there may be room for another that makes more
	})
}

// saveLast saves the snapshot that a hand-over waits for.
func (j *journal) saveLast(p *pictured) error {
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

// laid is a value that lies aside.
type laid struct {
	ref   coord.Ref
	value []byte
}

// pictured is a snapshot to be saved.
type pictured struct {
	bytes []byte
	keep  []coord.Ref
	room  int             // how much the journal may grow meanwhile
	saved chan<- struct{} // closed when it is; or nil
}

// growth is what the owner knows of the size of its journal.
type growth struct {
	last   coord.Time // when something was last added
	bytes  int        // of records since the last snapshot
	base   int        // of the last snapshot
	values int64      // laid aside since the last snapshot
	kept   int64      // laid aside for the last snapshot

	// For the room in the store.
	stale    int64 // laid aside before the last snapshot, not needed for it, and removed with the next
	replaced int64 // what goes when the last snapshot is saved
	live     int64 // of all keys and values at the last snapshot
}

// tick is when time itself must be noted, if a deadline is pending.
func (g *growth) tick() coord.Time { return g.last + tickPeriod }

// grown says whether a snapshot is worth its while: it shall not cost more than what it replaces.
func (g *growth) grown(least int) bool {
	return g.bytes >= g.room(least) || g.values >= max(leastValues, g.kept)
}

// room is how many bytes of records are not worth a snapshot.
func (g *growth) room(least int) int { return max(least, 2*g.base) }

// next is the growth after a snapshot. What it does not keep of the values goes with it, if it was laid aside
// before the snapshot before; and else with the next.
func (g growth) next(base int, kept, live int64) growth {
	dropped := max(0, g.kept+g.values-kept)
	stale := min(g.values, dropped)
	return growth{
		last: g.last, base: base, kept: kept, live: live, stale: stale,
		replaced: int64(g.base+g.bytes) + g.stale + dropped - stale,
	}
}

// record adds the last step to the wave, if it is one to remember (C-LOG-1).
func (o *owner) record() {
	ev, ok := o.machine.Journaled()
	if !ok {
		return
	}
	before := len(o.wave.records)
	o.wave.records = coord.AppendRecord(o.wave.records, o.machine.Now(), ev, o.aside)
	o.size.last = o.now
	o.size.bytes += len(o.wave.records) - before
}

// aside notes that a value must be written on its own.
func (o *owner) aside(value []byte) coord.Ref {
	if o.asked != nil {
		named, _ := o.asked.word.([]laid)
		for _, v := range named {
			o.refs[&v.value[0]] = v.ref
		}
	}
	ref := o.refs.of(value)
	o.wave.values = append(o.wave.values, laid{ref, value})
	o.size.values += ref.Size
	return ref
}

// picture adds a snapshot to the wave, for the state after it.
func (o *owner) picture() *pictured {
	p, kept := &pictured{}, int64(0)
	refs := make(refs)
	before := header{o.settings, o.history.last}.append(nil)
	p.bytes = o.machine.AppendSnapshot(before, func(value []byte) coord.Ref {
		ref := o.refs.of(value)
		if _, twice := refs[&value[0]]; !twice {
			p.keep = append(p.keep, ref)
			kept += ref.Size
		}
		refs[&value[0]] = ref
		return ref
	})
	o.refs = refs // what is not in the machine any more is forgotten
	o.size = o.size.next(len(p.bytes), kept, o.machine.StoreBytes())
	p.room = o.size.room(o.leastGrowth)
	o.wave.snapshot = p
	return p
}

// refs remembers the names of large values, by where they lie, so that each is read only once to find
// its name.
type refs map[*byte]coord.Ref

func (r refs) of(value []byte) coord.Ref {
	if ref, ok := r[&value[0]]; ok && ref.Size == int64(len(value)) {
		return ref
	}
	ref := name(value)
	r[&value[0]] = ref
	return ref
}

func name(value []byte) coord.Ref {
	return coord.Ref{Digest: sha256.Sum256(value), Size: int64(len(value))}
}

// namedValues finds the large values of a call and names them. It is done by the goroutine that read
// the call: a value of a gigabyte takes a second, for which the owner has no time.
func namedValues(ev coord.Event) (all []laid) {
	if !coord.KindOf(ev).Row().Changes {
		return nil
	}
	coord.AppendRecord(nil, 0, ev, func(value []byte) coord.Ref {
		all = append(all, laid{name(value), value})
		return all[len(all)-1].ref
	})
	return all
}
