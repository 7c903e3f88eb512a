package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/devicetest"
)

// devices gives each process of a world a fake device.
func devices(w *world, n int, f *devicetest.Fake) []*devicetest.Fake {
	var list []*devicetest.Fake
	w.engine.Devices = make(map[serry.DeviceID]transfer.Device)
	for i := range n {
		fake := &devicetest.Fake{Latency: f.Latency, Rate: f.Rate, Memory: f.Memory, RefusePins: f.RefusePins}
		w.engine.Devices[serry.DeviceID(i)] = fake
		list = append(list, fake)
	}
	return list
}

// onDevice makes a buffer in memory of a device.
func (p *process) onDevice(f *devicetest.Fake, data []byte) *transfer.Buffer {
	p.world.t.Helper()
	r, err := f.Alloc(int64(len(data)))
	if err != nil {
		p.world.t.Fatal(err)
	}
	copy(f.Bytes(r), data)
	b, err := p.Pool().Buffer(bytesSpec(len(data)), transfer.Memory{Region: r, Device: p.device})
	if err == nil {
		err = b.Define(p.Pool().Ready())
	}
	if err != nil {
		p.world.t.Fatal(err)
	}
	return b
}

// deviceContent is what a buffer in memory of a device holds, once it is defined.
func deviceContent(t testing.TB, f *devicetest.Fake, b *transfer.Buffer) []byte {
	t.Helper()
	if err := b.Definition().Wait(t.Context()); err != nil {
		t.Fatalf("buffer is not defined: %v", err)
	}
	u, err := b.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Drop()
	return f.Bytes(u.Memory())
}

func (p *process) deviceOp(to *process, key uint64, b *transfer.Buffer, c transfer.Class) transfer.Op {
	op := p.sendOp(to, key, nil)
	op.Buffer, op.Class = b, c
	return op
}

// From device to device, device to host and host to device.
func TestDeviceMemory(t *testing.T) {
	clause.Cite(t, "TR-G-27", "TR-G-29", "TR-RCV-9", "TRT-020", "TRT-260")
	onEach(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Latency: 10 * time.Microsecond, Rate: 50e9})
		a, b := w.pair()
		for i, size := range []int{0, 1, 8192, 8193, 1 << 20, 4<<20 - 1, 4 << 20, 4<<20 + 1, 41<<20 + 5} {
			want := fill(size, uint64(i))
			key := uint64(i) * 10
			sent := a.begin(t.Context(), a.deviceOp(b, key, a.onDevice(fakes[0], want), transfer.Normal))
			got := b.receive(a, key, size)
			if !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("%d bytes from device to device came out different", size)
			}
			sent = a.send(b, key+1, want)
			got = b.receive(a, key+1, size)
			if !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("%d bytes from host to device came out different", size)
			}
			sent = a.begin(t.Context(), a.deviceOp(b, key+2, a.onDevice(fakes[0], want), transfer.Normal))
			op := b.receiveOp(a, key+2, size)
			op.Buffer = b.buffer(make([]byte, size), nil)
			got = b.begin(t.Context(), op)
			if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("%d bytes from device to host came out different", size)
			}
		}
		if r := a.Records(); r[len(r)-1].Path != transfer.ByStaging {
			t.Errorf("path = %v; want staging", r[len(r)-1].Path)
		}
	})
}

// Copies of the device and sends of the link overlap: a transfer takes about as long as the slower of both.
func TestStagingOverlaps(t *testing.T) {
	clause.Cite(t, "TR-G-27", "TRT-260")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Rate: 1e9})
		a, b := w.pair()
		const size = 64 << 20
		want := fill(size, 1)
		began := time.Now()
		a.begin(t.Context(), a.deviceOp(b, 1, a.onDevice(fakes[0], want), transfer.Normal))
		got := b.receive(a, 1, size)
		if !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), want) {
			t.Error("other bytes came")
		}
		one := time.Duration(size * int64(time.Second) / 1e9) // of one direction of one device
		if took := time.Since(began); took > one*3/2 {
			t.Errorf("down and up one after the other take %v; this took %v", 2*one, took)
		}
	})
}

