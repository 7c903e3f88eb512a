package stream_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/wire/stream"
)

// TestNumbers delivers numbers in any order, some of them twice, and compares the watermark with that of a
// set of open numbers.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var n stream.Numbers
		open := make(map[uint64]bool)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "next") {
				open[n.Next()] = true
			} else {
				number := rapid.Uint64Range(0, n.Last()).Draw(t, "number")
				before := n.Watermark()
				if raised := n.Deliver(number); raised != (n.Watermark() > before) {
					t.Fatalf("Deliver(%d) = %v with the watermark at %d, then %d", number, raised, before, n.Watermark())
				}
				delete(open, number)
			}
			want := n.Last()
			for k := range open {
				want = min(want, k-1)
			}
			if n.Watermark() != want {
				t.Fatalf("Watermark() = %d; want %d with %v open of %d", n.Watermark(), want, open, n.Last())
			}
		}
	})
}
