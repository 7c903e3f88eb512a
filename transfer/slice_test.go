package transfer_test

import (
	"bytes"
	"context"
	"errors"
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

// slice is a part of a buffer of bytes.
func slice(t testing.TB, b *transfer.Buffer, offset, size int) *transfer.Buffer {
	t.Helper()
	part, err := b.Slice(bytesSpec(size), int64(offset))
	if err != nil {
		t.Fatal(err)
	}
	return part
}

// The middle third of a buffer is received, and sent on: the rest of the memory stays as it is, whatever becomes of the transfer.
func TestReceiveIntoASlice(t *testing.T) {
	clause.Cite(t, "TR-PAB-6", "TR-OBJ-5", "TRT-045")
	const third = 3 << 20
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		old, want := fill(3*third, 1), fill(third, 2)
		into := bytes.Clone(old)
		whole := b.buffer(into, nil)
		op := b.receiveOp(a, 1, 0)
		op.Buffer = slice(t, whole, third, third)
		got := b.begin(t.Context(), op)
		sent := a.send(b, 1, want)
		if err := errors.Join(got.Event.Wait(t.Context()), sent.Event.Wait(t.Context())); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(into[third:2*third], want) || !bytes.Equal(into[:third], old[:third]) || !bytes.Equal(into[2*third:], old[2*third:]) {
			t.Error("the middle third is wrong, or the rest was touched")
		}
		if whole.Definition().State() != transfer.Unrecorded {
			t.Error("the whole is defined by one of its parts")
		}
		if err := whole.Define(got.Event); err != nil {
			t.Fatal(err)
		}
		back := b.sendOp(a, 2, nil)
		back.Buffer = slice(t, slice(t, whole, third, third), 10, 100) // a part of a part
		again := a.receive(b, 2, 100)
		if b.begin(t.Context(), back); !bytes.Equal(content(t, again.Buffer), want[10:110]) {
			t.Error("a part of what was received came out different")
		}
	})
}

// A receive into a part is cancelled in the middle, and its whole is deleted: nothing outside the part is touched, and the memory
// is given back when the part is not used any more.
func TestSliceOfATransferThatFails(t *testing.T) {
	clause.Cite(t, "TR-PAB-6", "TR-PAB-7", "TR-OBJ-6")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		w.network.setPace(time.Millisecond)
		const size = 16 << 20
		old := fill(size+2000, 1)
		into, freed := bytes.Clone(old), false
		whole, err := b.Pool().Buffer(bytesSpec(len(into)), transfer.Memory{Region: memory.Of(into), Device: b.device, Free: func() { freed = true }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		op := b.receiveOp(a, 1, 0)
		op.Buffer = slice(t, whole, 1000, size)
		got := b.begin(ctx, op)
		a.send(b, 1, fill(size, 2))
		time.Sleep(10 * time.Millisecond)
		whole.Delete()
		synctest.Wait()
		if freed {
			t.Error("memory was given back while a part of it was received")
		}
		cancel()
		if err := got.Event.Wait(t.Context()); !errors.Is(err, transfer.ErrCancelled) {
			t.Fatalf("receive = %v; want ErrCancelled", err)
		}
		synctest.Wait()
		if !freed {
			t.Error("the memory was not given back")
		}
		if !bytes.Equal(into[:1000], old[:1000]) || !bytes.Equal(into[size+1000:], old[size+1000:]) {
			t.Error("bytes outside of the part were touched")
		}
		if _, err := op.Buffer.Use(t.Context()); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Use() of a part whose whole was deleted = %v; want ErrInvalid", err)
		}
	})
}

