package match_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/transfer/internal/match"
)

var (
	schedules = flag.Uint64("schedules", 800, "how many schedules of transfers to play")
	firstSeed = flag.Uint64("first", 1, "the seed of the first")
)

// Transfers between two processes, over a medium that loses, doubles, delays and reorders messages and cuts connections,
// while processes are killed and replaced. Make transfers plays many schedules; -first n -schedules 1 plays one, and shows
// it.
func TestTransfersInTheStorm(t *testing.T) {
	clause.Cite(t, "TR-ASY-1", "TR-ASY-5", "TR-TMO-5", "TR-CAN-4", "TR-MAT-2", "TR-MAT-4", "TR-ORD-4", "TR-ERR-4", "TR-ERR-5", "TRT-180", "TRT-184", "TRT-192", "TRT-202", "TR-H-18")
	seen := make(map[match.Code]int)
	unconfirmed, corrected := 0, 0
	for seed := *firstSeed; seed < *firstSeed+*schedules; seed++ {
		w, err := play(seed, 0, *schedules == 1)
		if *schedules == 1 {
			t.Log("\n" + w.trace.String())
		}
		if err != nil {
			t.Fatalf("schedule %d: %v\nto see it: go test ./transfer/internal/match -run TestTransfersInTheStorm -v -first %d -schedules 1", seed, err, seed)
		}
		for _, o := range w.all() {
			for _, v := range o.ends {
				seen[v.Code]++
				if v.Unconfirmed {
					unconfirmed++
				}
			}
			if o.corrected != nil {
				corrected++
			}
		}
	}
	t.Logf("%d schedules from %d on: %v, %d unconfirmed, %d corrected", *schedules, *firstSeed, seen, unconfirmed, corrected)
	for _, c := range []match.Code{match.OK, match.Cancelled, match.Late, match.Unavailable, match.Internal, match.Invalid} {
		if *schedules >= 500 && (seen[c] == 0 || unconfirmed == 0 || corrected == 0) {
			t.Errorf("no transfer ended %v, or none was unconfirmed or corrected", c)
		}
	}
}

// TestPlantedFaultsAreFound shows that the storm finds mistakes of the kinds that machines like these make.
func TestPlantedFaultsAreFound(t *testing.T) {
	const most = 2000
	for _, fault := range plant.All() {
		if fault < plant.SenderDecides || fault > plant.EarlyRelease {
			continue
		}
		t.Run(fault.String(), func(t *testing.T) {
			for seed := uint64(1); seed <= most; seed++ {
				if _, err := play(seed, fault, false); err != nil {
					t.Logf("found after %d schedules: %v", seed, err)
					return
				}
			}
			t.Errorf("not found in %d schedules", most)
		})
	}
}

const (
	stormy = 40 * time.Second // after that nothing is lost any more
	long   = 10 * time.Minute // a deadline that a transfer which can go on never needs
	grace  = 60 * time.Second // for everything to end when nothing is lost any more
)

// play lets a schedule happen, and judges it.
func play(seed uint64, planted plant.Faults, trace bool) (*world, error) {
	w := newWorld(seed, planted)
	if trace {
		w.trace = new(strings.Builder)
	}
	w.present.up()
	for range 20 + w.rand.IntN(40) {
		w.after(time.Duration(w.rand.Int64N(int64(stormy))), w.something)
	}
	w.run(stormy)
	w.healed = true
	w.present.up()
	w.run(stormy + grace)
	if w.broken == nil {
		w.judgeProgress()
	}
	w.run(2 * long)
	if w.broken == nil {
		w.judge()
	}
	return w, w.broken
}

// something is one random event of a schedule.
func (w *world) something() {
	p := w.present
	e := p.ends[w.rand.IntN(2)]
	switch n := w.rand.IntN(100); {
	case n < 55:
		w.postPair()
	case n < 65:
		w.pick(e, func(o *op) {
			o.wishedAt = w.now
			e.m.Cancel(w.now, o.Ref, match.Verdict{Code: match.Cancelled, Text: "by " + e.name})
		})
	case n < 85:
		p.cut(w.rand.IntN(2) == 0)
		w.after(time.Duration(w.rand.IntN(6000))*time.Millisecond, p.up)
	case n < 88:
		w.kill(w.rand.IntN(2))
		w.after(time.Duration(w.rand.IntN(2000))*time.Millisecond, w.present.up)
	}
}

// pick calls f for an operation that has not ended, if there is one.
func (w *world) pick(e *end, f func(*op)) {
	var open []*op
	for _, o := range e.ops {
		if len(o.ends) == 0 {
			open = append(open, o)
		}
	}
	if len(open) == 0 {
		return
	}
	slices.SortFunc(open, func(x, y *op) int { return int(x.Ref) - int(y.Ref) })
	f(open[w.rand.IntN(len(open))])
	e.perform()
}

// postPair posts both halves of a few transfers, or one half, at random times and in random order.
func (w *world) postPair() {
	p := w.present
	from := w.rand.IntN(2)
	for range 1 + w.rand.IntN(4) {
		w.next++
		id := match.ID{Namespace: uint64(w.rand.IntN(2)), Key: uint64(w.rand.IntN(40)), Src: 0, Dst: 1}
		if from == 1 {
			id.Src, id.Dst = 1, 0
		}
		shape := match.Shape{Bytes: []int64{0, 1, 7, 40}[w.rand.IntN(4)], Digest: 5, Text: "u8"}
		for _, sends := range []bool{true, false} {
			o := match.Op{Send: sends, ID: id, Shape: shape, Deadline: w.now + long}
			e := p.ends[from]
			if !sends {
				e = p.ends[1-from]
			}
			switch w.rand.IntN(12) {
			case 0:
				o.Deadline = w.now + time.Duration(w.rand.IntN(8000))*time.Millisecond
			case 1:
				o.Shape.Digest = 6 // another type
			case 2:
				continue // its half never comes
			}
			w.after(w.delay(), func() { w.postHalf(e, o) })
		}
	}
}

