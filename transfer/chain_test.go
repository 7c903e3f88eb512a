package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// A value that has not come is read, copied and sent on; a copy of one that is not defined is sent. Everything is submitted before
// the first byte can leave.
func TestChains(t *testing.T) {
	clause.Cite(t, "TR-RCV-8", "TR-OBJ-2", "TRT-031", "TRT-032")
	onEach(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, b, c := all[0], all[1], all[2]
		promise, definition := a.Pool().Event()
		want := fill(100_000, 1)
		src := a.buffer(want, definition)
		copied, err := a.Copy(t.Context(), src, a.device)
		if err != nil {
			t.Fatal(err)
		}
		op := a.sendOp(b, 1, nil)
		op.Buffer = copied
		sent, got := a.begin(t.Context(), op), b.receive(a, 1, len(want))
		read := make(chan []byte, 1)
		got.Buffer.Definition().After(func(error) {
			u, err := got.Buffer.Use(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			read <- bytes.Clone(u.Memory().Bytes())
			u.Drop()
		})
		again, err := b.Copy(t.Context(), got.Buffer, b.device)
		if err != nil {
			t.Fatal(err)
		}
		on := b.sendOp(c, 1, nil)
		on.Buffer = got.Buffer
		relayed, last := b.begin(t.Context(), on), c.receive(b, 1, len(want))
		for name, e := range map[string]*transfer.Event{"the copy": copied.Definition(), "what was received": got.Event, "the second copy": again.Definition(), "the last": last.Event} {
			if e.State() != transfer.Unrecorded {
				t.Errorf("%s is %v before the source is defined", name, e.State())
			}
		}
		promise.Set(nil)
		if !bytes.Equal(content(t, last.Buffer), want) || !bytes.Equal(content(t, again), want) || !bytes.Equal(<-read, want) {
			t.Error("a link of the chain has other bytes")
		}
		if err := errors.Join(sent.Event.Wait(t.Context()), relayed.Event.Wait(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A small send overtakes a large one, unless both keep their order.
func TestSendsInOrder(t *testing.T) {
	clause.Cite(t, "TR-ORD-8", "TRT-190")
	for _, inOrder := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.pair()
			w.network.setPace(time.Millisecond)
			sizes := []int{32 << 20, 100, 8 << 20, 0, 10_000}
			var sends []transfer.Op
			for i, size := range sizes {
				op := a.sendOp(b, uint64(i), fill(size, uint64(i)))
				op.InOrder = inOrder
				sends = append(sends, op)
			}
			var ended []int
			for i := len(sizes) - 1; i >= 0; i-- { // the receiver is in another order
				b.receive(a, uint64(i), sizes[i])
			}
			g, err := a.Transfer(t.Context(), sends)
			if err != nil {
				t.Fatal(err)
			}
			for len(ended) < len(sizes) {
				for i, item := range g.Items() {
					if item.Event.State() >= transfer.Complete && !slices.Contains(ended, i) {
						ended = append(ended, i)
					}
				}
				time.Sleep(100 * time.Microsecond)
			}
			if err := g.Done().Err(); err != nil {
				t.Error(err)
			}
			if slices.IsSorted(ended) != inOrder {
				t.Errorf("InOrder: %v: sends ended as %v", inOrder, ended)
			}
		})
	}
}

// A send that keeps its order waits for one that fails, and then goes; what waits for its turn can be cancelled.
func TestOrderAfterAFailure(t *testing.T) {
	clause.Cite(t, "TR-ORD-8", "TR-GRP-7")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		promise, definition := a.Pool().Event()
		first := a.sendOp(b, 1, nil)
		first.Buffer, first.InOrder = a.buffer([]byte("bad"), definition), true
		second, third := a.sendOp(b, 2, []byte("cancelled")), a.sendOp(b, 3, []byte("good"))
		second.InOrder, third.InOrder = true, true
		one := a.begin(t.Context(), first)
		ctx, cancel := context.WithCancel(t.Context())
		two := a.begin(ctx, second)
		three := a.begin(t.Context(), third)
		b.receive(a, 1, 3)
		got := b.receive(a, 3, 4)
		time.Sleep(time.Second)
		if got.Event.State() != transfer.Unrecorded {
			t.Error("the third send did not wait")
		}
		cancel()
		if err := two.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) {
			t.Errorf("the second send = %v; want ErrCancelled", err)
		}
		time.Sleep(time.Second)
		if got.Event.State() != transfer.Unrecorded {
			t.Error("the third send has overtaken the first, because the one between them was cancelled")
		}
		promise.Set(errProducer)
		if err := one.Event.Wait(t.Context()); err != errProducer {
			t.Errorf("the first send = %v; want the error of its producer", err)
		}
		if string(content(t, got.Buffer)) != "good" || three.Event.Wait(t.Context()) != nil {
			t.Error("the third send is wrong")
		}
	})
}

