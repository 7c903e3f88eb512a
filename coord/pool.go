package coord

import (
	"fmt"
	"slices"

	"github.com/serry-dev/serry"
)

// A pool holds every error and result of a snapshot once, in the order of their first use: one
// outcome is often that of ten thousand calls. A later one may name earlier ones.
type pool struct {
	written []byte
	numbers map[string]uint64 // of what was written, from 1
	known   map[any]uint64    // the same, by pointer
	read    []any
}

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
		c.failf("thing %d of %d", n, len(c.pool.read))
	default:
		*p = c.pool.read[n-1]
	}
}

// number finds or gives the number of an error or a result.
func (p *pool) number(x any, aside func([]byte) Ref) uint64 {
	key := identity(x)
	if n := p.known[key]; n != 0 {
		return n
	}
	c := &coder{aside: aside, pool: p}
	c.thing(&x)
	if c.err != nil {
		panic(fmt.Sprintf("coord: %T cannot be written: %v", x, c.err))
	}
	n := p.numbers[string(c.b)]
	if n == 0 {
		n = uint64(len(p.numbers)) + 1
		p.numbers[string(c.b)] = n
		p.written = append(p.written, c.b...)
	}
	if key != nil {
		p.known[key] = n
	}
	return n
}

// identity is what tells at a glance that two are the same, or nil.
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

// things reads the pool of a snapshot.
func (c *coder) things() {
	for range c.count(0) {
		var x any
		if c.thing(&x); c.err != nil {
			return
		}
		c.pool.read = append(c.pool.read, x)
	}
}

// The kinds of errors and results.
const (
	thingSentinel byte = iota + 1
	thingTaskError
	thingLostError
	thingBarrierError
	thingKeyError
	thingLimitError
	thingMismatchError
	thingInvalidError
	thingDone
	thingRegistered
	thingPassed
	thingValue
	thingAlive
	thingAllDevices
)

// sentinels are the plain errors, by their number.
var sentinels = serry.Sentinels()

// thing writes or reads an error, or a result of a call that is kept for its id.
func (c *coder) thing(p *any) {
	kind := kindOfThing(*p)
	c.byte(&kind)
	switch kind {
	case thingSentinel:
		c.sentinel(p)
	case thingTaskError:
		pointed(c, p, c.taskErrorFields)
	case thingLostError:
		pointed(c, p, c.lostErrorFields)
	case thingBarrierError:
		pointed(c, p, c.barrierErrorFields)
	case thingKeyError:
		pointed(c, p, func(e *serry.KeyError) { c.string(&e.Key); c.string(&e.Value); c.error(&e.Err) })
	case thingLimitError:
		pointed(c, p, func(e *serry.LimitError) { c.string(&e.Limit); signed(c, &e.Max) })
	case thingMismatchError:
		pointed(c, p, func(e *serry.MismatchError) { unsigned(c, &e.Requested); unsigned(c, &e.Current) })
	case thingInvalidError:
		pointed(c, p, func(e *serry.InvalidError) { c.string(&e.What) })
	case thingDone:
		*p = Done{}
	case thingRegistered:
		plain(c, p, func(r *Registered) { unsigned(c, &r.Service) })
	case thingPassed:
		plain(c, p, func(r *Passed) { signed(c, &r.Counter) })
	case thingValue:
		plain(c, p, func(r *Value) { c.string(&r.Key); c.value(&r.Value) })
	case thingAlive:
		pointed(c, p, c.aliveFields)
	case thingAllDevices:
		plain(c, p, func(r *AllDevices) { c.value(&r.Devices) })
	default:
		c.failf("thing of kind %d", kind)
	}
}

func kindOfThing(x any) byte {
	switch x.(type) {
	case nil:
		return 0 // to be read
	case *serry.TaskError:
		return thingTaskError
	case *serry.LostError:
		return thingLostError
	case *serry.BarrierError:
		return thingBarrierError
	case *serry.KeyError:
		return thingKeyError
	case *serry.LimitError:
		return thingLimitError
	case *serry.MismatchError:
		return thingMismatchError
	case *serry.InvalidError:
		return thingInvalidError
	case Done:
		return thingDone
	case Registered:
		return thingRegistered
	case Passed:
		return thingPassed
	case Value:
		return thingValue
	case *Alive:
		return thingAlive
	case AllDevices:
		return thingAllDevices
	case error:
		return thingSentinel
	}
	panic(fmt.Sprintf("coord: %T is no result that is kept", x))
}

// pointed lists the fields of a thing that is used by pointer.
func pointed[T any](c *coder, p *any, of func(*T)) {
	if c.reading {
		*p = new(T)
	}
	of((*p).(*T))
}

// plain lists the fields of a thing that is a value.
func plain[T any](c *coder, p *any, of func(*T)) {
	var x T
	if !c.reading {
		x = (*p).(T)
	}
	of(&x)
	*p = x
}

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
	case at < 0 || at >= len(sentinels):
		c.failf("error %d of %d", at, len(sentinels))
	default:
		*p = sentinels[at]
	}
}

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

func (c *coder) lostErrorFields(e *serry.LostError) {
	list(c, &e.Lost, func(t **serry.TaskError) {
		if c.taskError(t); *t == nil {
			c.failf("a loss of nobody")
		}
	})
}

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

func (c *coder) aliveFields(a *Alive) {
	list(c, &a.Tasks, c.task)
	list(c, &a.Incarnations, func(i *serry.Incarnation) { unsigned(c, i) })
	list(c, &a.Words, c.value)
	if len(a.Incarnations) != len(a.Tasks) || len(a.Words) != len(a.Tasks) {
		c.failf("%d tasks alive with %d incarnations", len(a.Tasks), len(a.Incarnations))
	}
}

// error writes the number of an error.
func (c *coder) error(p *error) {
	var x any
	if *p != nil {
		x = *p
	}
	c.shared(&x)
	if !c.reading || x == nil {
		return
	}
	err, ok := x.(error)
	if !ok {
		c.failf("%T for an error", x)
	}
	*p = err
}

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