// Both processes send to each other more than their slots hold, in many transfers: none waits for the other for ever.
func TestStagingDoesNotDeadlock(t *testing.T) {
	clause.Cite(t, "TR-BPR-2", "TR-BPR-4", "TRT-238")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Latency: 10 * time.Microsecond, Rate: 20e9})
		a, b := w.pair()
		pair := []*process{a, b}
		var all []transfer.Item
		for key := range uint64(60) {
			for i, p := range pair {
				size := []int{100, 9000, 5 << 20, 1 << 20}[key%4]
				all = append(all, p.begin(t.Context(), p.deviceOp(pair[1-i], key, p.onDevice(fakes[i], fill(size, key)), transfer.Class(key%3))))
			}
		}
		for key := uint64(59); key < 60; key-- { // in another order
			for i, p := range pair {
				size := []int{100, 9000, 5 << 20, 1 << 20}[key%4]
				got := p.receive(pair[1-i], key, size)
				all = append(all, got)
			}
		}
		for i, item := range all {
			if err := item.Event.Wait(t.Context()); err != nil {
				t.Errorf("transfer %d: %v", i, err)
			}
		}
	})
}

// 10,000 receives on one device share its slots: all complete, and no more memory is pinned than there may be.
func TestManyReceivesWithFewSlots(t *testing.T) {
	clause.Cite(t, "TR-BPR-2", "TR-BPR-3", "TR-G-27", "TRT-237")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Latency: 10 * time.Microsecond, Rate: 20e9})
		a, b := w.pair()
		const count, slots = 10_000, 8
		sizes := []int{9000, 100, 20_000, 8<<10 + 1}
		sources := make(map[int]*transfer.Buffer)
		for _, size := range append(sizes, 5<<20) {
			sources[size] = a.onDevice(fakes[0], fill(size, uint64(size)))
		}
		var sends, receives []transfer.Op
		for key := range uint64(count) {
			size := sizes[key%4]
			if key%500 == 0 {
				size = 5 << 20
			}
			op := a.deviceOp(b, key, sources[size], transfer.Class(key%3))
			sends, receives = append(sends, op), append(receives, b.receiveOp(a, key, size))
		}
		got, err := b.Transfer(t.Context(), receives)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := a.Transfer(t.Context(), sends)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(got.Done().Wait(t.Context()), sent.Done().Wait(t.Context())); err != nil {
			t.Fatal(err)
		}
		for i, item := range got.Items() {
			size := int(receives[i].Spec.Dims[0])
			if !bytes.Equal(deviceContent(t, fakes[1], item.Buffer), fill(size, uint64(size))) {
				t.Fatalf("receive %d came out different", i)
			}
		}
		for i, f := range fakes { // slots are pinned once, and kept: so this is the most that there ever were
			if n := f.AllPinned(); n == 0 || n > slots {
				t.Errorf("device %d has %d slots; want at most %d for the one direction that was used", i, n, slots)
			}
		}
	})
}

