package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
)

var errProducer = errors.New("the producer met a NaN in step 7")

func TestPromiseIsSatisfiedOnce(t *testing.T) {
	clause.Cite(t, "TR-OBJ-8", "TRT-014")
	p := newPool(t)
	promise, e := p.Event()
	if e.State() != transfer.Unrecorded {
		t.Fatalf("State() = %v; want unrecorded", e.State())
	}
	if !promise.Set(errProducer) {
		t.Error("first Set() = false; want true")
	}
	other, bound := p.Event()
	other.Set(nil)
	if promise.Set(nil) || promise.Bind(bound) {
		t.Error("second Set() or Bind() = true; want false")
	}
	promise.Drop()
	if err := e.Wait(t.Context()); err != errProducer || e.State() != transfer.Failed {
		t.Errorf("Wait() = %v in state %v; want the first error", err, e.State())
	}
}

func TestDroppedPromiseFails(t *testing.T) {
	clause.Cite(t, "TR-OBJ-9", "TRT-013")
	t.Run("found by the garbage collector", func(t *testing.T) {
		p := &transfer.Pool{Trace: true}
		_, e := p.Event()
		follower, followed := p.Event()
		follower.Bind(e)
		for ended := false; !ended; {
			runtime.GC()
			select {
			case <-followed.Done():
				ended = true
			case <-time.After(time.Millisecond):
			}
		}
		if !errors.Is(followed.Err(), transfer.ErrAbandoned) {
			t.Errorf("Err() = %v; want ErrAbandoned", followed.Err())
		}
		if open, abandoned, _ := p.Promises(); open != 0 || abandoned != 1 {
			t.Errorf("Promises() = %d, %d; want none open, one dropped", open, abandoned)
		}
	})
	t.Run("dropped by its owner", func(t *testing.T) {
		p := &transfer.Pool{Trace: true}
		promise, e := p.Event()
		if open, _, origins := p.Promises(); open != 1 || len(origins) != 1 {
			t.Errorf("Promises() = %d with %d origins; want the one that is open", open, len(origins))
		}
		promise.Drop()
		promise.Drop()
		if !errors.Is(e.Err(), transfer.ErrAbandoned) {
			t.Errorf("Err() = %v; want ErrAbandoned", e.Err())
		}
		if open, abandoned, origins := p.Promises(); open != 0 || abandoned != 1 || len(origins) != 0 {
			t.Errorf("Promises() = %d, %d, %v; want one dropped", open, abandoned, origins)
		}
	})
}

func TestCallbacksRunOnThePool(t *testing.T) {
	clause.Cite(t, "TR-OBJ-10", "TR-ASY-3", "TR-ASY-6")
	p := newPool(t)
	const waiting = 10000
	promise, e := p.Event()
	var mu sync.Mutex
	called := 0
	mu.Lock() // a callback on this goroutine would wait for this lock for ever
	for range waiting {
		e.After(func(error) {
			mu.Lock()
			defer mu.Unlock()
			called++
		})
	}
	promise.Set(nil)
	e.After(func(error) { // of an event that has ended
		mu.Lock()
		defer mu.Unlock()
		called++
	})
	mu.Unlock()
	p.Flush()
	if called != waiting+1 {
		t.Errorf("%d callbacks ran; want %d", called, waiting+1)
	}
}

func TestJoinWaitsForAll(t *testing.T) {
	clause.Cite(t, "TR-OBJ-3")
	p := newPool(t)
	first, a := p.Event()
	second, b := p.Event()
	j := p.Join(a, p.Ready(), b)
	second.Set(errProducer)
	if j.State() != transfer.Unrecorded {
		t.Errorf("State() = %v after the second of two; want unrecorded", j.State())
	}
	first.Set(nil)
	if err := j.Wait(t.Context()); err != errProducer {
		t.Errorf("Wait() = %v; want the error itself, unchanged", err)
	}
	if e := p.Join(); e.State() != transfer.Complete {
		t.Errorf("Join() of nothing is %v", e.State())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errProducer)
	open, e := p.Event()
	if err := e.Wait(ctx); err != errProducer {
		t.Errorf("Wait() = %v; want the cause of the context", err)
	}
	open.Set(nil)
}

