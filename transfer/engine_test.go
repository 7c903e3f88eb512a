package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer"
)

func TestSizes(t *testing.T) {
	clause.Cite(t, "TR-SND-1", "TR-SND-7", "TR-RCV-1", "TR-SZE-2", "TR-SZE-3", "TRT-020")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		for i, size := range []int{0, 1, 4095, 4096, 4097, 8192, 8193, 1 << 20, 4<<20 - 1, 4 << 20, 4<<20 + 1, 41 << 20} {
			want := fill(size, uint64(i))
			sent := a.send(b, uint64(i), want)
			got := b.receive(a, uint64(i), size)
			if err := sent.Event.Wait(t.Context()); err != nil {
				t.Fatalf("send of %d bytes = %v", size, err)
			}
			if got.Event.State() != transfer.Complete {
				t.Errorf("the send of %d bytes has ended, the receive is %v (TR-SND-5)", size, got.Event.State())
			}
			if !bytes.Equal(content(t, got.Buffer), want) {
				t.Errorf("%d bytes came out different", size)
			}
		}
	})
}

// A transfer of few bytes whose receive waits takes one round trip, verdict and all: as long as one without any bytes.
func TestSmallTransferTakesOneRoundTrip(t *testing.T) {
	clause.Cite(t, "TR-SZE-7", "TR-SND-5")
	inBubble(t, func(t *testing.T, w *world) {
		const way = 50 * time.Millisecond
		w.link.Timing = link.Timing{Ping: time.Minute, Suspect: 2 * time.Minute, Dead: 3 * time.Minute} // no ping comes in between
		a, b := w.pair()
		trip := func(key uint64, size int) time.Duration {
			got := b.receive(a, key, size)
			synctest.Wait()
			begun := time.Now()
			sent := a.send(b, key, fill(size, key))
			if err := sent.Event.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			if !bytes.Equal(content(t, got.Buffer), fill(size, key)) {
				t.Errorf("%d bytes came out different", size)
			}
			return took
		}
		trip(1, 1) // makes the link
		w.network.mu.Lock()
		w.network.lag = func() time.Duration { return way }
		w.network.mu.Unlock()
		for i, size := range []int{0, 1, 1024} { // what one read of the network takes
			if took := trip(uint64(i)+2, size); took != 2*way {
				t.Errorf("%d bytes took %v; one way takes %v", size, took, way)
			}
		}
		if took := trip(9, 8193); took < 4*way {
			t.Errorf("8193 bytes took %v; want two round trips, or this test shows nothing", took)
		}
	})
}

func TestArgumentsAreCheckedFirst(t *testing.T) {
	clause.Cite(t, "TR-PRE-1", "TR-PRE-2", "TR-PRE-4", "TR-OBJ-7", "TRT-005", "TRT-006", "TRT-008", "TRT-009", "TRT-011")
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(1, 0).Task, 2: life(0, 0).Task, 3: life(1, 0).Task, 4: life(2, 0).Task}
		a, b := w.pair()
		good, deleted := a.buffer([]byte("x"), a.Pool().Ready()), a.buffer([]byte("y"), a.Pool().Ready())
		deleted.Delete()
		defined := a.buffer([]byte("z"), a.Pool().Ready())
		token := transfer.Spec{}
		for name, ops := range map[string][]transfer.Op{
			"nothing":                   {},
			"both ends here":            {{Src: 0, Dst: 2, Buffer: good}},
			"received from this one":    {{Src: 2, Dst: 0, Spec: token}},
			"both ends elsewhere":       {{Src: 1, Dst: 3, Buffer: good}},
			"unknown device":            {{Src: 0, Dst: 99, Buffer: good}},
			"task that is not there":    {{Src: 0, Dst: 4, Buffer: good}},
			"send of nothing":           {{Src: 0, Dst: 1}},
			"deleted buffer":            {{Src: 0, Dst: 1, Buffer: good}, {Src: 0, Dst: 1, Buffer: deleted}},
			"received into old content": {{Src: 1, Dst: 0, Buffer: defined}},
			"no shape":                  {{Src: 1, Dst: 0, Spec: transfer.Spec{Type: 99}}},
		} {
			if g, err := a.Transfer(t.Context(), ops); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Transfer(%s) = %v, %v; want ErrInvalid", name, g, err)
			}
		}
		d, err := good.Donate(t.Context()) // what failed holds nothing
		if err != nil {
			t.Fatal(err)
		}
		if _, ready := d.Confirm(); ready.State() < transfer.Complete {
			t.Error("a call that was refused still uses the buffer")
		}
		if n := len(b.Records()) + len(a.Records()); n != 0 {
			t.Errorf("%d transfers began", n)
		}
	})
}

