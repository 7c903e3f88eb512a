package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// Many programs send and wait over one link at once, in both directions. Each has a rhythm of its own, so that
// the reading of the small lane goes from goroutine to goroutine in all ways. No answer is lost or late.
func TestManyWaiters(t *testing.T) {
	clause.Cite(t, "CL-TRN-1", "CL-TRN-2")
	for _, programs := range []int{1, 2, 16} {
		t.Run(fmt.Sprintf("programs=%d", programs), func(t *testing.T) {
			onEach(t, func(t *testing.T, w *world) {
				a, b := w.ends()
				var all sync.WaitGroup
				for p := range uint64(programs) {
					asks, answers := a, b
					if p%2 == 1 {
						asks, answers = b, a
					}
					all.Go(func() { pingPong(t, asks, p, false) })
					all.Go(func() { pingPong(t, answers, p, true) })
				}
				all.Wait()
				if s := a.Stats(); s.Expected != 0 || s.Parked != 0 || link.Watched(a) != 0 {
					t.Errorf("left over: %+v, %d watched", s, link.Watched(a))
				}
			})
		})
	}
}

// pingPong is one end of a program that sends small messages there and back.
func pingPong(t *testing.T, l *link.Link, program uint64, answers bool) {
	for i := range uint64(60) {
		there, back := data(link.Transfer, program<<32|i<<1), data(link.Transfer, program<<32|i<<1|1)
		question, answer := fill(8+int(i), i), fill(8+int(i), program)
		receive, send, want, out := back, there, answer, question
		if answers {
			receive, send, want, out = there, back, question, answer
		}
		got := make([]byte, len(want))
		expected, err := l.Expect(receive, got)
		if err == nil && !answers {
			_, err = l.Post(send, out)
		}
		if err == nil && (i+program)%5 == 0 {
			<-expected.Done()
		}
		if err == nil {
			err = expected.Wait(t.Context())
		}
		if err == nil && answers {
			_, err = l.Post(send, out)
		}
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("program %d, message %d: %v", program, i, err)
			return
		}
	}
}

// await waits for a small message, and calls meanwhile before the peer sends it.
func await(t *testing.T, from, to *link.Link, seq uint64, meanwhile func()) {
	t.Helper()
	awaitUnder(t, t.Context(), from, to, seq, meanwhile)
}

// awaitUnder is await with a context.
func awaitUnder(t *testing.T, ctx context.Context, from, to *link.Link, seq uint64, meanwhile func()) {
	t.Helper()
	h := data(link.Transfer, seq)
	expected, err := to.Expect(h, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- expected.Wait(ctx) }()
	synctest.Wait()
	meanwhile()
	if _, err := from.Post(h, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
}

// lend waits for some messages. Then no goroutine reads the small lane, and the next one that waits does.
func lend(t *testing.T, from, to *link.Link, seq uint64) {
	t.Helper()
	for i := range uint64(3) {
		await(t, from, to, seq<<8|i, func() {})
	}
}

// A goroutine that waits gets its message at once, whichever goroutine was reading the small lane when it began
// to wait, and although that one has left.
func TestNoWaitIsForgotten(t *testing.T) {
	clause.Cite(t, "CL-TRN-2")
	for _, begin := range []string{"before others", "while another waits", "after others"} {
		for _, way := range []string{"Done", "Wait"} {
			t.Run(way+" "+begin, func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					a, b := w.pair()
					h := data(link.Transfer, 1)
					expected, err := b.Expect(h, make([]byte, 8))
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan struct{})
					wait := func() {
						if way == "Done" {
							expected.Done()
						}
						go func() {
							defer close(ended)
							expected.Wait(t.Context())
						}()
						synctest.Wait()
					}
					start := time.Now()
					if begin == "before others" {
						wait()
					}
					lend(t, a, b, 2)
					if begin == "while another waits" {
						await(t, a, b, 3, wait)
					}
					if begin == "after others" {
						wait()
					}
					if _, err := a.Post(h, make([]byte, 8)); err != nil {
						t.Fatal(err)
					}
					<-ended
					if took := time.Since(start); took > 0 {
						t.Errorf("the message took %v; want no time", took)
					}
				})
			})
		}
	}
}

// A guarded handler needs a lock for each frame.
type guarded struct {
	observer
	lock chan struct{} // with room for one
}

func (g *guarded) Frame(l *link.Link, h link.Header, payload []byte) {
	g.lock <- struct{}{}
	g.observer.Frame(l, h, payload)
	<-g.lock
}