// Events that are bound to and joined from others end as a model says, whatever the order in which promises are satisfied:
// when the last of them has ended, with the first error in the order of the list.
func TestChainsOfEvents(t *testing.T) {
	clause.Cite(t, "TR-OBJ-3", "TR-OBJ-8")
	rapid.Check(t, func(t *rapid.T) {
		p := &transfer.Pool{}
		c := chain{pool: p}
		leaves := rapid.IntRange(1, 8).Draw(t, "leaves")
		promises := make([]*transfer.Promise, leaves)
		for i := range promises {
			var e *transfer.Event
			promises[i], e = p.Event()
			c.events, c.of = append(c.events, e), append(c.of, nil)
		}
		for range rapid.IntRange(0, 12).Draw(t, "nodes") {
			c.add(rapid.SliceOfN(rapid.IntRange(0, len(c.events)-1), 1, 4).Draw(t, "of"), rapid.Bool().Draw(t, "bound"))
		}
		c.ended = make([]bool, leaves)
		c.errs = make([]error, leaves)
		for _, i := range rapid.Permutation(numbers(leaves)).Draw(t, "order") {
			c.ended[i] = true
			if rapid.Bool().Draw(t, "fails") {
				c.errs[i] = fmt.Errorf("leaf %d", i)
			}
			promises[i].Set(c.errs[i])
			c.compare(t)
		}
	})
}

// numbers are those below n.
func numbers(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// A chain is events, and which others each of them waits for.
type chain struct {
	pool   *transfer.Pool
	events []*transfer.Event
	of     [][]int // nil for leaves
	ended  []bool  // of leaves
	errs   []error
}

func (c *chain) add(of []int, bound bool) {
	var list []*transfer.Event
	for _, i := range of {
		list = append(list, c.events[i])
	}
	e := c.pool.Join(list...)
	if bound {
		promise, follower := c.pool.Event()
		promise.Bind(e)
		e = follower
	}
	c.events, c.of = append(c.events, e), append(c.of, of)
}

// model says how event i ends, and whether it has.
func (c *chain) model(i int) (ended bool, err error) {
	if c.of[i] == nil {
		return c.ended[i], c.errs[i]
	}
	for _, j := range c.of[i] {
		done, e := c.model(j)
		if !done {
			return false, nil
		}
		if err == nil {
			err = e
		}
	}
	return true, err
}

func (c *chain) compare(t *rapid.T) {
	for i, e := range c.events {
		ended, err := c.model(i)
		if got := e.State(); (got >= transfer.Complete) != ended || ended && e.Err() != err {
			t.Fatalf("event %d of %v is %v, %v; want ended %v with %v", i, c.of, got, e.Err(), ended, err)
		}
	}
}

func TestTwoLevels(t *testing.T) {
	clause.Cite(t, "TR-OBJ-2", "TR-OBJ-4", "TR-ASY-2")
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		r := transfer.NewRecorder(p, &fakeDevice{})
		producer, consumer := &fakeQueue{work: 100 * time.Millisecond}, &fakeQueue{work: time.Millisecond}
		b, _ := bufferOf(t, p, []byte("old"))
		got, _ := bufferOf(t, p, make([]byte, 3))
		began := time.Now()

		promise, later := p.Event() // the work is not even enqueued
		if ok, err := r.Behind(consumer, later); ok || err != nil {
			t.Errorf("Behind(unrecorded) = %v, %v; want that the processor waits", ok, err)
		}
		use, _ := b.Use(t.Context())
		src := use.Memory()
		fresh, _ := bufferOf(t, p, []byte("new"))
		fu, _ := fresh.Use(t.Context())
		producer.Copy(src, fu.Memory())
		promise.Bind(r.Record(producer, nil))
		<-later.Recorded()
		if time.Since(began) != 0 || later.State() != transfer.Recorded {
			t.Errorf("recorded after %v in state %v; want at once", time.Since(began), later.State())
		}
		for range 2 {
			if ok, err := r.Behind(consumer, later); !ok || err != nil {
				t.Errorf("Behind(recorded) = %v, %v", ok, err)
			}
			r.Behind(producer, later)
		}
		if consumer.afters != 1 || producer.afters != 0 {
			t.Errorf("%d waits on the other queue, %d on its own; want 1, 0", consumer.afters, producer.afters)
		}
		gu, _ := got.Use(t.Context())
		consumer.Copy(gu.Memory(), src)
		if err := r.Record(consumer, nil).Wait(t.Context()); err != nil {
			t.Errorf("Wait() = %v", err)
		}
		if string(gu.Memory().Bytes()) != "new" || time.Since(began) < 101*time.Millisecond {
			t.Errorf("copied %q after %v; want what the producer wrote", gu.Memory().Bytes(), time.Since(began))
		}
		r.Flush(t.Context())
		for _, b := range []*transfer.Buffer{b, got, fresh} {
			b.Delete()
		}
	})
}