func TestErrorOfTheData(t *testing.T) {
	clause.Cite(t, "TR-SND-4", "TR-ERR-1", "TR-ERR-4", "TR-OBJ-3", "TRT-026", "TRT-027", "TR-H-9")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		promise, definition := a.Pool().Event()
		began := time.Now()
		op := a.sendOp(b, 1, nil)
		op.Buffer = a.buffer([]byte("bad"), definition)
		sent, got := a.begin(t.Context(), op), b.receive(a, 1, 3)
		time.Sleep(3 * time.Second)
		promise.Set(errProducer)
		if err := sent.Event.Wait(t.Context()); err != errProducer {
			t.Errorf("send = %v; want the error of the producer itself", err)
		}
		err := got.Event.Wait(t.Context())
		if e, ok := errors.AsType[*transfer.Error](err); !ok || !strings.Contains(e.Text, errProducer.Error()) || !errors.Is(err, transfer.ErrFailed) {
			t.Errorf("receive = %v; want what the producer said", err)
		}
		if d := time.Since(began); d > 3100*time.Millisecond {
			t.Errorf("the receiver heard of it after %v", d)
		}
		next := a.send(b, 2, []byte("good"))
		if got := b.receive(a, 2, 4); string(content(t, got.Buffer)) != "good" || next.Event.Wait(t.Context()) != nil {
			t.Error("the next transfer is wrong")
		}
	})
}

func TestMemoryStaysUntilItIsSent(t *testing.T) {
	clause.Cite(t, "TR-OBJ-5", "TR-OBJ-6", "TR-SND-2", "TR-SND-6", "TRT-028", "TRT-029", "TRT-030")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, b, c := all[0], all[1], all[2]
		want := fill(10<<20, 3)
		op := a.sendOp(b, 1, want)
		other := a.sendOp(c, 1, want)
		other.Buffer = op.Buffer // to two processes at once
		g, err := a.Transfer(t.Context(), []transfer.Op{op, other})
		if err != nil {
			t.Fatal(err)
		}
		d, err := op.Buffer.Donate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		memory, ready := d.Confirm()
		if ready.State() >= transfer.Complete {
			t.Fatal("the memory may be written before it was sent")
		}
		got, alsoGot := b.receive(a, 1, len(want)), c.receive(a, 1, len(want))
		ready.Wait(t.Context())
		clear(memory.Region.Bytes())
		if !bytes.Equal(content(t, got.Buffer), content(t, alsoGot.Buffer)) || !bytes.Equal(content(t, got.Buffer), fill(10<<20, 3)) {
			t.Error("the new owner of the memory wrote into the transfer")
		}
		if err := g.Done().Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A value goes back and forth 16 times; everything is submitted before the first byte may leave.
func TestRelay(t *testing.T) {
	clause.Cite(t, "TR-RCV-8", "TR-ORD-2", "TR-ERR-1", "TRT-033")
	for _, fails := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.pair()
			promise, definition := a.Pool().Event()
			buffer := a.buffer([]byte("ping"), definition)
			from, to := a, b
			for i := range uint64(16) {
				op := from.sendOp(to, i, nil)
				op.Buffer = buffer
				from.begin(t.Context(), op)
				buffer = to.receive(from, i, 4).Buffer
				from, to = to, from
			}
			synctest.Wait()
			if buffer.Definition().State() != transfer.Unrecorded {
				t.Fatal("bytes moved before they were there")
			}
			if fails {
				promise.Set(errProducer)
				if err := buffer.Definition().Wait(t.Context()); err == nil || !strings.Contains(err.Error(), errProducer.Error()) {
					t.Errorf("after 16 hops the error is %v", err)
				}
				return
			}
			promise.Set(nil)
			if got := content(t, buffer); string(got) != "ping" {
				t.Errorf("after 16 hops it is %q", got)
			}
		})
	}
}