// While bulk copies run, an urgent one waits for no more than the chunks that the device has: two.
func TestUrgentCopiesDoNotStarve(t *testing.T) {
	clause.Cite(t, "TR-STR-5", "TR-STR-4", "TRT-235")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Latency: 10 * time.Microsecond, Rate: 1e9})
		a, b := w.pair()
		const size = 200 << 20
		bulk := a.begin(t.Context(), a.deviceOp(b, 1, a.onDevice(fakes[0], fill(size, 1)), transfer.Bulk))
		b.receive(a, 1, size)
		for i := range uint64(20) {
			time.Sleep(5 * time.Millisecond)
			sent := a.begin(t.Context(), a.deviceOp(b, 10+i, a.onDevice(fakes[0], fill(4096, i)), transfer.Urgent))
			b.receive(a, 10+i, 4096)
			if err := sent.Event.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if bulk.Event.State() == transfer.Complete {
			t.Fatal("the bulk transfer has ended before the urgent ones")
		}
		chunk := time.Duration(1<<20*int64(time.Second)/1e9) + 10*time.Microsecond
		urgent := 0
		for _, c := range append(fakes[0].Copies(), fakes[1].Copies()...) {
			if c.Bytes != 4096 {
				continue
			}
			urgent++
			if wait := c.End.Sub(c.Asked); wait > 2*chunk+200*time.Microsecond {
				t.Errorf("an urgent copy %v took %v; two chunks take %v", c.Direction, wait, 2*chunk)
			}
		}
		if urgent != 40 {
			t.Errorf("%d urgent copies; want 40", urgent)
		}
		if err := bulk.Event.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A queue that is fed blindly starves the other one: the fake shows what the rule is for.
func TestFakeStarves(t *testing.T) {
	clause.Cite(t, "TR-STR-5")
	synctest.Test(t, func(t *testing.T) {
		f := &devicetest.Fake{Rate: 1e9}
		bulk, _ := f.Queue(transfer.Down, transfer.Bulk)
		urgent, _ := f.Queue(transfer.Down, transfer.Urgent)
		source, _ := f.Alloc(1 << 20)
		slot := memory.Of(make([]byte, 1<<20))
		if f.Pin(slot) != nil {
			t.Fatal("Pin failed")
		}
		for range 50 {
			if err := bulk.Copy(slot, source); err != nil {
				t.Fatal(err)
			}
		}
		if err := urgent.Copy(slot.Slice(0, 1), source.Slice(0, 1)); err != nil {
			t.Fatal(err)
		}
		m, _ := urgent.Mark()
		began := time.Now()
		for urgent.Reached() < m.Number {
			time.Sleep(time.Millisecond)
		}
		if d := time.Since(began); d < 40*time.Millisecond {
			t.Errorf("a copy of one byte waited %v beside 50 of a MiB in another queue", d)
		}
	})
}

// An error of one copy fails its transfer alone. A device that is lost fails all of its transfers, and none of another device.
func TestDeviceErrors(t *testing.T) {
	clause.Cite(t, "TR-G-29", "TR-ERR-3", "TR-ASY-2", "TRT-260")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 3, &devicetest.Fake{Latency: time.Millisecond, Rate: 1e9})
		all := w.startAll(3)
		a, b, c := all[0], all[1], all[2]
		fakes[0].FailCopy(3)
		first := a.begin(t.Context(), a.deviceOp(b, 1, a.onDevice(fakes[0], fill(8<<20, 1)), transfer.Normal))
		got := b.receive(a, 1, 8<<20)
		if err := first.Event.Wait(t.Context()); !errors.Is(err, devicetest.ErrRefused) {
			t.Errorf("send whose copy fails = %v; want the error of the device", err)
		}
		if err := got.Event.Wait(t.Context()); err == nil {
			t.Error("its receive ended well")
		}
		again := a.begin(t.Context(), a.deviceOp(b, 2, a.onDevice(fakes[0], fill(8<<20, 2)), transfer.Normal))
		if got := b.receive(a, 2, 8<<20); !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), fill(8<<20, 2)) || again.Event.Wait(t.Context()) != nil {
			t.Error("the next transfer is wrong")
		}
		fakes[1].LoseAt(4) // the receiver's
		sent := a.begin(t.Context(), a.deviceOp(b, 3, a.onDevice(fakes[0], fill(30<<20, 3)), transfer.Normal))
		got = b.receive(a, 3, 30<<20)
		other := a.begin(t.Context(), a.deviceOp(c, 3, a.onDevice(fakes[0], fill(30<<20, 4)), transfer.Normal))
		safe := c.receive(a, 3, 30<<20)
		if err := got.Event.Wait(t.Context()); !errors.Is(err, devicetest.ErrLost) {
			t.Errorf("receive on a device that is lost = %v", err)
		}
		if err := sent.Event.Wait(t.Context()); err == nil {
			t.Error("its send ended well")
		}
		if !bytes.Equal(deviceContent(t, fakes[2], safe.Buffer), fill(30<<20, 4)) || other.Event.Wait(t.Context()) != nil {
			t.Error("a transfer with another device is wrong")
		}
	})
}

// A transfer that is cancelled ends when the device does not use its memory any more, and not before.
func TestCancelWhileTheDeviceCopies(t *testing.T) {
	clause.Cite(t, "TR-CAN-4", "TR-PAB-7", "TRT-200", "TRT-201")
	for _, wait := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 7 * time.Millisecond, 15 * time.Millisecond} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				fakes := devices(w, 2, &devicetest.Fake{Latency: time.Millisecond, Rate: 1e9})
				a, b := w.pair()
				ctx, cancel := context.WithCancel(t.Context())
				sent := a.begin(t.Context(), a.deviceOp(b, 1, a.onDevice(fakes[0], fill(40<<20, 1)), transfer.Normal))
				got := b.begin(ctx, b.receiveOp(a, 1, 40<<20))
				time.Sleep(wait)
				cancel()
				<-got.Event.Done()
				u, err := got.Buffer.Use(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				memory := fakes[1].Bytes(u.Memory())
				u.Drop()
				for i := range memory {
					memory[i] = 0xee
				}
				<-sent.Event.Done()
				time.Sleep(time.Second)
				fakes[1].Copies()
				if !allEqual(memory, 0xee) {
					t.Error("memory was written after the end")
				}
			})
		})
	}
}

