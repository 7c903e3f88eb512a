package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// onHost runs a test with processes that can read memory of each other: in virtual time, and over sockets of this host.
func onHost(t *testing.T, f func(t *testing.T, w *world)) {
	t.Run("memory", func(t *testing.T) { inHostBubble(t, f) })
	t.Run("host", func(t *testing.T) { f(t, &world{job: newJob(), t: t}) })
}

// inHostBubble runs a test in virtual time, in which arenas are lent between processes.
func inHostBubble(t *testing.T, f func(t *testing.T, w *world)) {
	inBubble(t, func(t *testing.T, w *world) {
		w.link.Segments = new(link.Local)
		f(t, w)
	})
}

// arena makes an arena, which the test closes.
func arena(t testing.TB, size int64) *memory.Arena {
	t.Helper()
	a, err := memory.NewArena(size, memory.ArenaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

// inArena makes a buffer of bytes in an arena, whose memory is given back to the arena.
func (p *process) inArena(a *memory.Arena, data []byte) *transfer.Buffer {
	p.world.t.Helper()
	r, err := a.Alloc(int64(len(data)))
	if err != nil {
		p.world.t.Fatal(err)
	}
	copy(r.Bytes(), data)
	b, err := p.Pool().Buffer(bytesSpec(len(data)), transfer.Memory{Region: r, Device: p.device, Free: func() { a.Free(r) }})
	if err == nil {
		err = b.Define(p.Pool().Ready())
	}
	if err != nil {
		p.world.t.Fatal(err)
	}
	return b
}

// shareOp is a send of bytes that lie in an arena.
func (p *process) shareOp(to *process, key uint64, a *memory.Arena, data []byte) transfer.Op {
	op := p.sendOp(to, key, nil)
	op.Buffer = p.inArena(a, data)
	return op
}

// paths are those of the transfers of a process that have ended.
func (p *process) paths() (list []transfer.Path) {
	for _, r := range p.Records() {
		list = append(list, r.Path)
	}
	return list
}

func TestSharedMemory(t *testing.T) {
	clause.Cite(t, "TR-G-8", "TR-G-10", "TR-G-12", "TR-SND-5", "TR-SZE-2", "TRT-020", "TRT-253")
	onHost(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		memory := arena(t, 64<<20)
		for i, size := range []int{0, 1, 4096, 8193, 1<<20 - 1, 1 << 20, 1<<20 + 1, 41 << 20} {
			want := fill(size, uint64(i))
			sent := a.begin(t.Context(), a.shareOp(b, uint64(i), memory, want))
			got := b.receive(a, uint64(i), size)
			if err := sent.Event.Wait(t.Context()); err != nil {
				t.Fatalf("send of %d bytes = %v", size, err)
			}
			if got.Event.State() != transfer.Complete {
				t.Errorf("the send of %d bytes has ended, the receive is %v", size, got.Event.State())
			}
			if !bytes.Equal(content(t, got.Buffer), want) {
				t.Errorf("%d bytes came out different", size)
			}
			sent.Buffer.Delete()
			for _, p := range []*process{a, b} {
				if r := p.Records()[i]; size > 0 && r.Path != transfer.ByMemory {
					t.Errorf("%v: %d bytes went by %q; want shared memory", p.life, size, r.Path)
				}
			}
		}
		if w.network != nil && w.network.sent(hostOf(a.life)) > 1<<20 {
			t.Errorf("%d bytes went through connections", w.network.sent(hostOf(a.life)))
		}
	})
}

// Processes that are not known to be on one host use their link, without an error.
func TestMemoryThatCannotBeShared(t *testing.T) {
	clause.Cite(t, "TR-G-8", "TR-G-9", "TR-G-13", "TRT-253")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		want := fill(9<<20, 1)
		sent := a.begin(t.Context(), a.shareOp(b, 1, arena(t, 16<<20), want))
		if got := b.receive(a, 1, len(want)); !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the bytes came out different")
		}
		if p := b.paths(); p[0] != transfer.ByLink {
			t.Errorf("path = %v; want the link", p)
		}
	})
}