func TestGroup(t *testing.T) {
	clause.Cite(t, "TR-PAB-1", "TR-PAB-2", "TR-PAB-3", "TR-PAB-4", "TR-RCV-5", "TR-GRP-1", "TR-GRP-5", "TR-GRP-6", "TR-GRP-7",
		"TRT-021", "TRT-022", "TRT-034", "TRT-040", "TRT-041", "TRT-042", "TRT-043", "TRT-044", "TRT-047", "TRT-191", "TR-H-4")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		late, latest := a.Pool().Event()
		into := make([]byte, 5)
		target := b.buffer(into, nil)
		ops := []transfer.Op{a.sendOp(b, 1, []byte("first")), a.sendOp(b, 2, []byte("second")), a.receiveOp(b, 3, 5), a.receiveOp(b, 4, 1)}
		ops[1].After = []*transfer.Event{latest}
		ctx, cancel := context.WithCancelCause(t.Context())
		mine, err := a.Transfer(ctx, ops)
		if err != nil {
			t.Fatal(err)
		}
		prepared := b.receiveOp(a, 1, 5)
		prepared.Buffer = target
		theirs, err := b.Transfer(t.Context(), []transfer.Op{prepared, b.receiveOp(a, 2, 6), b.sendOp(a, 3, []byte("third"))})
		if err != nil {
			t.Fatal(err)
		}
		if string(content(t, target)) != "first" || string(content(t, mine.Items()[2].Buffer)) != "third" {
			t.Error("transfers of the group came out wrong")
		}
		if theirs.Items()[1].Event.State() != transfer.Unrecorded {
			t.Error("a transfer did not wait for its own dependency")
		}
		late.Set(nil)
		if err := theirs.Done().Wait(t.Context()); err != nil || string(content(t, theirs.Items()[1].Buffer)) != "second" {
			t.Errorf("group = %v", err)
		}
		cancel(errors.New("enough")) // one has no partner: the others keep their results
		if err := mine.Done().Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) || !strings.Contains(err.Error(), "enough") {
			t.Errorf("group with a cancelled member = %v", err)
		}
		for i, item := range mine.Items()[:3] {
			if err := item.Event.Err(); err != nil {
				t.Errorf("transfer %d = %v", i, err)
			}
		}
		if n := len(a.net.Links()); n != 1 {
			t.Errorf("both directions use %d links", n)
		}
	})
}

func TestNoMemoryForOne(t *testing.T) {
	clause.Cite(t, "TR-RCV-9", "TRT-035")
	inBubble(t, func(t *testing.T, w *world) {
		w.set(life(1, 11), serry.Connected)
		a := w.start(life(0, 10))
		w.engine.Alloc = func(n int64) (transfer.Memory, error) {
			return transfer.Memory{}, errors.New("none is left")
		}
		b := w.start(life(1, 11))
		first, last := b.receiveOp(a, 1, 3), b.receiveOp(a, 3, 5)
		first.Buffer, last.Buffer = b.buffer(make([]byte, 3), nil), b.buffer(make([]byte, 5), nil)
		g, err := b.Transfer(t.Context(), []transfer.Op{first, b.receiveOp(a, 2, 3), last})
		if err != nil {
			t.Fatal(err)
		}
		sent := []transfer.Item{a.send(b, 1, []byte("one")), a.send(b, 2, []byte("two")), a.send(b, 3, []byte("three"))}
		if err := g.Items()[1].Event.Wait(t.Context()); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("receive = %v; want ErrLimit", err)
		}
		if err := sent[1].Event.Wait(t.Context()); !errors.Is(err, transfer.ErrLimit) || !strings.Contains(err.Error(), "none is left") {
			t.Errorf("send = %v; want ErrLimit of the receiver", err)
		}
		if string(content(t, first.Buffer)) != "one" || string(content(t, last.Buffer)) != "three" || sent[0].Event.Wait(t.Context()) != nil || sent[2].Event.Wait(t.Context()) != nil {
			t.Error("another transfer failed, too")
		}
	})
}