func allEqual(b []byte, x byte) bool {
	return bytes.Count(b, []byte{x}) == len(b)
}

// Cuts in the middle of transfers between devices: they are resumed, and all slots are free in the end.
func TestDeviceTransfersThroughCuts(t *testing.T) {
	clause.Cite(t, "TR-ERR-5", "TRT-213")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Latency: 100 * time.Microsecond, Rate: 1e9})
		a, b := w.pair()
		for round := range uint64(4) {
			sent := a.begin(t.Context(), a.deviceOp(b, round, a.onDevice(fakes[0], fill(50<<20, round)), transfer.Normal))
			got := b.receive(a, round, 50<<20)
			for range 3 {
				time.Sleep(13 * time.Millisecond)
				w.network.reset(hostOf(a.life))
			}
			if !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), fill(50<<20, round)) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("transfer %d is wrong", round)
			}
		}
	})
}

// Without a driver an engine works, and says that it cannot move memory of devices.
func TestNoDriver(t *testing.T) {
	clause.Cite(t, "TR-G-29", "TRT-262")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		f := new(devicetest.Fake)
		if _, err := a.Transfer(t.Context(), []transfer.Op{a.deviceOp(b, 1, a.onDevice(f, []byte("abc")), transfer.Normal)}); !errors.Is(err, transfer.ErrUnsupported) {
			t.Errorf("Transfer() = %v; want ErrUnsupported", err)
		}
		sent, got := a.send(b, 2, []byte("abc")), b.receive(a, 2, 3)
		if string(content(t, got.Buffer)) != "abc" || sent.Event.Wait(t.Context()) != nil {
			t.Error("a transfer of memory of the host is wrong")
		}
	})
}

// A device that gives no memory, or pins none, fails the transfers that need it.
func TestNoDeviceMemory(t *testing.T) {
	clause.Cite(t, "TR-RCV-9", "TRT-035")
	inBubble(t, func(t *testing.T, w *world) {
		devices(w, 2, &devicetest.Fake{Memory: 10, RefusePins: true})
		a, b := w.pair()
		sent, got := a.send(b, 1, fill(100, 1)), b.receive(a, 1, 100)
		if err := got.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("receive without memory = %v; want ErrLimit", err)
		}
		if err := sent.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("its send = %v; want ErrLimit", err)
		}
		sent, got = a.send(b, 2, fill(9, 1)), b.receive(a, 2, 9)
		if err := got.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("receive without pinned memory = %v; want ErrLimit", err)
		}
		if sent.Event.Wait(t.Context()) == nil {
			t.Error("its send ended well")
		}
	})
}

// An engine is closed while a device hangs: it does not wait for ever, and memory that the device may write is not given back.
func TestCloseBesideADeviceThatHangs(t *testing.T) {
	clause.Cite(t, "TR-CAN-5", "TR-CAN-7", "TR-ASY-1")
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("peerLost=%v", lost), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				fakes := devices(w, 2, &devicetest.Fake{Latency: time.Millisecond, Rate: 1e9})
				a, b := w.pair()
				b.send(a, 1, fill(40<<20, 1))
				region, err := fakes[0].Alloc(40 << 20)
				if err != nil {
					t.Fatal(err)
				}
				freed := false
				into, err := a.Pool().Buffer(bytesSpec(40<<20), transfer.Memory{Region: region, Free: func() { freed = true }})
				if err != nil {
					t.Fatal(err)
				}
				op := a.receiveOp(b, 1, 0)
				op.Buffer = into
				got := a.begin(t.Context(), op)
				time.Sleep(20 * time.Millisecond)
				fakes[0].Hang(true)
				into.Delete()
				time.Sleep(20 * time.Millisecond)
				if lost {
					w.kill(b)
					time.Sleep(5 * time.Second)
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				a.Close(ctx)
				if d := time.Since(began); d > 15*time.Second {
					t.Errorf("Close() took %v beside a device that hangs", d)
				}
				if err := got.Event.Err(); got.Event.State() != transfer.Failed {
					t.Errorf("receive of an engine that was closed is %v, %v", got.Event.State(), err)
				}
				fakes[0].Hang(false)
				time.Sleep(3 * time.Second)
				if a.Pool().Flush(); freed {
					t.Error("memory that the device may have written was given back")
				}
			})
		})
	}
}

