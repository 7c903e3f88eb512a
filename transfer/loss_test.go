package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// counted makes a buffer that counts when its memory is given back. It is defined unless definition is nil.
func (p *process) counted(bytes []byte, definition *transfer.Event, freed *atomic.Int64) *transfer.Buffer {
	p.world.t.Helper()
	m := transfer.Memory{Region: memory.Of(bytes), Device: p.device, Free: func() { freed.Add(1) }}
	b, err := p.Pool().Buffer(bytesSpec(len(bytes)), m)
	if err == nil && definition != nil {
		err = b.Define(definition)
	}
	if err != nil {
		p.world.t.Fatal(err)
	}
	return b
}

// meet makes the link between two processes.
func meet(t testing.TB, a, b *process) {
	t.Helper()
	const key = 1 << 40
	sent := a.send(b, key, []byte("x"))
	b.receive(a, key, 1)
	if err := sent.Event.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// untilSent waits until a process has sent so many bytes more.
func (p *process) untilSent(bytes int64) {
	host := hostOf(p.life)
	for end := p.world.network.sent(host) + bytes; p.world.network.sent(host) < end; {
		time.Sleep(100 * time.Microsecond)
	}
}

// A process is killed while it sends or receives, at several places of a transfer. The other side hears of it within a second, and
// has its memory back; what has come of the data is never taken for the value.
func TestKilledInTheMiddle(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TR-PAB-7", "TRT-210", "TRT-211")
	const size = 40 << 20
	for _, percent := range []int64{0, 10, 50, 99} {
		for _, killSender := range []bool{true, false} {
			t.Run(fmt.Sprintf("at=%d%%/sender=%v", percent, killSender), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					a, b := w.pair()
					meet(t, a, b)
					w.network.setPace(time.Millisecond)
					var freed atomic.Int64
					send, receive := a.sendOp(b, 1, nil), b.receiveOp(a, 1, size)
					send.Buffer = a.counted(fill(size, 1), a.Pool().Ready(), &freed)
					receive.Buffer = b.counted(make([]byte, size), nil, &freed)
					sent, got := a.begin(t.Context(), send), b.begin(t.Context(), receive)
					a.untilSent(size * percent / 100)
					victim, left := b, sent
					if killSender {
						victim, left = a, got
					}
					w.kill(victim)
					killed := time.Now()
					if err := left.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrUnavailable) {
						t.Errorf("transfer = %v; want ErrUnavailable", err)
					}
					if d := time.Since(killed); d > time.Second {
						t.Errorf("that the other process is gone was heard after %v", d)
					}
					if got.Buffer.Definition().State() == transfer.Complete {
						t.Error("a part of the data was taken for the value")
					}
					left.Buffer.Delete()
					synctest.Wait()
					if freed.Load() != 1 {
						t.Error("the memory of the transfer was not given back")
					}
				})
			})
		}
	}
}

// A host is gone without a trace: no connection is reset, and no port refuses. The transfer is suspended, and ends when the service says
// that the life is over; without its word, at the deadline.
func TestHostGoneWithoutATrace(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TR-TMO-4", "TR-PAB-7", "TRT-210", "TRT-211")
	const size, deadline, word = 40 << 20, time.Minute, 20 * time.Second
	for _, senderGone := range []bool{true, false} {
		for _, told := range []bool{true, false} {
			t.Run(fmt.Sprintf("sender=%v/told=%v", senderGone, told), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					a, b := w.pair()
					meet(t, a, b)
					w.network.setPace(time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					defer cancel()
					begun := time.Now()
					var freed atomic.Int64
					send, receive := a.sendOp(b, 1, nil), b.receiveOp(a, 1, size)
					send.Buffer = a.counted(fill(size, 1), a.Pool().Ready(), &freed)
					receive.Buffer = b.counted(make([]byte, size), nil, &freed)
					sent, got := a.begin(ctx, send), b.begin(ctx, receive)
					a.untilSent(size / 2)
					victim, left := b, sent
					if senderGone {
						victim, left = a, got
					}
					w.network.cut(hostOf(a.life), hostOf(b.life), true)
					want, at := transfer.ErrTimeout, deadline
					if told {
						want, at = transfer.ErrUnavailable, word
					}
					time.Sleep(word - time.Since(begun))
					if left.Event.State() != transfer.Unrecorded {
						t.Errorf("the transfer has ended before anything was known: %v", left.Event.Err())
					}
					if told {
						w.set(victim.life, serry.Failed)
					}
					if err := left.Event.Wait(t.Context()); !errors.Is(err, want) {
						t.Errorf("transfer = %v; want %v", err, want)
					}
					if d := time.Since(begun); d < at || d > at+3*time.Second {
						t.Errorf("it ended after %v; want %v, or one detection interval later", d, at)
					}
					left.Buffer.Delete()
					synctest.Wait()
					if freed.Load() != 1 {
						t.Error("the memory of the transfer was not given back")
					}
				})
			})
		}
	}
}

