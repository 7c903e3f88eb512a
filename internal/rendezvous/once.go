package rendezvous

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Once is a flag for meetings that are needed only until one of them has succeeded, such as those before the first use of a
// thing that all participants must have ready. One flag may guard several meetings, also at the same time. The zero value is not
// complete.
type Once struct {
	complete atomic.Bool // set once, under mu

	mu      sync.Mutex
	present int  // participants of meetings under way
	met     bool // a meeting has succeeded
}

// Complete says whether meetings with this flag are not needed any more.
func (o *Once) Complete() bool { return o.complete.Load() }

// enter notes a participant, unless the flag is complete.
func (o *Once) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.complete.Load() {
		return false
	}
	o.present++
	return true
}

// leave notes that a participant leaves its meeting. The last one completes the flag, if any of the meetings has succeeded.
func (o *Once) leave(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.present--
	o.met = o.met || err == nil
	if o.present == 0 && o.met {
		o.complete.Store(true)
	}
}

// JoinOnce is [Table.Join] while the flag is not complete, and then returns at once, without a result: joined says which (CL-RDV-12).
//
// The flag becomes complete when the last participant leaves of all meetings that it guards. A participant stays until
// all others of its meeting have come, so either all participants of a meeting join or none does. Meetings that fail do not complete the flag: the
// next callers try again. A participant that is late for a meeting which failed gets the error of the others, as with Join.
func (t *Table[K, V, R]) JoinOnce(ctx context.Context, once *Once, key K, p Place[V], lead func(values []V) (R, error)) (result R, joined bool, err error) {
	if !once.enter() {
		err = t.missed(key)
		return result, err != nil, err
	}
	defer func() { once.leave(err) }()
	result, err = t.Join(ctx, key, p, lead)
	return result, true, err
}

// missed is tooLate for a caller that would not join.
func (t *Table[K, V, R]) missed(key K) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tooLate(key)
}