// Each deadline is kept at its own time, in whatever order they were set.
func TestDeadlinesOfTheirOwn(t *testing.T) {
	clause.Cite(t, "TR-TMO-4", "TRT-103", "TR-H-2")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		began := time.Now()
		type wait struct {
			item transfer.Item
			d    time.Duration
		}
		var waits []wait
		for i, d := range []time.Duration{3 * time.Second, time.Hour, time.Second, 2 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			waits = append(waits, wait{a.begin(ctx, a.sendOp(b, uint64(i), []byte("x"))), d})
		}
		for range 17 {
			for _, x := range waits {
				if ended, due := x.item.Event.State() >= transfer.Complete, time.Since(began) >= x.d; ended != due {
					t.Fatalf("after %v the transfer with a deadline of %v has ended: %v", time.Since(began), x.d, ended)
				}
			}
			time.Sleep(250 * time.Millisecond)
			synctest.Wait()
		}
	})
}

// A list is refused as a whole because of one entry: the text names it, and what was taken for the others is given back.
func TestOneOfAListIsRefused(t *testing.T) {
	clause.Cite(t, "TR-PRE-1", "TR-PRE-2", "TR-PRE-4", "TR-PAB-1", "TRT-007", "TRT-010")
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(1, 0).Task, 2: life(0, 0).Task}
		taken, freed := 0, 0
		w.engine.Alloc = func(n int64) (transfer.Memory, error) {
			taken++
			return transfer.Memory{Region: memory.Of(make([]byte, n)), Free: func() { freed++ }}, nil
		}
		a, b := w.pair()
		into := a.buffer(make([]byte, 3), nil)
		good := []transfer.Op{{Key: transfer.Key{Seq: 1}, Src: 1, Dst: 0, Spec: bytesSpec(10)}, {Key: transfer.Key{Seq: 2}, Src: 1, Dst: 0, Buffer: into}}
		local := transfer.Op{Key: transfer.Key{Seq: 3}, Src: 0, Dst: 2, Buffer: a.buffer([]byte("x"), a.Pool().Ready())}
		if _, err := a.Transfer(t.Context(), append(good, local)); !errors.Is(err, serry.ErrInvalid) || !strings.Contains(err.Error(), "transfer 2 of 3") || !strings.Contains(err.Error(), "devices 0 and 2 are both of this process") {
			t.Errorf("Transfer() = %v; want ErrInvalid, with the place in the list and both devices", err)
		}
		if err := into.Definition().Wait(t.Context()); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("content of the buffer that was to be received into = %v; want the error of the call", err)
		}
		shapeless := transfer.Op{Key: transfer.Key{Seq: 4}, Src: 1, Dst: 0, Spec: transfer.Spec{Type: memory.F32, Dims: []int64{-1}}}
		if _, err := a.Transfer(t.Context(), []transfer.Op{good[0], shapeless}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Transfer() of no shape = %v; want ErrInvalid", err)
		}
		synctest.Wait()
		if taken != 2 || freed != taken {
			t.Errorf("memory was taken %d times, and given back %d times; want 2 and 2", taken, freed)
		}
		if n := len(a.Records()) + len(b.Records()); n != 0 {
			t.Errorf("%d transfers began", n)
		}
	})
}