// Transfers with a peer that does not answer any more are cancelled: what they occupied is free after one detection interval.
func TestCancelWithASilentPeer(t *testing.T) {
	clause.Cite(t, "TR-CAN-6", "TR-CAN-4", "TRT-203")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		meet(t, a, b)
		w.network.setPace(time.Millisecond)
		const size = 20 << 20
		var freed atomic.Int64
		ops := []transfer.Op{a.sendOp(b, 1, nil), a.receiveOp(b, 2, size), a.sendOp(b, 3, nil), a.receiveOp(b, 4, 10)}
		for i, n := range []int{size, size, size, 10} {
			var definition *transfer.Event
			if i%2 == 0 {
				definition = a.Pool().Ready()
			}
			ops[i].Buffer = a.counted(make([]byte, n), definition, &freed)
		}
		b.receive(a, 1, size)
		b.send(a, 2, fill(size, 1))
		g, err := a.Transfer(t.Context(), ops)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
		if done, _ := g.Progress(); done == 0 {
			t.Fatal("nothing moves")
		}
		w.network.cut(hostOf(a.life), hostOf(b.life), true)
		for _, op := range ops {
			op.Buffer.Delete()
		}
		g.Cancel(errors.New("enough"))
		cancelled := time.Now()
		for i, item := range g.Items() {
			if <-item.Event.Done(); !errors.Is(item.Event.Err(), transfer.ErrCancelled) {
				t.Errorf("transfer %d = %v; want ErrCancelled", i, item.Event.Err())
			}
		}
		synctest.Wait()
		if d := time.Since(cancelled); d > 3*time.Second || freed.Load() != 4 {
			t.Errorf("%d of 4 memories were free after %v; detection takes 3s", freed.Load(), d)
		}
		if n := a.Totals(); n.Sends+n.Receives != 0 {
			t.Errorf("%d sends and %d receives are left", n.Sends, n.Receives)
		}
	})
}

// The connections for data carry nothing, while those by which the link asks for its peer work: that is a stall. Afterwards the
// link works, and what was under way is dropped.
func TestStalledData(t *testing.T) {
	clause.Cite(t, "TR-TMO-6", "TR-PAB-7", "TRT-212")
	inBubble(t, func(t *testing.T, w *world) {
		w.link.Lanes = 2
		a, b := w.pair()
		w.network.setPace(time.Millisecond)
		const size = 64 << 20
		into := make([]byte, size)
		op := b.receiveOp(a, 1, size)
		op.Buffer = b.buffer(into, nil)
		sent, got := a.send(b, 1, fill(size, 1)), b.begin(t.Context(), op)
		a.untilSent(size / 4)
		w.network.hold(hostOf(a.life), hostOf(b.life), true)
		held := time.Now()
		for name, item := range map[string]transfer.Item{"send": sent, "receive": got} {
			if err := item.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrTimeout) || !strings.Contains(err.Error(), "stalled") {
				t.Errorf("%s = %v; want ErrTimeout, stalled", name, err)
			}
		}
		if d := time.Since(held); d < 19*time.Second || d > 23*time.Second {
			t.Errorf("it ended after %v; want 20s", d)
		}
		pattern := fill(size, 2)
		copy(into, pattern)
		if n := len(a.net.Links()); n != 1 {
			t.Errorf("%d links are up; want the one that stalled", n)
		}
		w.network.hold(hostOf(a.life), hostOf(b.life), false)
		next := a.send(b, 2, fill(10<<20, 3))
		if got := b.receive(a, 2, 10<<20); !bytes.Equal(content(t, got.Buffer), fill(10<<20, 3)) || next.Event.Wait(t.Context()) != nil {
			t.Error("the next transfer is wrong")
		}
		if !bytes.Equal(into, pattern) {
			t.Error("bytes that came late were written to memory of a transfer that had ended")
		}
	})
}

