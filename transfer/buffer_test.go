package transfer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
	"github.com/serry-dev/serry/transfer"
)

// bytesOf is memory of a buffer that is deleted when the test ends.
func bytesOf(t *testing.T, p *transfer.Pool, text string) memory.Region {
	t.Helper()
	b, _ := bufferOf(t, p, []byte(text))
	t.Cleanup(b.Delete)
	u, err := b.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Drop()
	return u.Memory()
}

func TestBufferIsDefinedOnce(t *testing.T) {
	clause.Cite(t, "TR-OBJ-1", "TR-OBJ-3")
	p := newPool(t)
	b, _ := bufferOf(t, p, []byte("x"))
	defer b.Delete()
	if err := b.Define(p.Error(errProducer)); err != nil {
		t.Fatal(err)
	}
	if err := b.Define(p.Ready()); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("second Define() = %v; want ErrInvalid", err)
	}
	if err := b.Definition().Wait(t.Context()); err != errProducer {
		t.Errorf("definition = %v; want the first one, with the error of the producer unchanged", err)
	}
	early, freed := bufferOf(t, p, []byte("y"))
	early.Delete()
	p.Flush()
	if err := early.Define(p.Ready()); !errors.Is(err, serry.ErrInvalid) || early.Definition().Err() == nil || *freed != 1 {
		t.Errorf("Define() after Delete() = %v, definition %v, freed %d times", err, early.Definition().Err(), *freed)
	}
}

func TestMemoryStaysUntilTheLastEvent(t *testing.T) {
	clause.Cite(t, "TR-OBJ-5", "TR-OBJ-6", "TR-OBJ-7")
	p := newPool(t)
	define, defined := p.Event()
	read, wasRead := p.Event()
	b, freed := bufferOf(t, p, []byte("x"))
	b.Define(defined)
	use, err := b.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	share, err := b.Share(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Delete() // returns although there are holds and events
	if !b.Deleted() {
		t.Error("Deleted() = false after Delete()")
	}
	use.Convert(wasRead)
	use.Drop() // does nothing
	steps := []struct {
		name string
		do   func()
	}{
		{"the definition", func() { define.Set(nil) }},
		{"foreign code", func() { share.Release(); share.Release() }},
		{"the reader", func() { read.Set(errProducer) }},
	}
	for _, s := range steps {
		p.Flush()
		if *freed != 0 {
			t.Errorf("memory was given back before the end of %s", s.name)
		}
		s.do()
	}
	p.Flush()
	if *freed != 1 {
		t.Errorf("memory was given back %d times; want once", *freed)
	}
	for name, call := range map[string]func() error{
		"Use":    func() error { _, err := b.Use(t.Context()); return err },
		"Share":  func() error { _, err := b.Share(t.Context()); return err },
		"Donate": func() error { _, err := b.Donate(t.Context()); return err },
	} {
		if err := call(); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("%s() of a deleted buffer = %v; want ErrInvalid", name, err)
		}
	}
}

func TestDonation(t *testing.T) {
	clause.Cite(t, "TR-OBJ-5", "TR-OBJ-7")
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t)
		b, freed := bufferOf(t, p, []byte("x"))
		b.Define(p.Ready())

		share, _ := b.Share(t.Context())
		if _, err := b.Donate(t.Context()); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Donate() of a shared buffer = %v; want ErrInvalid", err)
		}
		share.Release()

		use, _ := b.Use(t.Context())
		read, wasRead := p.Event()
		donated := make(chan *transfer.Donation)
		go func() {
			d, _ := b.Donate(t.Context())
			donated <- d
		}()
		synctest.Wait()
		select {
		case <-donated:
			t.Fatal("Donate() did not wait for the usage hold")
		default:
		}
		use.Convert(wasRead)
		d := <-donated

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := b.Use(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Use() beside a donation = %v; want that it waits", err)
		}
		d.Drop()
		again, err := b.Use(t.Context())
		if err != nil {
			t.Fatalf("Use() after a donation was dropped = %v; want that the buffer is as before", err)
		}
		again.Drop()

		d, _ = b.Donate(t.Context())
		m, ready := d.Confirm()
		d.Drop()
		if ready.State() != transfer.Unrecorded {
			t.Error("the new owner may write while the reader reads")
		}
		read.Set(nil)
		if err := ready.Wait(t.Context()); err != nil || m.Region.Len() != 1 {
			t.Errorf("Confirm() = %d bytes, ready %v", m.Region.Len(), err)
		}
		if _, err := b.Use(t.Context()); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Use() of a donated buffer = %v; want ErrInvalid", err)
		}
		b.Delete()
		p.Flush()
		if *freed != 0 {
			t.Error("a donated buffer gave its memory back, which has another owner")
		}
	})
}

func TestSpecs(t *testing.T) {
	clause.Cite(t, "TR-LAY-7")
	for _, c := range []struct {
		spec  transfer.Spec
		bytes int64
		text  string // or empty: invalid
	}{
		{transfer.Spec{}, 0, "token"},
		{transfer.Spec{Type: memory.F32, Dims: []int64{2, 3}}, 24, "f32[2,3]"},
		{transfer.Spec{Type: memory.F32}, 4, "f32[]"},
		{transfer.Spec{Type: memory.F32, Dims: []int64{0, 7}}, 0, "f32[0,7]"},
		{transfer.Spec{Type: memory.S4, Dims: []int64{3}}, 2, "s4[3]"},
		{transfer.Spec{Type: memory.BF16, Dims: []int64{3, 5}, Layout: "0,1:T(8,128)", Size: 2048}, 2048, "bf16[3,5]{0,1:T(8,128)} of 2048 bytes"},
		{transfer.Spec{Type: memory.F32, Dims: []int64{2}, Size: 9}, 0, ""},
		{transfer.Spec{Type: memory.F32, Dims: []int64{2}, Layout: "0"}, 0, ""},
		{transfer.Spec{Type: memory.F32, Dims: []int64{-1}}, 0, ""},
		{transfer.Spec{Type: memory.F32, Dims: []int64{1 << 40, 1 << 40}}, 0, ""},
		{transfer.Spec{Type: memory.F64, Dims: []int64{1 << 61}}, 0, ""},
		{transfer.Spec{Type: 99, Dims: []int64{1}}, 0, ""},
		{transfer.Spec{Type: memory.F32, Dims: make([]int64, 33)}, 0, ""},
	} {
		got, err := c.spec.Bytes()
		if c.text == "" {
			if !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("%v.Bytes() = %d, %v; want ErrInvalid", c.spec, got, err)
			}
			continue
		}
		if err != nil || got != c.bytes || c.spec.String() != c.text {
			t.Errorf("%v.Bytes() = %d, %v; want %s of %d bytes", c.spec, got, err, c.text, c.bytes)
		}
	}
	p := newPool(t)
	if _, err := p.Buffer(transfer.Spec{Type: memory.U8, Dims: []int64{4}}, transfer.Memory{Region: memory.Of(make([]byte, 3))}); !errors.Is(err, serry.ErrInvalid) {
		t.Errorf("Buffer() in memory that is too small = %v; want ErrInvalid", err)
	}
}
