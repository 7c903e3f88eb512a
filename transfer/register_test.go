package transfer_test

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/devicetest"
)

// emptyOnDevice makes a buffer in memory of a device that is not defined.
func (p *process) emptyOnDevice(f *devicetest.Fake, d serry.DeviceID, size int) *transfer.Buffer {
	p.world.t.Helper()
	r, err := f.Alloc(int64(size))
	if err != nil {
		p.world.t.Fatal(err)
	}
	b, err := p.Pool().Buffer(bytesSpec(size), transfer.Memory{Region: r, Device: d})
	if err != nil {
		p.world.t.Fatal(err)
	}
	return b
}

// Memory of the host that was registered once serves copies from one device, to another, and transfers, many times.
func TestRegisteredMemory(t *testing.T) {
	clause.Cite(t, "TR-PAB-8", "TRT-075")
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(1, 0).Task, 2: life(0, 0).Task}
		fakes := devices(w, 3, &devicetest.Fake{Rate: 10e9})
		a, b := w.pair()
		freed := 0
		const size = 3 << 20
		host := transfer.Memory{Region: memory.Of(make([]byte, 4*size)), Free: func() { freed++ }}
		r, err := a.Register(host)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := a.Register(host); err != nil || again != r {
			t.Fatalf("Register() of the same memory = %p, %v; want %p", again, err, r)
		}
		for i := range uint64(3) {
			want := fill(size, i)
			part, err := r.Buffer(bytesSpec(size), int64(i)*size+1)
			if err != nil {
				t.Fatal(err)
			}
			into := a.emptyOnDevice(fakes[2], 2, size)
			if err := errors.Join(a.CopyInto(t.Context(), into, part, transfer.Normal), a.CopyInto(t.Context(), part, a.onDevice(fakes[0], want), transfer.Normal)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(deviceContent(t, fakes[2], into), want) || !bytes.Equal(content(t, part), want) {
				t.Errorf("copy %d from device to device by way of the host came out different", i)
			}
			send := a.sendOp(b, i, nil)
			send.Buffer = part
			receive := b.receiveOp(a, i, 0)
			receive.Buffer = b.buffer(make([]byte, size), nil)
			sent, got := a.begin(t.Context(), send), b.begin(t.Context(), receive)
			if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("transfer %d came out different", i)
			}
			part.Delete()
		}
		for i, f := range fakes {
			if n := f.Pinned(&host.Region.Bytes()[0]); n != 1 {
				t.Errorf("device %d has pinned the memory %d times; want once", i, n)
			}
		}
		r.Release()
		synctest.Wait()
		if freed != 0 {
			t.Error("the memory was given back although it is registered")
		}
		r.Release()
		synctest.Wait()
		if freed != 1 {
			t.Errorf("the memory was given back %d times; want once", freed)
		}
		for i, f := range fakes {
			if n := f.Pinned(&host.Region.Bytes()[0]); n != 0 {
				t.Errorf("device %d has memory pinned that was given back", i)
			}
		}
		a.Close(t.Context())
		b.Close(t.Context())
		for i, f := range fakes {
			if n := f.AllPinned(); n != 0 {
				t.Errorf("device %d has %d regions pinned after the end of all engines", i, n)
			}
		}
	})
}