// postHalf posts an operation whose memory is ready later, or never.
func (w *world) postHalf(e *end, o match.Op) {
	if e.dead || e.lost {
		return
	}
	o.Ready = w.rand.IntN(3) > 0
	o.Carried = o.Shape.Bytes > 0 && w.rand.IntN(3) > 0
	if o.Send && e.session != 0 && w.rand.IntN(2) == 0 {
		o.Place = match.Place{Arena: uint64(e.session), Offset: int64(w.next) + 1}
	}
	state, err := e.post(o)
	if err == nil && o.Send && w.rand.IntN(4) == 0 {
		w.after(w.delay(), func() { e.place(state) })
	}
	if err != nil || o.Ready {
		return
	}
	fails := w.rand.IntN(4) == 0
	wait := w.delay()
	if o.Send && !o.Place.Known() && state.Ref%3 == 0 {
		w.after(0, func() {
			if !e.dead {
				e.m.Early(w.now, state.Ref)
				e.perform()
			}
		})
		wait += time.Duration(state.Ref%29) * time.Second // longer than bytes may not come
	}
	w.after(wait, func() {
		if e.dead {
			return
		}
		if fails {
			state.wishedAt = min(state.wishedAt, w.now)
			e.m.Fail(w.now, state.Ref, match.Verdict{Code: match.Internal, Text: "no memory at " + e.name})
		} else {
			state.readied = true
			e.m.Ready(w.now, state.Ref)
		}
		e.perform()
	})
}

// all lists the operations of all lives, in the order in which they were posted.
func (w *world) all() (list []*op) {
	for _, p := range w.pairs {
		for _, e := range p.ends {
			for _, o := range e.ops {
				list = append(list, o)
			}
		}
	}
	slices.SortFunc(list, func(x, y *op) int { return int(x.Ref) - int(y.Ref) })
	return list
}

// other finds the other half of a transfer.
func (e *end) other(o *op) *op {
	for _, q := range e.peer.ops {
		if q.ID == o.ID && q.Send != o.Send {
			return q
		}
	}
	return nil
}

// judgeProgress looks at transfers some time after nothing was lost any more: those with both halves have ended, and those
// that nothing spoke against have ended well.
func (w *world) judgeProgress() {
	for _, e := range w.present.ends {
		for _, o := range e.ops {
			q := e.other(o)
			switch {
			case q == nil && o.wishedAt == match.Never:
				continue
			case len(o.ends) == 0:
				w.breaks("%s: transfer %v has not ended: it waits for %v", e.name, o.ID, e.m.Waits())
			case q == nil, o.wishedAt < match.Never, q.wishedAt < match.Never, o.Shape != q.Shape:
			case min(o.Deadline-o.posted, q.Deadline-q.posted) < long:
			case o.ends[0].Code != match.OK:
				w.breaks("%s: transfer %v ended %v; nothing spoke against it", e.name, o.ID, o.ends[0])
			}
		}
	}
}

// judge looks at everything when all deadlines have passed.
func (w *world) judge() {
	for _, p := range w.pairs {
		for _, e := range p.ends {
			for _, o := range e.ops {
				e.judge(o)
			}
			if left := e.m.Waits(); !e.dead && (len(left) > 0 || e.m.Deadline() < match.Never) {
				w.breaks("%s: the machine still has %v, and wakes at %v", e.name, left, e.m.Deadline())
			}
			if !e.dead && e.m.Met() {
				w.breaks("%s: the machine says that halves have met; none is left", e.name)
			}
		}
	}
}

func (e *end) judge(o *op) {
	w, q := e.pair.world, e.other(o)
	if len(o.ends) == 0 {
		if !e.dead {
			w.breaks("%s: transfer %v never ended", e.name, o.ID)
		}
		return
	}
	v := o.ends[0]
	latest := max(o.posted, o.Deadline) + 3*time.Second + 10*time.Millisecond // one detection interval, and the time to stop
	if o.Deadline < match.Never && o.endedAt > latest {
		w.breaks("%s: transfer %v ended at %v; its deadline was at %v", e.name, o.ID, o.endedAt, o.Deadline)
	}
	switch {
	case o.Send && v.Code == match.OK && (q == nil || len(q.ends) == 0 || q.ends[0].Code != match.OK):
		w.breaks("%s: the sender of %v ended well, the receiver did not", e.name, o.ID)
	case o.Send && q != nil && !e.pair.over && v.Unconfirmed && len(q.ends) > 0:
		if o.corrected == nil || o.corrected.Code != q.ends[0].Code {
			w.breaks("%s: transfer %v was unconfirmed, then corrected to %v; the receiver ended %v", e.name, o.ID, o.corrected, q.ends[0])
		}
	case o.Send && q != nil && !e.pair.over && !v.Unconfirmed && v.Code != match.OK && len(q.ends) > 0 && q.ends[0].Code == match.OK:
		w.breaks("%s: the sender of %v ended %v for certain, the receiver well", e.name, o.ID, v)
	case !o.Send && v.Code == match.OK:
		for i, from := range o.content {
			if q == nil || from != q.Ref {
				w.breaks("%s: byte %d of transfer %v came from %d; want %v", e.name, i, o.ID, from, q)
				return
			}
		}
	}
	if w.tame && q != nil && v.Code == match.Cancelled && len(q.ends) > 0 && q.ends[0].Code != match.Cancelled && q.ends[0].Code != match.Late {
		w.breaks("%s: transfer %v ended %v here and %v there, with contact all the time", e.name, o.ID, v, q.ends[0])
	}
}