// A recorder that waits for long work looks at it seldom, and still sees soon that short work beside it is done.
func TestRecordLooksSeldom(t *testing.T) {
	clause.Cite(t, "TR-ASY-2")
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		r := transfer.NewRecorder(p, &fakeDevice{})
		long, short := &fakeQueue{work: 10 * time.Second}, &fakeQueue{work: time.Millisecond}
		region := bytesOf(t, p, "a")
		long.Copy(region, region)
		slow := r.Record(long, nil)
		time.Sleep(5 * time.Second)
		long.mu.Lock()
		if long.looks > 5500 { // one a millisecond, and more of them at first
			t.Errorf("%d looks in 5 s; want about 5,000", long.looks)
		}
		long.mu.Unlock()

		began := time.Now()
		short.Copy(region, region)
		r.Record(short, nil).Wait(t.Context())
		if d := time.Since(began); d > 1200*time.Microsecond {
			t.Errorf("work of 1 ms was seen to be done after %v", d)
		}
		slow.Wait(t.Context())
		r.Flush(t.Context())
	})
}

func TestRecordNeverStaysOpen(t *testing.T) {
	clause.Cite(t, "TR-ASY-2", "TR-ASY-4")
	errLaunch := errors.New("the second of two copies was refused")
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		device := &fakeDevice{}
		r := transfer.NewRecorder(p, device)
		q := &fakeQueue{work: time.Second}

		refused := &fakeQueue{refuses: errors.New("no mark left")}
		if e := r.Record(refused, errLaunch); !errors.Is(e.Err(), errLaunch) || !errors.Is(e.Err(), refused.refuses) {
			t.Errorf("Err() = %v; want the launch and the mark", e.Err())
		}

		began := time.Now()
		bad := bytesOf(t, p, "a")
		q.Copy(bad, bad)
		half := r.Record(q, errLaunch)
		if half.State() != transfer.Recorded {
			t.Errorf("State() = %v; want recorded, because the first copy uses its memory", half.State())
		}
		if err := half.Wait(t.Context()); !errors.Is(err, errLaunch) || time.Since(began) < time.Second {
			t.Errorf("Wait() = %v after %v; want the launch's error when the device is done", err, time.Since(began))
		}

		q.Copy(bad, bad)
		lost := r.Record(q, nil)
		joined := p.Join(lost, p.Ready())
		time.Sleep(time.Millisecond)
		device.lose()
		if err := joined.Wait(t.Context()); !errors.Is(err, errDevice) {
			t.Errorf("Wait() = %v; want the loss of the device", err)
		}
		if ok, err := r.Behind(q, joined); ok || !errors.Is(err, errDevice) {
			t.Errorf("Behind(failed) = %v, %v; want its error", ok, err)
		}
		r.Flush(t.Context())
	})
}