// Parts that do not lie in their buffer are refused before anything moves, and a part cannot give its memory away.
func TestSlicesThatAreRefused(t *testing.T) {
	clause.Cite(t, "TR-PAB-6", "TR-ERR-2", "TRT-046")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		whole := b.buffer(make([]byte, 100), nil)
		for _, c := range []struct {
			offset int64
			spec   transfer.Spec
		}{
			{50, bytesSpec(51)}, {101, bytesSpec(0)}, {-1, bytesSpec(1)}, {1 << 62, bytesSpec(1)}, {0, bytesSpec(101)},
			{99, transfer.Spec{Type: memory.F32, Dims: []int64{1}}}, {0, transfer.Spec{Type: 99}},
		} {
			if part, err := whole.Slice(c.spec, c.offset); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Slice(%v, %d) = %v, %v; want ErrInvalid", c.spec, c.offset, part, err)
			}
		}
		part := slice(t, whole, 100, 0)
		if _, err := part.Donate(t.Context()); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Donate() of a part = %v; want ErrInvalid", err)
		}
		part.Delete()
		if _, err := part.Use(t.Context()); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Use() of a part that was deleted = %v; want ErrInvalid", err)
		}
		whole.Delete()
		if _, err := whole.Slice(bytesSpec(1), 0); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Slice() of a buffer that was deleted = %v; want ErrInvalid", err)
		}
		if n := len(a.Records()) + len(b.Records()); n != 0 {
			t.Errorf("%d transfers began", n)
		}
	})
}

// Parts of memory of a device, and of memory that the peer can read.
func TestSlicesOfOtherMemory(t *testing.T) {
	clause.Cite(t, "TR-PAB-6", "TR-G-27", "TR-G-12")
	inHostBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 2, &devicetest.Fake{})
		a, b := w.pair()
		data := fill(3<<20, 1)
		op := a.sendOp(b, 1, nil)
		op.Buffer = slice(t, a.onDevice(fakes[0], data), 1<<20, 1<<20)
		a.begin(t.Context(), op)
		got := b.receive(a, 1, 1<<20)
		if !bytes.Equal(deviceContent(t, fakes[1], got.Buffer), data[1<<20:2<<20]) {
			t.Error("a part of the memory of a device came out different")
		}
		op = a.sendOp(b, 2, nil)
		op.Buffer = slice(t, a.inArena(arena(t, 4<<20), data), 1<<20, 1<<20)
		a.begin(t.Context(), op)
		target := b.receiveOp(a, 2, 0)
		target.Buffer = b.buffer(make([]byte, 1<<20), nil)
		if got := b.begin(t.Context(), target); !bytes.Equal(content(t, got.Buffer), data[1<<20:2<<20]) {
			t.Error("a part of an arena came out different")
		}
		if paths := b.paths(); paths[1] != transfer.ByMemory {
			t.Errorf("a part of an arena came by %v; want shared memory", paths[1])
		}
	})
}

// Memory that was donated is received into, if it has the size of the value.
func TestReceiveIntoDonatedMemory(t *testing.T) {
	clause.Cite(t, "TR-PAB-5", "TR-OBJ-7", "TRT-012")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		old := b.buffer(make([]byte, 8), b.Pool().Ready())
		d, err := old.Donate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m, ready := d.Confirm()
		if _, err := b.Pool().Buffer(bytesSpec(9), m); !errors.Is(err, serry.ErrInvalid) || !strings.Contains(err.Error(), "takes 9 bytes, memory has 8") {
			t.Errorf("Buffer() of 9 bytes in memory of 8 = %v; want ErrInvalid with both sizes", err)
		}
		into, err := b.Pool().Buffer(bytesSpec(8), m)
		if err != nil {
			t.Fatal(err)
		}
		op := b.receiveOp(a, 1, 8)
		op.Buffer, op.After = into, []*transfer.Event{ready}
		got := b.begin(t.Context(), op)
		a.send(b, 1, []byte("received"))
		if string(content(t, got.Buffer)) != "received" {
			t.Errorf("donated memory has %q", content(t, got.Buffer))
		}
	})
}

// Memory of a device is refused in a transfer of another one.
func TestMemoryOfAnotherDevice(t *testing.T) {
	clause.Cite(t, "TR-PRE-7", "TRT-048")
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(1, 0).Task, 2: life(0, 0).Task}
		fakes := devices(w, 3, &devicetest.Fake{})
		a, _ := w.pair()
		op := transfer.Op{Src: 2, Dst: 1, Buffer: a.onDevice(fakes[0], []byte("data"))} // which lies on device 0
		if _, err := a.Transfer(t.Context(), []transfer.Op{op}); !errors.Is(err, serry.ErrInvalid) || !strings.Contains(err.Error(), "device 0 in a transfer of device 2") {
			t.Errorf("Transfer() = %v; want ErrInvalid", err)
		}
	})
}
