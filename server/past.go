package server

import (
	"context"
	"slices"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// A Past is a recorded history that people look at as of any time of it. One goroutine at a time calls it.
//
// A machine steps forward only. So a look at a later time goes on where the last one was, and a look at an earlier time plays the
// history again from its beginning. That takes 0.3 s for the 150,000 records that a journal has before a snapshot takes its place
// (BenchmarkPast).
type Past struct {
	open func() (*tape, *recollection, error) // set in OpenPast, then constant
	span Span                                 // the same

	tape *tape // or nil: the next look begins at the beginning
	seen *recollection
	last coord.Time // time of the last look
}

// A Span is the times of a recorded history.
type Span struct {
	Begin, End coord.Time
	Records    int
	Wall       time.Time    // what a wall clock showed at service time 0; zero: that is not known at the end
	Moments    []coord.Time // when something happened, ascending; of a long history [momentsKept] at most, evenly
}

// momentsKept is how many moments a [Span] has at most.
const momentsKept = 4096

// OpenPast plays a history once, to see that it can be read and which times it has. Republished is as in [Replay]. The context is
// that of all later calls, too; the journal must stay open.
//
// So a history is played twice: here for its times, and again when the first look comes. The machine of the first pass stands at
// the end, and cannot go back to the time of the look.
func OpenPast(ctx context.Context, j store.Journal, republished func(key string, stored, offered []byte) bool) (*Past, error) {
	p := &Past{open: func() (*tape, *recollection, error) {
		r := &recollection{refs: make(refs)}
		t, b, err := openTape(ctx, j, coord.Config{Service: 1, Republished: republished}, r.refs)
		if err != nil {
			return nil, nil, err
		}
		r.begin(t.machine, b)
		return t, r, nil
	}}
	t, r, err := p.open()
	if err != nil {
		return nil, err
	}
	defer t.close()
	moments := []coord.Time{r.machine.Now()}
	for {
		step, ok, err := t.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		r.follow(step)
		p.span.Records++
		if step.At != moments[len(moments)-1] {
			moments = append(moments, step.At)
		}
	}
	p.span.Begin, p.span.End, p.span.Wall = moments[0], moments[len(moments)-1], r.zero
	p.span.Moments = thinned(moments, momentsKept)
	return p, nil
}

// thinned takes times out of an ascending list, so that most are left at most: of those that are close together the first stays.
// The span is cut into most-1 slices of equal length, each of which keeps its first time. The last time of all stays, too, so that
// a person can look at the end.
func thinned(all []coord.Time, most int) []coord.Time {
	if len(all) <= most {
		return all
	}
	first, last := all[0], all[len(all)-1]
	slice := (last-first)/coord.Time(most-1) + 1
	at := coord.Time(-1)
	kept := slices.DeleteFunc(slices.Clone(all[:len(all)-1]), func(t coord.Time) bool {
		same := (t-first)/slice == at
		at = (t - first) / slice
		return same
	})
	return append(kept[:min(len(kept), most-1)], last)
}

// Span says which times there are.
func (p *Past) Span() Span { return p.span }

// At returns the service as it was at a time, when everything had happened that happened until then. It is good until the next
// call. An event is looked at before it is stepped, since the machine cannot go back. After an error the next call begins at the
// beginning.
func (p *Past) At(ctx context.Context, at coord.Time) (*Ending, error) {
	at = min(max(at, p.span.Begin), p.span.End)
	if p.tape == nil || at < p.last {
		p.Close()
		var err error
		if p.tape, p.seen, err = p.open(); err != nil {
			p.tape = nil
			return nil, err
		}
	}
	p.last = at
	for {
		next, ok, err := p.tape.peek()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			p.Close()
			return nil, err
		}
		if !ok || next > at {
			return &Ending{past: p.seen, now: at}, nil
		}
		step, _, _ := p.tape.next() // peek has read it
		p.seen.follow(step)
	}
}

// Close frees what the last look holds.
func (p *Past) Close() {
	if p.tape != nil {
		p.tape.close()
		p.tape = nil
	}
}