func TestRandomOrder(t *testing.T) {
	clause.Cite(t, "TR-MAT-2", "TR-ORD-4", "TR-GRP-4", "TRT-180", "TRT-186", "TRT-188")
	inBubble(t, func(t *testing.T, w *world) {
		const tasks, count = 9, 1250
		all := w.startAll(tasks)
		ops := make([][]transfer.Op, tasks)
		for k := range uint64(count * (tasks - 1)) { // between task 0 and eight others, in both directions
			other := all[1+k%(tasks-1)]
			from, to := all[0], other
			if k%3 == 0 {
				from, to = to, from
			}
			ops[from.device] = append(ops[from.device], from.sendOp(to, k, fmt.Appendf(nil, "%08d", k)))
			ops[to.device] = append(ops[to.device], to.receiveOp(from, k, 8))
		}
		var groups []*transfer.Group
		for i, list := range ops {
			rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			g, err := all[i].Transfer(t.Context(), list)
			if err != nil {
				t.Fatal(err)
			}
			groups = append(groups, g)
		}
		for i, g := range groups {
			if err := g.Done().Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			for j, item := range g.Items() {
				if want := fmt.Sprintf("%08d", ops[i][j].Key.Seq); string(content(t, item.Buffer)) != want {
					t.Fatalf("transfer %s holds %q", want, content(t, item.Buffer))
				}
			}
		}
	})
}

func TestManySmall(t *testing.T) {
	clause.Cite(t, "TR-SZE-5", "TRT-241")
	inBubble(t, func(t *testing.T, w *world) {
		const count = 100000
		a, b := w.pair()
		var sends, receives []transfer.Op
		buffer := a.buffer(fill(16, 1), a.Pool().Ready())
		for k := range uint64(count) {
			op := a.sendOp(b, k, nil)
			op.Buffer = buffer
			sends, receives = append(sends, op), append(receives, b.receiveOp(a, k, 16))
		}
		got, err := b.Transfer(t.Context(), receives)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := runtime.NumGoroutine(); n > 100 {
			t.Errorf("%d goroutines for %d receives that wait", n, count)
		}
		sent, err := a.Transfer(t.Context(), sends)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(sent.Done().Wait(t.Context()), got.Done().Wait(t.Context())); err != nil {
			t.Fatal(err)
		}
		const verdict = 35 // bytes of the answer: number, key, devices, code
		offer := len(transfer.OfferFrame(1, 1, bytesSpec(16), 0, 0))
		all := w.network.sent(hostOf(a.life)) + w.network.sent(hostOf(b.life))
		if header := int(all/count) - 16 - offer - verdict; header > 64 {
			t.Errorf("%d bytes for each buffer, besides 16 of data, its offer of %d and its verdict; want at most 64", header, offer)
		}
	})
}

func TestCycleOfThree(t *testing.T) {
	clause.Cite(t, "TR-ORD-4", "TR-PRE-6", "TRT-185", "TR-H-6")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		for i, p := range all {
			p.send(all[(i+1)%3], 1, fill(1<<20, uint64(i)))
		}
		for i, p := range all {
			from := (i + 2) % 3
			if got := p.receive(all[from], 1, 1<<20); !bytes.Equal(content(t, got.Buffer), fill(1<<20, uint64(from))) {
				t.Errorf("process %d got something else", i)
			}
		}
	})
}