// A handler may need a lock that a goroutine in Wait holds: no handler runs in the goroutine of Wait. Frames reach
// their handler at once while a goroutine waits, and soon after the last one has.
func TestFramesDuringWait(t *testing.T) {
	clause.Cite(t, "CL-TRN-1", "CL-TRN-2")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		g := &guarded{lock: make(chan struct{}, 1)}
		if err := n.Handle(link.Transfer, g); err != nil {
			t.Fatal(err)
		}
		a, b := w.linked(m, n)
		frame := func() {
			h := link.Header{Family: link.Transfer, Type: link.Pull, Class: link.Urgent, Stream: 7}
			if _, err := a.Post(h, []byte("pull")); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		told := func(want int) {
			t.Helper()
			if frames, _ := g.seen(); len(frames) != want {
				t.Errorf("%d frames; want %d", len(frames), want)
			}
		}
		lend(t, a, b, 1)
		expected, err := b.Expect(data(link.Transfer, 5), make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		g.lock <- struct{}{} // as if the goroutine in Wait had it
		waited := make(chan error, 1)
		go func() {
			waited <- expected.Wait(t.Context())
			<-g.lock
		}()
		synctest.Wait()
		frame()
		expected.Cancel(errors.New("no more"))
		if err := <-waited; !errors.Is(err, link.ErrCancelled) {
			t.Errorf("Wait() of a cancelled message = %v; want %v", err, link.ErrCancelled)
		}
		synctest.Wait()
		told(1)
		lend(t, a, b, 2)
		start := time.Now()
		await(t, a, b, 3, func() {
			frame()
			told(2)
			lend(t, a, b, 4) // by the goroutine that has read the frame
		})
		if took := time.Since(start); took > 0 {
			t.Errorf("the message took %v; want no time", took)
		}
		lend(t, a, b, 5)
		frame()
		time.Sleep(link.MaxFree)
		told(3)
	})
}

// A frame for a handler that comes when no goroutine reads the small lane is not left for long, however seldom the peer is
// pinged.
func TestFreeLaneIsRead(t *testing.T) {
	clause.Cite(t, "CL-TRN-1")
	inBubble(t, func(t *testing.T, w *world) {
		w.options.Timing = link.Timing{Ping: time.Hour, Suspect: 4 * time.Hour, Dead: 5 * time.Hour}
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		var o observer
		if err := n.Handle(link.Transfer, &o); err != nil {
			t.Fatal(err)
		}
		a, b := w.linked(m, n)
		for i := range 5 {
			lend(t, a, b, uint64(i+1))
			if _, err := a.Post(link.Header{Family: link.Transfer, Type: link.Pull, Class: link.Urgent, Stream: 7}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(link.MaxFree)
			synctest.Wait()
			if frames, _ := o.seen(); len(frames) != i+1 {
				t.Fatalf("%d frames after %v; want %d", len(frames), link.MaxFree, i+1)
			}
			time.Sleep(time.Duration(i) * 9 * time.Millisecond) // to begin at other times between two scans
		}
	})
}

// A goroutine that reads the small lane while it waits leaves when its message is cancelled, when its context
// ends, and when the link is lost; and the link goes on if there is one.
func TestWaitEnds(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-10")
	cause := errors.New("enough")
	for _, tt := range []struct {
		name string
		end  func(w *world, l *link.Link, e *link.Ticket, cancel context.CancelCauseFunc)
		want error
	}{
		{"cancelled", func(_ *world, _ *link.Link, e *link.Ticket, _ context.CancelCauseFunc) { e.Cancel(cause) }, cause},
		{"context", func(_ *world, _ *link.Link, _ *link.Ticket, cancel context.CancelCauseFunc) { cancel(cause) }, cause},
		{"forgotten while it looks", func(w *world, l *link.Link, _ *link.Ticket, _ context.CancelCauseFunc) {
			w.network.lingers.Store(true)
			defer w.network.lingers.Store(false)
			l.Forget(link.Transfer, 77, 0, cause)
		}, cause},
		{"forgotten", func(_ *world, l *link.Link, _ *link.Ticket, _ context.CancelCauseFunc) {
			l.Forget(link.Transfer, 77, 0, cause)
		}, cause},
		{"closed", func(_ *world, l *link.Link, _ *link.Ticket, _ context.CancelCauseFunc) { l.Shutdown(cause) }, link.ErrClosed},
		{"lost", func(w *world, l *link.Link, _ *link.Ticket, _ context.CancelCauseFunc) {
			w.network.kill(hostOf(l.Peer()))
		}, link.ErrPeerFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.pair()
				lend(t, a, b, 1)
				expected, err := b.Expect(data(link.Transfer, 77), make([]byte, 8))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				waited := make(chan error, 1)
				go func() { waited <- expected.Wait(ctx) }()
				synctest.Wait()
				tt.end(w, b, expected, cancel)
				if err := <-waited; !errors.Is(err, tt.want) {
					t.Errorf("Wait() = %v; want %v", err, tt.want)
				}
				if b.Err() == nil {
					lend(t, a, b, 2)
					exchange(t, a, b, 100)
				}
			})
		})
	}
}

