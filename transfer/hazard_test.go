package transfer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/offer"
)

// Transfers and pulls leave nothing in the key-value store.
func TestNoKeysInTheStore(t *testing.T) {
	clause.Cite(t, "TR-H-10")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		count := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.keys)
		}
		before := count()
		for i := range uint64(50) {
			sent, got := a.send(b, i, []byte("abc")), b.receive(a, i, 3)
			g := b.pull(t.Context(), a.offerBytes(offer.ID(i), transfer.OfferOptions{}, []byte("abc")).Handle(), 3, 0)
			for _, e := range []*transfer.Event{sent.Event, got.Event, g.Done()} {
				if err := e.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if after := count(); after != before {
			t.Errorf("the store has %d keys; it had %d", after, before)
		}
	})
}

// Two processes that cut messages into chunks of different sizes understand each other.
func TestDifferentChunks(t *testing.T) {
	clause.Cite(t, "TR-H-16")
	inBubble(t, func(t *testing.T, w *world) {
		w.link.Chunk = 64 << 10
		a := w.start(life(0, 10))
		w.link.Chunk = 4 << 20
		b := w.start(life(1, 11))
		synctest.Wait() // a has heard of b
		want := fill(9<<20, 1)
		for i, pair := range [][2]*process{{a, b}, {b, a}} {
			sent := pair[0].send(pair[1], uint64(i), want)
			got := pair[1].receive(pair[0], uint64(i), len(want))
			if !bytes.Equal(content(t, got.Buffer), want) || sent.Event.Wait(t.Context()) != nil {
				t.Errorf("transfer %d is wrong", i)
			}
		}
	})
}

// No code of links or transfers asks the kernel not to copy.
func TestNoZeroCopy(t *testing.T) {
	clause.Cite(t, "TR-H-20")
	for _, pattern := range []string{"*.go", "jax/*.go", "../link/*.go", "../wire/conn/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: no files: %v", pattern, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("_ZERO"+"COPY")) {
				t.Errorf("%s asks for zero-copy sends", name)
			}
		}
	}
}