// Connections are reset in the middle of a transfer, or carry nothing for longer than detection takes. The transfer goes on
// where it was.
func TestCuts(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TR-BPR-2", "TRT-213")
	const size, window = 96 << 20, 8 * 4 << 20
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				a, b := w.pair()
				w.network.setPace(time.Millisecond)
				want := fill(size, 5)
				sent, got := a.send(b, 1, want), b.receive(a, 1, size)
				cuts := int64(0)
				for at := int64(size / 4); at < size; at += size / 4 {
					for w.network.sent(hostOf(a.life)) < at {
						time.Sleep(time.Millisecond)
					}
					cuts++
					if silent {
						w.network.cut(hostOf(a.life), hostOf(b.life), true)
						time.Sleep(5 * time.Second)
						w.network.cut(hostOf(a.life), hostOf(b.life), false)
						continue
					}
					w.network.reset(hostOf(a.life))
				}
				if err := sent.Event.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(content(t, got.Buffer), want) {
					t.Error("bytes came out different")
				}
				if twice := w.network.sent(hostOf(a.life)) - size; twice > cuts*window+1<<20 {
					t.Errorf("%d bytes were sent twice in %d cuts; want at most one window each", twice, cuts)
				}
			})
		})
	}
}

func TestPeerIsKilled(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TR-ERR-7", "TR-MAT-4", "TR-COM-2", "TRT-184", "TRT-215", "TR-H-3", "TR-H-12")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.network.setPace(time.Millisecond)
		into := make([]byte, 40<<20)
		target := a.buffer(into, nil)
		op := a.receiveOp(b, 1, len(into))
		op.Buffer = target
		got := a.begin(t.Context(), op)
		sent := a.send(b, 2, fill(100, 1))
		b.send(a, 1, fill(40<<20, 2))
		time.Sleep(20 * time.Millisecond)
		w.kill(b)
		for _, item := range []transfer.Item{got, sent} {
			err := item.Event.Wait(t.Context())
			e, ok := errors.AsType[*transfer.Error](err)
			if !errors.Is(err, transfer.ErrUnavailable) || !ok || e.Peer != b.life || e.Bytes == 0 {
				t.Errorf("transfer with a process that was killed = %v; want ErrUnavailable with facts", err)
			}
		}
		clear(into)
		next := w.start(life(1, 20)) // counts its keys from the beginning
		synctest.Wait()              // until the service has told of it
		again := a.receive(next, 1, 4)
		if next.send(a, 1, []byte("life")); string(content(t, again.Buffer)) != "life" {
			t.Error("the next life does not get through")
		}
		for _, x := range into {
			if x != 0 {
				t.Fatal("memory was written after the end of its transfer")
			}
		}
	})
}

// The receiver cancels a large transfer in the middle, and uses its memory at once.
func TestCancelledMemoryIsFree(t *testing.T) {
	clause.Cite(t, "TR-CAN-4", "TR-PAB-7", "TR-ERR-3", "TRT-201")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.network.setPace(time.Millisecond)
		into := make([]byte, 32<<20)
		for i := range uint64(4) {
			ctx, cancel := context.WithCancelCause(t.Context())
			op := b.receiveOp(a, i, len(into))
			op.Buffer = b.buffer(into, nil)
			got := b.begin(ctx, op)
			sent := a.send(b, i, fill(len(into), i))
			time.Sleep(time.Duration(5+10*i) * time.Millisecond)
			cancel(errors.New("not needed"))
			if err := got.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) {
				t.Errorf("receive = %v; want ErrCancelled", err)
			}
			pattern := fill(len(into), 99)
			copy(into, pattern)
			if err := sent.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) || !strings.Contains(err.Error(), "by the receiver: not needed") {
				t.Errorf("send = %v; want ErrCancelled, by the receiver", err)
			}
			time.Sleep(time.Second)
			if !bytes.Equal(into, pattern) {
				t.Fatal("memory was written after the end of its transfer")
			}
		}
		small := a.send(b, 9, []byte("x"))
		if got := b.receive(a, 9, 1); string(content(t, got.Buffer)) != "x" || small.Event.Wait(t.Context()) != nil {
			t.Error("the link does not work any more")
		}
	})
}

