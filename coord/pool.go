package coord

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// A pool holds every error and result of a snapshot once, in the order of their first use;
// everything else in the snapshot names them by number. One outcome is often that of ten thousand
// calls: a barrier of ten thousand tasks that timed out has one error, with ten thousand names in
// it, and without the pool the snapshot would have a hundred million names.
//
// An outcome may name earlier ones: the error of a task has the error that brought it about. So
// an outcome is written after those that it needs, and read in one pass.
type pool struct {
	// Writing: all outcomes so far in their form, and their numbers from 1, by form and by
	// pointer.
	written []byte
	numbers map[string]uint64 // of what was written, from 1
	known   map[any]uint64    // the same, by pointer

	// Reading: the outcomes by their number, less one.
	read []any
}

// newPool makes a pool that is empty, to be written or to be read into.
func newPool() *pool {
	return &pool{numbers: make(map[string]uint64), known: make(map[any]uint64)}
}

// shared writes the number of an error or a result; nil has 0.
func (c *coder) shared(p *any) {
	var n uint64
	if !c.reading && *p != nil {
		n = c.pool.number(*p, c.aside)
	}
	unsigned(c, &n)
	switch {
	case !c.reading || n == 0:
	case n > uint64(len(c.pool.read)):
		c.failf("outcome %d of %d", n, len(c.pool.read))
	default:
		*p = c.pool.read[n-1]
	}
}

// number finds the number of an error or a result, or writes it and gives it one. Two that are
// written in the same bytes have the same number: whether two calls share one error in memory
// depends on the way to this state, and a snapshot must not.
func (p *pool) number(x any, aside func([]byte) Ref) uint64 {
	key := identity(x)
	if n := p.known[key]; n != 0 {
		return n
	}
	c := &coder{aside: aside, pool: p}
	c.pooled(&x)
	if c.err != nil {
		panic(fmt.Sprintf("coord: %T cannot be written: %v", x, c.err))
	}
	// The errors that x names were written by now, and have lower numbers.
	n := p.numbers[string(c.b)]
	if n == 0 {
		n = uint64(len(p.numbers)) + 1
		p.numbers[string(c.b)] = n
		p.written = append(p.written, c.b...)
	}
	// Remembered by pointer as well, so that the next ten thousand calls with this outcome are
	// quick.
	if key != nil {
		p.known[key] = n
	}
	return n
}

// identity is a key by which an outcome that was written before is found without writing it
// again, or nil. Errors and alive sets are shared by pointer, devices by their first byte.
func identity(x any) any {
	switch x := x.(type) {
	case error, *Alive:
		return x
	case AllDevices:
		if len(x.Devices) > 0 {
			return &x.Devices[0]
		}
	}
	return nil
}

// readPool reads the pool of a snapshot.
func (c *coder) readPool() {
	for range c.count(0) {
		var x any
		if c.pooled(&x); c.err != nil {
			return
		}
		c.pool.read = append(c.pool.read, x)
	}
}

// The kinds of errors and results.
const (
	// The numbers are those of the format: they are never used again for another kind.
	kindSentinel byte = iota + 1
	kindTaskError
	kindLostError
	kindBarrierError
	kindKeyError
	kindLimitError
	kindMismatchError
	kindInvalidError
	kindDone
	kindRegistered
	kindPassed
	kindValue
	kindAlive
	kindAllDevices
)

// sentinels are the plain errors, by their number. A new one is added at the end: the numbers are
// in the journals of running jobs.
var sentinels = serry.Sentinels()

// pooled writes or reads an error, or a result of a call that is kept for its request id. Reads
// have no request id, so their results are never kept and have no kind here.
func (c *coder) pooled(p *any) {
	kind := outcomeKind(*p)
	c.byte(&kind)
	switch kind {
	case kindSentinel:
		c.sentinel(p)
	case kindTaskError:
		pointed(c, p, c.taskErrorFields)
	case kindLostError:
		pointed(c, p, c.lostErrorFields)
	case kindBarrierError:
		pointed(c, p, c.barrierErrorFields)
	case kindKeyError:
		pointed(c, p, func(e *serry.KeyError) { c.string(&e.Key); c.string(&e.Value); c.error(&e.Err) })
	case kindLimitError:
		pointed(c, p, func(e *serry.LimitError) { c.string(&e.Limit); signed(c, &e.Max) })
	case kindMismatchError:
		pointed(c, p, func(e *serry.MismatchError) { unsigned(c, &e.Requested); unsigned(c, &e.Current) })
	case kindInvalidError:
		pointed(c, p, func(e *serry.InvalidError) { c.string(&e.What) })
	case kindDone:
		*p = Done{}
	case kindRegistered:
		plain(c, p, func(r *Registered) { unsigned(c, &r.Service) })
	case kindPassed:
		plain(c, p, func(r *Passed) { signed(c, &r.Counter) })
	case kindValue:
		plain(c, p, func(r *Value) { c.string(&r.Key); c.value(&r.Value) })
	case kindAlive:
		pointed(c, p, c.aliveFields)
	case kindAllDevices:
		plain(c, p, func(r *AllDevices) { c.value(&r.Devices) })
	default:
		c.failf("outcome of kind %d", kind)
	}
}

