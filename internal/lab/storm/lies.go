package storm

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/faultydisk"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/internal/lab/stock"
)

// Of the fleets on real files, one in so many has a disk whose syncs lie: they return, and what they should
// have written is lost with the power. No store can make up for that. It may find its journal damaged, or
// find it as it was at an earlier moment since the last honest sync, and the service goes on from there.
//
// So much is excused from then on, and no more. What was answered before the first lie is there, and every
// answer about a key after the loss follows from that and from some of the calls that were made since. No
// client may wait for ever: it ends of an error, or its calls are answered.
const lyingDisks = 4

// drawLies gives a plan a disk that lies. A second epoch and a watch of keys are left out: what the lost ones
// have told cannot be compared with what comes after them.
func (p *plan) drawLies(r *rand.Rand) {
	p.lies, p.epochs, p.watches, p.rate = true, 1, false, pick(r, 0.5, 0.9, 1)
}

// kinds are the faults of a disk: nearly all of one that lies are lies.
func (p *plan) kinds() []faultydisk.Fault {
	if !p.lies {
		return nil // those that it has by itself
	}
	return append(slices.Repeat([]faultydisk.Fault{faultydisk.SyncLies}, 60), faultydisk.CrashWithin, faultydisk.CrashAfter, faultydisk.SyncFails)
}

// A Rollback is a loss of power on a disk that had lied.
type Rollback struct {
	From history.Moment // of the first lie: everything before is kept
	At   history.Moment // of the loss
}

// rollBack notes that the journal may go back to what it was before the disk began to lie. The schedule ends
// after a while.
func (w *world) rollBack(from history.Moment) {
	w.mu.Lock()
	w.mu.report.RolledBack = &Rollback{from, w.clock.Now()}
	w.mu.Unlock()
	w.struck(rollBack)
	w.note("the power is lost, and the disk has lied")
	w.work.Go(w.reckon)
}

// rolledBack says whether the service may have forgotten something.
func (w *world) rolledBack() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.report.RolledBack != nil
}

// amiss notes an answer that must not be, unless the service may have forgotten what speaks against it.
func (w *world) amiss(format string, args ...any) {
	if w.rolledBack() {
		w.note("excused: "+format, args...)
		return
	}
	w.wrong(format, args...)
}

// damaged notes that a server finds its journal damaged, which is the end of the service.
func (w *world) damaged(format string, args ...any) {
	w.amiss(format, args...)
	w.struck(damage)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.damaged = true
}

func (w *world) isDamaged() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.damaged
}

const (
	// goOn is how long programs go on after the loss.
	goOn = 20 * time.Second

	// answerTime is within which time each of those that have not ended must get an answer then.
	answerTime = 20 * time.Second
)

// reckon lets programs go on for a while after a rollback. Then it asks for a key by each that has not ended,
// which must be answered, and ends the schedule.
func (w *world) reckon() {
	w.pass(goOn, nil)
	if w.over() {
		return
	}
	for _, p := range w.processes() {
		if !w.isDamaged() && p.registered() && !p.over() && !p.isAnswered() && !p.over() && !w.isDamaged() {
			w.wrong("task %d life %d: no answer %v after the loss of power", p.task, p.life, goOn+answerTime)
		}
	}
	w.mu.Lock()
	w.mu.reckoned, w.mu.closing = true, true
	w.mu.Unlock()
	for _, p := range w.processes() {
		p.kill("the schedule is over")
	}
}

// isAnswered makes a call, and says whether it is answered, with whatever.
func (p *proc) isAnswered() bool {
	if p.member != nil {
		ctx, cancel := context.WithTimeout(p.ctx, answerTime)
		defer cancel()
		_, _ = p.member.KV().Get(ctx, "n")
		return ctx.Err() == nil
	}
	_, st, ok := p.callFor(coord.TryGetKeyValue{Call: p.who(), Key: "n"}, time.After(answerTime))
	return !ok || st.Code != stock.Late.Code
}

// kept is what a report says without what may have been lost. A call on a key that was made before the loss,
// and answered after the first lie, may have had its effect or not, as if it had not been answered: its
// answer may have been on its way when the power was lost. Other calls are judged up to the first lie.
func (r *Report) kept() Report {
	if r.RolledBack == nil {
		return *r
	}
	lost := *r.RolledBack
	k := *r
	k.Keys = slices.Clone(r.Keys)
	for i := range k.Keys {
		if c := &k.Keys[i]; c.Call <= lost.At && c.Return > lost.From {
			c.Return, c.Found, c.Absent, c.Exists, c.Other = 0, "", false, false, false
		}
	}
	k.Barriers, k.Rounds, k.Sights = nil, nil, nil
	for _, c := range r.Barriers {
		if c.Call > lost.From {
			continue
		}
		if c.Return > lost.From {
			c.Return, c.Passed, c.Failed = 0, false, ""
		}
		k.Barriers = append(k.Barriers, c)
	}
	for _, c := range r.Rounds {
		if c.Call > lost.From {
			continue
		}
		if c.Return > lost.From {
			c.Return, c.Alive = 0, nil
		}
		k.Rounds = append(k.Rounds, c)
	}
	for _, s := range r.Sights {
		if s.Return <= lost.From {
			k.Sights = append(k.Sights, s)
		}
	}
	return k
}