func TestDeadlines(t *testing.T) {
	clause.Cite(t, "TR-TMO-4", "TR-ERR-7", "TR-OBS-1", "TRT-189")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		short := a.begin(ctx, a.sendOp(b, 1, []byte("x")))
		err := short.Event.Wait(t.Context())
		if !errors.Is(err, transfer.ErrTimeout) || time.Since(began) != 2*time.Second {
			t.Errorf("send without a receive = %v after %v", err, time.Since(began))
		}
		want := "send 1 (device 0 to 1, worker/1 incarnation 11, 0 of 1 bytes by link, after 2s): timed out: the sender's deadline has passed, after 2s"
		if err.Error() != want {
			t.Errorf("text is %q; want %q", err, want)
		}
		began = time.Now()
		if err := b.receive(a, 2, 1).Event.Wait(t.Context()); !errors.Is(err, transfer.ErrTimeout) || time.Since(began) != 5*time.Minute {
			t.Errorf("receive without a send = %v after %v", err, time.Since(began))
		}
		if r := a.Records(); len(r) != 1 || r[0].Err != err || r[0].Key.Seq != 1 || r[0].Elapsed != 2*time.Second {
			t.Errorf("Records() = %v", r)
		}
	})
}

// An urgent transfer overtakes a bulk one that has begun: it takes as long as on an idle link, and the rest of one chunk on each lane,
// which are being sent. Bulk goes on beside it.
func TestUrgentGoesFirst(t *testing.T) {
	clause.Cite(t, "TR-STR-4", "TRT-235")
	inBubble(t, func(t *testing.T, w *world) {
		const chunk, size, small = 256 << 10, 512 << 20, 64 << 10
		const pace = time.Millisecond // of each write, which is a chunk at most
		w.link.Chunk = chunk
		a, b := w.pair()
		meet(t, a, b)
		w.network.setPace(pace)
		urgent := func(key uint64) (took time.Duration, sent int64) {
			begun, before := time.Now(), w.network.sent(hostOf(a.life))
			op := a.sendOp(b, key, fill(small, key))
			op.Class = transfer.Urgent
			first, got := a.begin(t.Context(), op), b.receive(a, key, small)
			if !bytes.Equal(content(t, got.Buffer), fill(small, key)) || first.Event.Wait(t.Context()) != nil {
				t.Fatal("an urgent transfer is wrong")
			}
			return time.Since(begun), w.network.sent(hostOf(a.life)) - before - small
		}
		idle, _ := urgent(1)
		bulk := a.sendOp(b, 2, make([]byte, size))
		bulk.Class = transfer.Bulk
		sent := a.begin(t.Context(), bulk)
		b.receive(a, 2, size)
		time.Sleep(50 * time.Millisecond)
		bulkLanes := int64(a.net.Links()[0].Lanes - 2) // one is for control, one for small messages
		for key := range uint64(20) {
			took, moved := urgent(10 + key)
			late := max(0, took-idle-pace) // within a write the clock stands still
			if waited := moved * int64(late) / int64(took); waited > bulkLanes*chunk {
				t.Errorf("an urgent transfer took %v, and %v on an idle link: %d bytes of bulk went before it; want at most a chunk on each of %d lanes", took, idle, waited, bulkLanes)
			}
			if moved == 0 {
				t.Error("bulk stood still")
			}
		}
		if sent.Event.State() == transfer.Complete {
			t.Fatal("the bulk transfer has ended before the urgent ones")
		}
		if err := sent.Event.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A peer that knows the secret sends what no engine would. Other transfers go on.
func TestHostileFrames(t *testing.T) {
	clause.Cite(t, "TR-ERR-2", "TR-ERR-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		sent := a.send(b, 1, []byte("x"))
		synctest.Wait()
		l, err := b.net.Link(t.Context(), a.life)
		if err != nil {
			t.Fatal(err)
		}
		for kind := link.Offer; kind <= link.Pull; kind++ {
			if kind == link.TransferData || kind == link.TransferData+1 {
				continue
			}
			for _, n := range []int{0, 1, 7, 33, 40, 64, 1000, link.ControlBytes} {
				l.Post(link.Header{Family: link.Transfer, Type: kind}, fill(n, uint64(n)))
			}
		}
		synctest.Wait()
		if got := b.receive(a, 1, 1); string(content(t, got.Buffer)) != "x" || sent.Event.Wait(t.Context()) != nil {
			t.Error("a transfer beside them failed")
		}
	})
}

func TestClose(t *testing.T) {
	clause.Cite(t, "TR-ASY-1", "TR-CAN-5")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		sent, got := a.send(b, 1, []byte("x")), a.receive(b, 2, 1)
		theirs := b.send(a, 2, []byte("y"))
		theirs.Event.Wait(t.Context())
		got.Event.Wait(t.Context())
		a.Close(t.Context())
		if err := sent.Event.Err(); !errors.Is(err, transfer.ErrAborted) {
			t.Errorf("send of an engine that was closed = %v; want ErrAborted", err)
		}
		if err := b.receive(a, 1, 1).Event.Wait(t.Context()); !errors.Is(err, transfer.ErrAborted) {
			t.Errorf("receive from an engine that was closed = %v; want ErrAborted", err)
		}
		if _, err := a.Transfer(t.Context(), []transfer.Op{a.sendOp(b, 3, []byte("z"))}); !errors.Is(err, transfer.ErrAborted) {
			t.Errorf("Transfer() after Close() = %v; want ErrAborted", err)
		}
	})
}

