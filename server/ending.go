package server

import (
	"context"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/wire"
)

// An Ending is a service as its journal leaves it. It answers as the service would have at its last record (D-EV-7), but for what
// is not journaled: when tasks were last heard, what they called last, and the account of their time.
type Ending struct {
	past *recollection
	now  coord.Time // of its pictures
}

// Recall runs a recorded history to its end. Republished is as in [Replay].
func Recall(ctx context.Context, j store.Journal, republished func(key string, stored, offered []byte) bool) (*Ending, error) {
	r, err := recall(ctx, j, republished)
	if err != nil {
		return nil, err
	}
	return &Ending{past: r, now: r.machine.Now()}, nil
}

// Status is a picture of the service at its last record. Its clock is zero where the journal does not tell the time of day: no
// record has it, and service time stands still while no server leads.
func (e *Ending) Status(q wire.StatusQuery) wire.Status {
	view := e.past.machine.View()
	view.Now = e.now
	r := e.past.notes.report(coord.Status{View: view}, e.past.wall(e.now))
	for _, b := range r.View.Barriers {
		r.Usual = append(r.Usual, e.past.usual.of(b.ID))
	}
	return wire.NewStatus(r, q)
}

// Value is the value of a key, if there is one.
func (e *Ending) Value(key string) (value []byte, ok bool) {
	v, ok := e.ask(coord.TryGetKeyValue{Call: coord.Call{Req: 1}, Key: key}).(coord.Value)
	return v.Value, ok
}

// List returns everything below a directory.
func (e *Ending) List(_ context.Context, dir string) ([]serry.Entry, error) {
	all, _ := e.ask(coord.GetKeyValueDir{Call: coord.Call{Req: 1}, Dir: dir}).(coord.Entries)
	return all.Entries, nil
}

// Sizes are the keys below a directory, with the sizes of their values; empty: all.
func (e *Ending) Sizes(dir string) []coord.KeySize {
	all, _ := e.ask(coord.ListKeys{Call: coord.Call{Req: 1}, Dir: dir}).(coord.Sizes)
	return all.Keys
}

// ask steps the machine with a call that only reads, and returns its result, or nil. The call is answered at once, so any
// number will do for it. It changes no state, so any number of questions may be asked at any time of the history.
func (e *Ending) ask(ev coord.Event) coord.Result {
	for _, effect := range e.past.machine.Step(e.past.machine.Now(), ev) {
		if r, ok := effect.(coord.Reply); ok && r.Err == nil {
			return r.Result
		}
	}
	return nil
}

// wall is what a wall clock showed at a service time, or zero.
func (r *recollection) wall(at coord.Time) time.Time {
	if r.zero.IsZero() {
		return time.Time{}
	}
	return r.zero.Add(time.Duration(at))
}