// A peer does not run for longer than detection takes, and longer than a stall may last: nothing answers, so that is no stall. Its
// transfers go on when it runs again.
func TestPeerStandsStill(t *testing.T) {
	clause.Cite(t, "TR-TMO-6", "TR-ERR-5", "TRT-223")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, b, c := all[0], all[1], all[2]
		w.network.setPace(time.Millisecond)
		const size = 40 << 20
		sent, got := a.send(b, 1, fill(size, 1)), b.receive(a, 1, size)
		back, gotBack := b.send(a, 2, fill(size, 2)), a.receive(b, 2, size)
		a.untilSent(size / 4)
		for _, other := range []*process{a, c} { // b neither reads nor writes
			w.network.cut(hostOf(b.life), hostOf(other.life), true)
		}
		time.Sleep(25 * time.Second)
		for _, item := range []transfer.Item{sent, got, back, gotBack} {
			if s := item.Event.State(); s != transfer.Unrecorded {
				t.Errorf("a transfer is %v while its peer stands still: %v", s, item.Event.Err())
			}
		}
		for _, other := range []*process{a, c} {
			w.network.cut(hostOf(b.life), hostOf(other.life), false)
		}
		if !bytes.Equal(content(t, got.Buffer), fill(size, 1)) || !bytes.Equal(content(t, gotBack.Buffer), fill(size, 2)) {
			t.Error("bytes came out different")
		}
		if err := errors.Join(sent.Event.Wait(t.Context()), back.Event.Wait(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

// A task comes back at another address, and drives other devices.
func TestRestartWithOtherDevices(t *testing.T) {
	clause.Cite(t, "TR-COM-2", "TR-MAT-4", "TRT-216")
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(1, 0).Task, 2: life(1, 0).Task}
		a, b := w.pair()
		meet(t, a, b)
		old := a.send(b, 1, []byte("old"))
		w.kill(b)
		if err := old.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrUnavailable) {
			t.Errorf("send to a life that is over = %v; want ErrUnavailable", err)
		}
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 7: life(1, 0).Task, 8: life(1, 0).Task}
		next := w.start(life(1, 20))
		next.device = 7
		synctest.Wait()
		a.SetOwners(w.engine.Owners)
		if hostOf(next.life) == hostOf(b.life) {
			t.Fatal("the next life has the address of the old one: this test shows nothing")
		}
		if _, err := a.Transfer(t.Context(), []transfer.Op{a.sendOp(b, 2, []byte("x"))}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Transfer() to a device that there is not any more = %v; want ErrInvalid", err)
		}
		sent, got := a.send(next, 1, []byte("new")), next.receive(a, 1, 3)
		if string(content(t, got.Buffer)) != "new" || sent.Event.Wait(t.Context()) != nil {
			t.Error("the transfer with the next life is wrong")
		}
	})
}

// The service does not answer for a while. Transfers over links that are there end; a link that is not there waits for it.
func TestServiceIsDown(t *testing.T) {
	clause.Cite(t, "TR-COM-3", "TR-ERR-5", "TRT-218")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(3)
		a, b, c := all[0], all[1], all[2]
		meet(t, a, b)
		w.network.setPace(time.Millisecond)
		sent, got := a.send(b, 1, fill(20<<20, 1)), b.receive(a, 1, 20<<20)
		a.untilSent(5 << 20)
		recovers := w.fails()
		if !bytes.Equal(content(t, got.Buffer), fill(20<<20, 1)) || sent.Event.Wait(t.Context()) != nil {
			t.Error("a transfer that was under way is wrong")
		}
		late, gotLate := a.send(c, 1, []byte("late")), c.receive(a, 1, 4)
		again, gotAgain := a.send(b, 2, []byte("again")), b.receive(a, 2, 5)
		if string(content(t, gotAgain.Buffer)) != "again" || again.Event.Wait(t.Context()) != nil {
			t.Error("a transfer over a link that was there is wrong")
		}
		time.Sleep(30 * time.Second)
		if late.Event.State() != transfer.Unrecorded || gotLate.Event.State() != transfer.Unrecorded {
			t.Errorf("a transfer that needs a new link is %v without the service", late.Event.State())
		}
		recovers()
		if string(content(t, gotLate.Buffer)) != "late" || late.Event.Wait(t.Context()) != nil {
			t.Error("the transfer that waited for the service is wrong")
		}
	})
}