// More receives than are offered at a time wait; they can be cancelled like others.
func TestCancelWhatWaitsItsTurn(t *testing.T) {
	clause.Cite(t, "TR-GRP-4", "TR-CAN-5")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		var ops []transfer.Op
		for k := range uint64(40000) {
			ops = append(ops, a.receiveOp(b, k, 1))
		}
		g, err := a.Transfer(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		g.Cancel(errors.New("enough"))
		began := time.Now()
		for i, item := range g.Items() {
			if err := item.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) {
				t.Fatalf("receive %d = %v; want ErrCancelled", i, err)
			}
		}
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("they ended after %v", d)
		}
	})
}

// The data arrive, and then nothing of the receiver comes back until after the deadline of the sender.
func TestVerdictComesLate(t *testing.T) {
	clause.Cite(t, "TR-ASY-5", "TR-OBS-1", "TRT-193")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.network.setPace(time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		const size = 16 << 20
		sent, got := a.begin(ctx, a.sendOp(b, 1, fill(size, 1))), b.receive(a, 1, size)
		for w.network.sent(hostOf(a.life)) < size/2 { // by then the receiver has given all credit
			time.Sleep(100 * time.Microsecond)
		}
		w.network.cutOneWay(hostOf(b.life), hostOf(a.life), true)
		if err := got.Event.Wait(t.Context()); err != nil {
			t.Fatalf("receive = %v", err)
		}
		err := sent.Event.Wait(t.Context())
		if e, ok := errors.AsType[*transfer.Error](err); !ok || !e.Unconfirmed || !errors.Is(err, transfer.ErrUnavailable) {
			t.Fatalf("send = %v; want ErrUnavailable, unconfirmed", err)
		}
		w.network.cutOneWay(hostOf(b.life), hostOf(a.life), false)
		time.Sleep(time.Minute)
		if r := a.Records(); len(r) != 1 || r[0].Err != nil || !r[0].Corrected || sent.Event.Err() != err {
			t.Errorf("Records() = %+v; want that it was corrected", r)
		}
	})
}