// Copies inside a device, and offers of its memory.
func TestDeviceCopiesAndOffers(t *testing.T) {
	clause.Cite(t, "TR-G-29", "TR-DPT-4", "TR-PUL-17", "TRT-070")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{Latency: time.Millisecond})
		a, b := w.pair()
		source := a.onDevice(fakes[0], []byte("content"))
		twin, err := a.Copy(t.Context(), source, 0)
		if err != nil {
			t.Fatal(err)
		}
		if string(deviceContent(t, fakes[0], twin)) != "content" {
			t.Error("the copy is different")
		}
		x, err := a.Offer(t.Context(), 1, []*transfer.Buffer{source}, transfer.OfferOptions{Times: -1})
		if err != nil {
			t.Fatal(err)
		}
		g := b.pull(t.Context(), x.Handle(), 7, 0)
		if string(deviceContent(t, fakes[1], g.Items()[0].Buffer)) != "content" {
			t.Error("the pull brought other bytes")
		}
		for view, want := range map[*transfer.View]error{
			{Offset: 1, Run: 3}: nil,
			{Run: 1, Counts: []int64{3}, Strides: []int64{2}}: transfer.ErrUnsupported,
		} {
			g, err := b.Pull(t.Context(), x.Handle(), []transfer.Want{{View: *view, Device: 1, Spec: bytesSpec(3)}})
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Done().Wait(t.Context()); !errors.Is(err, want) {
				t.Errorf("pull of %v = %v; want %v", *view, err, want)
			}
		}
		x.Withdraw()
	})
}

// A making is the work of a device that makes the data of a buffer.
type making struct {
	recorder *transfer.Recorder
	queue    transfer.Queue
}

// maker gives a device of a process something to do.
func (p *process) maker(f *devicetest.Fake) *making {
	p.world.t.Helper()
	q, err := f.Queue(transfer.Inside, transfer.Normal)
	if err != nil {
		p.world.t.Fatal(err)
	}
	return &making{transfer.NewRecorder(p.Pool(), f), q}
}

// make has the device make a buffer with this content. It takes the time of a copy inside the device.
func (p *process) make(m *making, f *devicetest.Fake, data []byte) *transfer.Buffer {
	p.world.t.Helper()
	src := p.onDevice(f, data)
	u, err := src.Use(p.world.t.Context())
	if err != nil {
		p.world.t.Fatal(err)
	}
	b := p.emptyOnDevice(f, p.device, len(data))
	into, err := b.Use(p.world.t.Context())
	if err != nil {
		p.world.t.Fatal(err)
	}
	made := m.recorder.Record(m.queue, m.queue.Copy(into.Memory(), u.Memory()))
	u.Convert(made)
	into.Convert(made)
	if err := b.Define(made); err != nil {
		p.world.t.Fatal(err)
	}
	return b
}

// A send from a device is prepared while the device still makes its data: when they are there, their copy follows at once.
func TestSendBeginsWhenItsDataAreRecorded(t *testing.T) {
	clause.Cite(t, "TR-SND-3", "TR-OBJ-2", "TRT-025")
	inBubble(t, func(t *testing.T, w *world) {
		const size = 10 << 20
		fakes := devices(w, 2, &devicetest.Fake{Rate: 100 * size}) // 10 ms for all
		fakes[0].Inside = 10 * size                                // 100 ms to make it
		a, b := w.pair()
		meet(t, a, b)
		want := fill(size, 1)
		began := time.Now()
		data := a.make(a.maker(fakes[0]), fakes[0], want)
		sent := a.begin(t.Context(), a.deviceOp(b, 1, data, transfer.Normal))
		got := b.receive(a, 1, size)
		if d := time.Since(began); d != 0 || data.Definition().State() != transfer.Recorded {
			t.Fatalf("submitted after %v, with data that are %v; want at once, recorded", d, data.Definition().State())
		}
		if !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
			t.Error("the bytes came out different")
		}
		var made, first devicetest.Copied
		for _, c := range fakes[0].Copies() {
			if c.Direction == transfer.Inside {
				made = c
			} else if first.End.IsZero() {
				first = c
			}
		}
		if !first.Asked.Before(made.End) || first.End.Before(made.End) || first.End.Sub(made.End) > 5*time.Millisecond {
			t.Errorf("the data were made at %v; the first copy was submitted at %v and ended at %v", made.End.Sub(began), first.Asked.Sub(began), first.End.Sub(began))
		}
	})
}

