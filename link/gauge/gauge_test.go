package gauge

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGauge(t *testing.T) {
	o := link.Options{Collective: link.Never, Transfer: link.Always}
	h, err := Listen(t.Context(), "127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	n, l, err := Dial(t.Context(), h.Addresses()[0], o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(t, n, h)
	g := New(l)
	for range 2 {
		if took, err := g.Trips(t.Context(), 8, 100); err != nil || len(took) != 100 {
			t.Fatalf("Trips() = %d times, %v; want 100", len(took), err)
		}
		for _, f := range []link.Family{link.Collective, link.Transfer} {
			for _, size := range []int64{100, 64 << 10, 10<<20 + 1} {
				if took, err := g.Stream(t.Context(), f, size, 3); err != nil || took <= 0 {
					t.Fatalf("Stream() of %d bytes of family %v = %v, %v; want how long it took", size, f, took, err)
				}
			}
		}
	}
	if err := g.End(t.Context()); err != nil {
		t.Errorf("End() = %v; want nil", err)
	}
}

// A peer cannot make Serve hold more than the greatest message, nor send what it does not know.
func TestServeRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		what  uint64
		of    link.Family
		bytes int64
	}{
		{"too large", stream, link.Collective, MaxBytes + 1},
		{"negative", stream, link.Collective, -1},
		{"too large for a trip", trips, link.Collective, link.SmallBytes + 1},
		{"no such family", stream, 0, 8},
		{"no such order", 77, link.Collective, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &loner{life: listener}
			far, err := link.Open(t.Context(), m, loneKeys{m}, link.Options{Listen: []string{"127.0.0.1:0"}})
			if err != nil {
				t.Fatal(err)
			}
			near, l, err := Dial(t.Context(), m.published[len("tcp:"):], link.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll(t, near, far)
			if err := New(l).order(t.Context(), c.what, c.of, c.bytes, 1); err != nil {
				t.Fatal(err)
			}
			other, err := far.Link(t.Context(), near.Life())
			if err != nil {
				t.Fatal(err)
			}
			if err := Serve(t.Context(), other); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Serve() = %v; want %v", err, serry.ErrInvalid)
			}
		})
	}
}

// A process that listens beyond loopback needs a secret.
func TestListenWithoutSecret(t *testing.T) {
	if _, err := Listen(t.Context(), "0.0.0.0:0", link.Options{}); err != nil && !errors.Is(err, link.ErrNoSecret) {
		t.Errorf("Listen() = %v; want %v", err, link.ErrNoSecret)
	} else if err == nil {
		t.Skip("this host has no address but loopback")
	}
}

func closeAll(t *testing.T, all ...interface{ Close(context.Context) error }) {
	t.Helper()
	for _, c := range all {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}