// A wait over a socket, where the reader looks before it sleeps, ends however near the moments are at which it begins to
// read and at which its message is given up.
func TestNoKickIsLost(t *testing.T) {
	clause.Cite(t, "CL-TRN-10")
	w := &world{job: newJob(), t: t}
	a, b := w.pair()
	cause := errors.New("enough")
	for n := range uint64(4000) {
		for i := range uint64(2) { // then no goroutine reads the small lane, and the next one that waits does
			exchangeSmall(t, a, b, n<<8|i)
		}
		h := data(link.Transfer, n<<8|2)
		e, err := b.Expect(h, make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		begun, waited := make(chan struct{}), make(chan error, 1)
		go func() {
			close(begun)
			waited <- e.Wait(t.Context())
		}()
		<-begun
		for i := range n % 400 { // another moment each time
			spins.Store(i)
		}
		b.Forget(link.Transfer, h.Stream, h.Generation, cause)
		if err := <-waited; !errors.Is(err, cause) {
			t.Fatalf("wait %d = %v; want %v", n, err, cause)
		}
	}
}

// exchangeSmall sends a small message to a goroutine that waits for it.
func exchangeSmall(t *testing.T, from, to *link.Link, seq uint64) {
	t.Helper()
	h := data(link.Transfer, seq)
	expected, err := to.Expect(h, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	go from.Post(h, make([]byte, 8)) // if it fails the wait does, too
	if err := expected.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// spins is written to pass a few nanoseconds.
var spins atomic.Uint64

// A registry is a context that knows how many functions are to be called at its end.
type registry struct {
	context.Context
	done chan struct{}

	mu        sync.Mutex
	functions map[int]func() // guarded by mu
	ever      int            // how many there were; guarded by mu
}

func newRegistry(parent context.Context) *registry {
	return &registry{Context: parent, done: make(chan struct{}), functions: make(map[int]func())}
}

func (r *registry) Done() <-chan struct{} { return r.done }

func (r *registry) Err() error {
	select {
	case <-r.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc implements what context.AfterFunc looks for.
func (r *registry) AfterFunc(f func()) (stop func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.ever
	r.functions[n] = f
	r.ever++
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, there := r.functions[n]
		delete(r.functions, n)
		return there
	}
}

func (r *registry) cancel() {
	close(r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	for n, f := range r.functions {
		delete(r.functions, n)
		go f()
	}
}

// want compares how many functions are registered, and how many ever were.
func (r *registry) want(t *testing.T, now, ever int) {
	t.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.functions) != now || r.ever != ever {
		t.Errorf("%d functions are registered with the context, %d ever were; want %d and %d", len(r.functions), r.ever, now, ever)
	}
}

// Goroutines that read the small lane one after the other with one context register with it once. The link lets go of
// a context when a goroutine with another one reads, when the lane has its own goroutine again, and when the link ends.
func TestWaitsShareTheirContext(t *testing.T) {
	clause.Cite(t, "CL-TRN-5", "CL-TRN-10")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		first, second := newRegistry(t.Context()), newRegistry(t.Context())
		seq := uint64(1)
		wait := func(r *registry) {
			t.Helper()
			seq++
			awaitUnder(t, r, a, b, seq, func() {})
		}
		lend(t, a, b, 1<<40)
		for range 3 {
			wait(first)
		}
		first.want(t, 1, 1)
		wait(second)
		first.want(t, 0, 1)
		second.want(t, 1, 1)
		time.Sleep(link.MaxFree)
		second.want(t, 0, 1)

		lend(t, a, b, 1<<41)
		wait(first)
		first.cancel() // wakes no reader, and the next one in error
		wait(second)
		second.want(t, 1, 2)
		b.Shutdown(errors.New("enough"))
		second.want(t, 0, 2)
	})
}

// A small message there and back allocates what the two calls of Expect return, and nothing more.
func TestTripAllocates(t *testing.T) {
	clause.Cite(t, "CL-TRN-3")
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	w := &world{job: newJob(), t: t}
	a, b := w.pair()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	memory, seq := make([]byte, 8), uint64(0)
	receive := func(from, to *link.Link) {
		seq++
		h := data(link.Transfer, seq)
		expected, err := to.Expect(h, memory)
		if err == nil {
			_, err = from.Post(h, memory)
		}
		if err == nil {
			err = expected.Wait(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := testing.AllocsPerRun(2000, func() {
		receive(a, b)
		receive(b, a)
	})
	if got > 2 {
		t.Errorf("a small message there and back takes %v allocations; want 2", got)
	}
}