// outcomeKind finds the kind of an outcome, or 0 for one that is to be read.
func outcomeKind(x any) byte {
	switch x.(type) {
	case nil:
		return 0 // to be read
	case *serry.TaskError:
		return kindTaskError
	case *serry.LostError:
		return kindLostError
	case *serry.BarrierError:
		return kindBarrierError
	case *serry.KeyError:
		return kindKeyError
	case *serry.LimitError:
		return kindLimitError
	case *serry.MismatchError:
		return kindMismatchError
	case *serry.InvalidError:
		return kindInvalidError
	case Done:
		return kindDone
	case Registered:
		return kindRegistered
	case Passed:
		return kindPassed
	case Value:
		return kindValue
	case *Alive:
		return kindAlive
	case AllDevices:
		return kindAllDevices
	case error:
		return kindSentinel
	}
	panic(fmt.Sprintf("coord: %T is no result that is kept", x))
}

// pointed lists the fields of an outcome that is used by pointer.
func pointed[T any](c *coder, p *any, of func(*T)) {
	if c.reading {
		*p = new(T)
	}
	of((*p).(*T))
}

// plain lists the fields of an outcome that is a value.
func plain[T any](c *coder, p *any, of func(*T)) {
	var x T
	if !c.reading {
		x = (*p).(T)
	}
	of(&x)
	*p = x
}

// sentinel writes a plain error as its place in [serry.Sentinels].
func (c *coder) sentinel(p *any) {
	at := -1
	if !c.reading {
		if at = slices.Index(sentinels, (*p).(error)); at < 0 {
			panic(fmt.Sprintf("coord: error without a number: %v", *p))
		}
	}
	signed(c, &at)
	switch {
	case !c.reading || c.err != nil:
	// A number beyond the list is that of a later version.
	case at < 0 || at >= len(sentinels):
		c.failf("error %d of %d", at, len(sentinels))
	default:
		*p = sentinels[at]
	}
}

// taskErrorFields lists the fields of the error of a task. Was and Now are those of a restart,
// Code and Text those of a report, Reason is another error of the pool.
func (c *coder) taskErrorFields(e *serry.TaskError) {
	c.task(&e.Task)
	unsigned(c, &e.Incarnation)
	c.string(&e.Evidence)
	signed(c, &e.Code)
	c.string(&e.Text)
	unsigned(c, &e.Was)
	unsigned(c, &e.Now)
	c.error(&e.Reason)
	c.error(&e.Err)
}

// lostErrorFields lists the tasks that were lost together; there is at least one in every error.
func (c *coder) lostErrorFields(e *serry.LostError) {
	list(c, &e.Lost, func(t **serry.TaskError) {
		if c.taskError(t); *t == nil {
			c.failf("a loss of nobody")
		}
	})
}

// barrierErrorFields lists the fields of the error of a barrier. Missing may be long: that is why
// a pool has each error once.
func (c *coder) barrierErrorFields(e *serry.BarrierError) {
	c.string(&e.ID)
	signed(c, &e.Counter)
	signed(c, &e.Sent)
	c.task(&e.Task)
	c.task(&e.First)
	list(c, &e.Missing, c.task)
	signed(c, &e.Arrived)
	signed(c, &e.Members)
	c.error(&e.Reason)
	c.error(&e.Err)
}

// aliveFields lists an answer about an alive set, whose three lists are of one length.
func (c *coder) aliveFields(a *Alive) {
	list(c, &a.Tasks, c.task)
	list(c, &a.Incarnations, func(i *serry.Incarnation) { unsigned(c, i) })
	list(c, &a.Words, c.value)
	if len(a.Incarnations) != len(a.Tasks) || len(a.Words) != len(a.Tasks) {
		c.failf("%d tasks alive with %d incarnations", len(a.Tasks), len(a.Incarnations))
	}
}

// error writes the number of an error, or 0 for none.
func (c *coder) error(p *error) {
	var x any
	if *p != nil {
		x = *p
	}
	c.shared(&x)
	if !c.reading || x == nil {
		return
	}
	// The number may be that of a result: then the snapshot is damaged.
	err, ok := x.(error)
	if !ok {
		c.failf("%T for an error", x)
	}
	*p = err
}

// taskError is error where only the error of a task may stand.
func (c *coder) taskError(p **serry.TaskError) {
	var err error
	if *p != nil {
		err = *p
	}
	c.error(&err)
	if !c.reading || err == nil {
		return
	}
	e, ok := err.(*serry.TaskError)
	if !ok {
		c.failf("%T for the error of a task", err)
	}
	*p = e
}