// More arenas than a link lends, some of which are closed: every transfer ends well, and what was closed is unmapped.
func TestManyArenas(t *testing.T) {
	clause.Cite(t, "TR-G-10", "TR-G-13")
	inHostBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		transferOnce := func(key uint64, m *memory.Arena) transfer.Path {
			want := fill(100, key)
			sent := a.begin(t.Context(), a.shareOp(b, key, m, want))
			if got := b.receive(a, key, 100); !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Fatalf("transfer %d failed", key)
			}
			synctest.Wait()
			return b.paths()[len(b.paths())-1]
		}
		var all []*memory.Arena
		for i := range 66 {
			all = append(all, arena(t, 1))
			want := transfer.ByMemory
			if i >= 64 {
				want = transfer.ByLink
			}
			if path := transferOnce(uint64(i), all[i]); path != want {
				t.Fatalf("arena %d: path %v; want %v", i, path, want)
			}
		}
		all[0].Close()
		synctest.Wait()
		if path := transferOnce(100, all[65]); path != transfer.ByMemory {
			t.Errorf("path = %v; want shared memory, since one arena was closed", path)
		}
	})
}

// A link that breaks takes what was lent with it. Both sides copy what is missing from memory that is lent anew, or take it
// from the link.
func TestSharedMemoryAfterACut(t *testing.T) {
	clause.Cite(t, "TR-G-9", "TR-ERR-5", "TRT-213")
	inHostBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		memory := arena(t, 64<<20)
		var sent, got []transfer.Item
		for i := range 20 {
			sent = append(sent, a.begin(t.Context(), a.shareOp(b, uint64(i), memory, fill(1<<20, uint64(i)))))
		}
		synctest.Wait()
		for i := range 20 {
			if i%4 == 0 {
				w.network.reset(hostOf(a.life))
			}
			got = append(got, b.receive(a, uint64(i), 1<<20))
		}
		for i := range 20 {
			if !bytes.Equal(content(t, got[i].Buffer), fill(1<<20, uint64(i))) || sent[i].Event.Wait(t.Context()) != nil {
				t.Errorf("transfer %d is wrong", i)
			}
		}
	})
}

// A sender that cancels cannot know whether a silent receiver still reads its memory. So the memory is not given back, until
// the receiver is heard, or is gone.
func TestMemoryThatAPeerMayReadIsHeld(t *testing.T) {
	clause.Cite(t, "TR-CAN-7", "TR-CAN-4", "TRT-204")
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("gone=%v", gone), func(t *testing.T) {
			inHostBubble(t, func(t *testing.T, w *world) {
				w.link.Timing.Dead = time.Hour // silence is not noticed
				a, b := w.pair()
				m := arena(t, 1)
				sent := a.begin(t.Context(), a.shareOp(b, 1, m, fill(1000, 1)))
				synctest.Wait() // b has the offer
				w.network.cutOneWay(hostOf(b.life), hostOf(a.life), true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := b.begin(ctx, b.receiveOp(a, 1, 1000))
				synctest.Wait()
				donation, err := sent.Buffer.Donate(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, free := donation.Confirm()
				time.Sleep(10 * time.Minute) // past the deadline
				if err := sent.Event.Err(); !errors.Is(err, transfer.ErrUnavailable) {
					t.Errorf("send = %v; want unconfirmed", err)
				}
				if got.Event.State() != transfer.Complete {
					t.Errorf("receive = %v", got.Event.State())
				}
				if free.State() != transfer.Unrecorded {
					t.Error("memory that the receiver may read was given back")
				}
				if gone {
					w.kill(b)
					w.set(b.life, serry.Failed)
					w.start(life(1, 99))
				} else {
					w.network.cutOneWay(hostOf(b.life), hostOf(a.life), false)
				}
				time.Sleep(time.Minute)
				if free.State() != transfer.Complete {
					t.Error("memory is still held")
				}
			})
		})
	}
}