// Bytes come damaged. They are sent again; those that come damaged again and again end their transfer on both sides.
func TestDamagedBytes(t *testing.T) {
	clause.Cite(t, "TR-ERR-8", "TR-ERR-3", "TRT-221")
	const size = 20 << 20
	t.Run("once", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.pair()
			meet(t, a, b)
			w.network.damages(hostOf(a.life), hostOf(b.life), 5<<20, 1)
			before := w.network.dialled(hostOf(a.life)) + w.network.dialled(hostOf(b.life))
			sent, got := a.send(b, 1, fill(size, 1)), b.receive(a, 1, size)
			if !bytes.Equal(content(t, got.Buffer), fill(size, 1)) || sent.Event.Wait(t.Context()) != nil {
				t.Error("the transfer is wrong")
			}
			if after := w.network.dialled(hostOf(a.life)) + w.network.dialled(hostOf(b.life)); after == before {
				t.Error("the link did not break: nothing was damaged")
			}
		})
	})
	t.Run("always", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.pair()
			meet(t, a, b)
			w.network.damages(hostOf(a.life), hostOf(b.life), 3<<20, 1<<30)
			sent, got := a.send(b, 1, fill(size, 1)), b.receive(a, 1, size)
			for name, item := range map[string]transfer.Item{"send": sent, "receive": got} {
				if err := item.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrDamaged) || !strings.Contains(err.Error(), "wrong checksum") {
					t.Errorf("%s = %v; want ErrDamaged", name, err)
				}
			}
			w.network.damages(hostOf(a.life), hostOf(b.life), 0, 0)
			next, gotNext := a.send(b, 2, fill(size, 2)), b.receive(a, 2, size)
			if !bytes.Equal(content(t, gotNext.Buffer), fill(size, 2)) || next.Event.Wait(t.Context()) != nil {
				t.Error("the next transfer is wrong")
			}
		})
	})
}

// Several transfers wait for one link. It is dialled once for all of them, and again soon after a dial has failed.
func TestDialsAreShared(t *testing.T) {
	clause.Cite(t, "TR-COM-5", "TRT-233")
	dials := make(map[int]int) // by how many fail
	for _, fails := range []int{0, 3} {
		inBubble(t, func(t *testing.T, w *world) {
			a, b := w.pair()
			w.network.failDials(hostOf(b.life), fails)
			began := time.Now()
			var sent []transfer.Item
			for key := range uint64(20) {
				sent = append(sent, a.send(b, key, []byte("x")))
			}
			for len(a.net.Links()) == 0 {
				time.Sleep(time.Millisecond)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("with %d dials that fail the link was there after %v", fails, d)
			}
			dials[fails] = w.network.dialled(hostOf(b.life))
			for key := range uint64(20) {
				b.receive(a, key, 1)
			}
			for _, item := range sent {
				if err := item.Event.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if dials[3] != dials[0]+3 {
		t.Errorf("20 transfers took %d dials, and %d when 3 fail; want 3 more", dials[0], dials[3])
	}
}

// What is meant for a life that is over is refused, with its number.
func TestStaleLives(t *testing.T) {
	clause.Cite(t, "TR-COM-3", "TR-MAT-4", "TRT-234")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		h := b.offerBytes(5, transfer.OfferOptions{}, []byte("old")).Handle()
		w.kill(b)
		w.set(b.life, serry.Failed)
		synctest.Wait()
		pull := func() error {
			_, err := a.Pull(t.Context(), h, []transfer.Want{{Device: 0, Spec: bytesSpec(3)}})
			return err
		}
		if _, err := a.Transfer(t.Context(), []transfer.Op{a.receiveOp(b, 1, 1)}); !errors.Is(err, serry.ErrNotConnected) || !strings.Contains(err.Error(), "worker/1") {
			t.Errorf("Transfer() from a task that has failed = %v; want ErrNotConnected", err)
		}
		if err := pull(); !errors.Is(err, serry.ErrNotConnected) || !strings.Contains(err.Error(), "worker/1") {
			t.Errorf("Pull() from a task that has failed = %v; want ErrNotConnected", err)
		}
		w.start(life(1, 20))
		synctest.Wait()
		if err := pull(); !errors.Is(err, transfer.ErrStale) || !strings.Contains(err.Error(), "incarnation 11 of worker/1 is stale") {
			t.Errorf("Pull() from a life that is over = %v; want ErrStale", err)
		}
	})
}