// A copy that is under way keeps registered memory, and errors of its source and of the device reach the copy.
func TestCopiesOfRegisteredMemory(t *testing.T) {
	clause.Cite(t, "TR-PAB-8", "TR-OBJ-3", "TR-OBJ-5", "TR-G-29")
	inBubble(t, func(t *testing.T, w *world) {
		fakes := devices(w, 1, &devicetest.Fake{Rate: 1e6})
		a, _ := w.pair()
		freed := false
		raw := make([]byte, 1<<20)
		host := transfer.Memory{Region: memory.Of(raw), Free: func() { freed = true }}
		r, err := a.Register(host)
		if err != nil {
			t.Fatal(err)
		}
		part := func() *transfer.Buffer {
			b, err := r.Buffer(bytesSpec(1<<20), 0)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		promise, late := a.Pool().Event()
		bad := a.emptyOnDevice(fakes[0], 0, 1<<20)
		if err := bad.Define(late); err != nil {
			t.Fatal(err)
		}
		into := part()
		if err := a.CopyInto(t.Context(), into, bad, transfer.Normal); err != nil {
			t.Fatal(err)
		}
		promise.Set(errProducer)
		if err := into.Definition().Wait(t.Context()); err != errProducer {
			t.Errorf("copy of an error = %v; want it unchanged", err)
		}
		fakes[0].FailCopy(1)
		into = part()
		if err := a.CopyInto(t.Context(), into, a.onDevice(fakes[0], make([]byte, 1<<20)), transfer.Bulk); err != nil {
			t.Fatal(err)
		}
		if err := into.Definition().Wait(t.Context()); !errors.Is(err, devicetest.ErrRefused) {
			t.Errorf("copy that the device refuses = %v; want its error", err)
		}
		into = part()
		if err := a.CopyInto(t.Context(), into, a.onDevice(fakes[0], fill(1<<20, 1)), transfer.Normal); err != nil {
			t.Fatal(err)
		}
		r.Release()
		again, err := a.Register(host)
		if err != nil {
			t.Fatalf("Register() of memory that was released, and is in use = %v", err)
		}
		if n := fakes[0].Pinned(&raw[0]); n != 1 {
			t.Errorf("the memory is pinned %d times; want once", n)
		}
		if _, err := a.Register(transfer.Memory{Region: memory.Of(raw[:5])}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Register() of a part of it = %v; want ErrInvalid", err)
		}
		again.Release()
		time.Sleep(500 * time.Millisecond)
		if freed || into.Definition().State() == transfer.Complete {
			t.Error("the memory was given back while the device copies, or the copy took no time")
		}
		if err := into.Definition().Wait(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !freed {
			t.Error("the memory was not given back")
		}
	})
}

// What cannot be registered, and copies that cannot be made.
func TestCopiesThatAreRefused(t *testing.T) {
	clause.Cite(t, "TR-PAB-8", "TR-PRE-1")
	inBubble(t, func(t *testing.T, w *world) {
		w.engine.Owners = map[serry.DeviceID]serry.TaskID{0: life(0, 0).Task, 1: life(1, 0).Task, 2: life(0, 0).Task}
		fakes := devices(w, 3, &devicetest.Fake{})
		a, _ := w.pair()
		onDevice := a.onDevice(fakes[0], make([]byte, 8))
		loose, longer, other := a.buffer(make([]byte, 8), nil), a.buffer(make([]byte, 9), nil), a.emptyOnDevice(fakes[2], 2, 8)
		for name, err := range map[string]error{
			"unregistered memory": a.CopyInto(t.Context(), loose, onDevice, transfer.Normal),
			"another device":      a.CopyInto(t.Context(), other, onDevice, transfer.Normal),
		} {
			if !errors.Is(err, transfer.ErrUnsupported) {
				t.Errorf("CopyInto(%s) = %v; want ErrUnsupported", name, err)
			}
		}
		if err := a.CopyInto(t.Context(), longer, loose, transfer.Normal); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("CopyInto() of another size = %v; want ErrInvalid", err)
		}
		done := a.buffer(make([]byte, 8), a.Pool().Ready())
		if err := a.CopyInto(t.Context(), done, done, transfer.Normal); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("CopyInto() of what is defined = %v; want ErrInvalid", err)
		}
		u, err := onDevice.Use(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer u.Drop()
		if _, err := a.Register(transfer.Memory{Region: u.Memory()}); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Register() of memory of a device = %v; want ErrInvalid", err)
		}
		fakes[2].RefusePins = true
		before := fakes[0].AllPinned()
		if _, err := a.Register(transfer.Memory{Region: memory.Of(make([]byte, 8))}); !errors.Is(err, transfer.ErrLimit) {
			t.Errorf("Register() that a device refuses = %v; want ErrLimit", err)
		}
		if n := fakes[0].AllPinned(); n != before {
			t.Errorf("a device has %d regions pinned; want %d: another one refused", n, before)
		}
		for _, b := range []*transfer.Buffer{loose, longer, other} {
			b.Delete()
		}
	})
}