// Data that are made for longer than a stall may last, data that turn out to be an error, and sends that end before: nothing leaves
// before the data are good, and other transfers find slots.
func TestRecordedDataThatAreLate(t *testing.T) {
	clause.Cite(t, "TR-SND-3", "TR-SND-4", "TR-TMO-6", "TR-CAN-4", "TR-ORD-7")
	inBubble(t, func(t *testing.T, w *world) {
		const size = 1 << 20
		fakes := devices(w, 3, &devicetest.Fake{Rate: 1e9})
		fakes[0].Inside = size / 30 // 30 s to make the first one, and about one for each of the others
		length := func(key uint64) int {
			if key == 0 {
				return size
			}
			return size / 32
		}
		w.engine.Timeout = time.Hour
		all := w.startAll(3)
		a, b, c := all[0], all[1], all[2]
		for _, p := range []*process{a, c} {
			meet(t, p, b)
		}
		maker := a.maker(fakes[0])
		var sent, got []transfer.Item
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		for key := range uint64(12) { // more than there are slots
			use := t.Context()
			if key == 5 {
				use = ctx
			}
			op := a.deviceOp(b, key, a.make(maker, fakes[0], fill(length(key), key)), transfer.Normal)
			sent, got = append(sent, a.begin(use, op)), append(got, b.receive(a, key, length(key)))
		}
		other, gotOther := c.begin(t.Context(), c.deviceOp(b, 99, c.onDevice(fakes[2], fill(size, 99)), transfer.Normal)), b.receive(c, 99, size)
		if !bytes.Equal(deviceContent(t, fakes[1], gotOther.Buffer), fill(size, 99)) || other.Event.Wait(t.Context()) != nil || time.Since(began) > time.Second {
			t.Errorf("a transfer of another process beside them is wrong, or took %v", time.Since(began))
		}
		cancel()
		for _, item := range []transfer.Item{sent[5], got[5]} {
			if err := item.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) || time.Since(began) > 5*time.Second {
				t.Errorf("a transfer that was cancelled = %v after %v; want ErrCancelled", err, time.Since(began))
			}
		}
		for key := range uint64(12) {
			if key == 5 {
				continue
			}
			if !bytes.Equal(deviceContent(t, fakes[1], got[key].Buffer), fill(length(key), key)) || sent[key].Event.Wait(t.Context()) != nil {
				t.Errorf("transfer %d came out different", key)
			}
			if least := time.Duration(32+key) * 30 * time.Second / 32; time.Since(began) < least {
				t.Errorf("transfer %d ended after %v; its data were made after %v", key, time.Since(began), least)
			}
		}
	})
}

// The work that makes the data is recorded, and fails: the receiver has its error, and no byte.
func TestRecordedDataThatFail(t *testing.T) {
	clause.Cite(t, "TR-SND-3", "TR-SND-4", "TR-ASY-2")
	inBubble(t, func(t *testing.T, w *world) {
		const size = 1 << 20
		fakes := devices(w, 2, &devicetest.Fake{Rate: 1e9})
		a, b := w.pair()
		meet(t, a, b)
		m := a.maker(fakes[0])
		data := a.emptyOnDevice(fakes[0], 0, size)
		slow := a.make(m, fakes[0], fill(size, 1)) // so that there is something to wait for
		if err := data.Define(m.recorder.Record(m.queue, errProducer)); err != nil {
			t.Fatal(err)
		}
		before := w.network.sent(hostOf(a.life))
		sent, got := a.begin(t.Context(), a.deviceOp(b, 1, data, transfer.Normal)), b.receive(a, 1, size)
		if err := sent.Event.Wait(t.Context()); !errors.Is(err, errProducer) {
			t.Errorf("send = %v; want the error of its producer", err)
		}
		if err := got.Event.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), errProducer.Error()) {
			t.Errorf("receive = %v; want the error of the producer", err)
		}
		if n := w.network.sent(hostOf(a.life)) - before; n > size/2 {
			t.Errorf("%d bytes left although the data are an error", n)
		}
		if err := slow.Definition().Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