// An engine that is closed does not know whether peers read its memory.
func TestCloseHoldsMemoryThatAPeerMayRead(t *testing.T) {
	clause.Cite(t, "TR-CAN-7", "TR-CAN-5")
	inHostBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		freed := false
		op := a.sendOp(b, 1, nil)
		m := arena(t, 1)
		region, err := m.Alloc(10)
		if err != nil {
			t.Fatal(err)
		}
		op.Buffer, err = a.Pool().Buffer(bytesSpec(10), transfer.Memory{Region: region, Device: a.device, Free: func() { freed = true }})
		if err != nil || op.Buffer.Define(a.Pool().Ready()) != nil {
			t.Fatal(err)
		}
		sent := a.begin(t.Context(), op)
		synctest.Wait()
		w.network.cutOneWay(hostOf(b.life), hostOf(a.life), true) // b does not answer
		sent.Buffer.Delete()
		a.end()
		if err := sent.Event.Err(); err == nil {
			t.Error("the send ended well")
		}
		if freed {
			t.Error("memory that the receiver may read was given back")
		}
	})
}

// A liar is a peer that is no engine: it says what the test says, and notes the frames that come.
type liar struct {
	net    *link.Net
	frames chan link.Type
}

// liar starts a liar.
func (w *world) liar(l serry.Life) *liar {
	w.t.Helper()
	o := w.link
	if w.network != nil {
		o.Network, o.Listen, o.Secret = dialler{w.network, hostOf(l)}, []string{hostOf(l) + ":0"}, secret
	}
	n, err := link.Open(w.t.Context(), member{w.job, l}, w.job, o)
	if err != nil {
		w.t.Fatal(err)
	}
	x := &liar{n, make(chan link.Type, 1<<16)}
	if err := n.Handle(link.Transfer, x); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { n.Close(context.Background()) })
	return x
}

func (x *liar) Frame(_ *link.Link, h link.Header, _ []byte) { x.frames <- h.Type }
func (x *liar) Unexpected(*link.Link, link.Header) bool     { return true }
func (x *liar) Event(link.Event)                            {}

// A place that the peer tells is checked: where this process cannot read it, the bytes have to come by the link.
func TestLiesAboutPlaces(t *testing.T) {
	clause.Cite(t, "TR-G-14", "TR-ERR-2", "TR-ERR-3", "TRT-255")
	w := &world{job: newJob(), t: t}
	w.set(life(1, 11), serry.Connected)
	a := w.start(life(0, 10))
	x := w.liar(life(1, 11))
	l, err := x.net.Link(t.Context(), a.life)
	if err != nil {
		t.Fatal(err)
	}
	m := arena(t, 1)
	if err := l.LendArena(t.Context(), 7, m); err != nil {
		t.Fatal(err)
	}
	for i, place := range []struct {
		arena  uint64
		offset int64
	}{{6, 0}, {7, m.Len()}, {7, m.Len() - 999}, {7, 1<<63 - 1}} {
		key := uint64(i)
		got := a.begin(t.Context(), transfer.Op{Key: transfer.Key{Seq: key}, Src: 1, Dst: 0, Spec: bytesSpec(1000)})
		frame := transfer.OfferFrame(2*key+1, key, bytesSpec(1000), place.arena, place.offset)
		if _, err := l.Post(link.Header{Family: link.Transfer, Type: link.Offer, Class: link.Control}, frame); err != nil {
			t.Fatal(err)
		}
		if kind := <-x.frames; kind != link.Accept {
			t.Errorf("a place at %v was answered by a frame of type %d; want the bytes to be asked for", place, kind)
		}
		data := link.Header{Family: link.Transfer, Type: link.TransferData, Class: link.Normal, Stream: 2*key + 1}
		if _, err := l.Post(data, fill(1000, key)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(content(t, got.Buffer), fill(1000, key)) {
			t.Errorf("%v: other bytes came", place)
		}
		<-x.frames // the verdict
	}
}
