package link_test

import (
	"errors"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A function is called once for each message that ends, however it ends, also if no goroutine waits for it.
func TestThen(t *testing.T) {
	clause.Cite(t, "CL-TRN-2")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends()
		ended := make(chan string, 8)
		for seq, size := range []int{10, 1 << 20} {
			h, got := data(link.Transfer, uint64(seq+1)), make([]byte, size)
			expected, err := b.Expect(h, got)
			if err != nil {
				t.Fatal(err)
			}
			expected.Then(func() { ended <- "expected" })
			posted, err := a.Post(h, fill(size, 1))
			if err != nil {
				t.Fatal(err)
			}
			posted.Then(func() { ended <- "posted" })
			if first, second := <-ended, <-ended; first == second || errors.Join(posted.Err(), expected.Err()) != nil {
				t.Errorf("%s, then %s; errors %v, %v", first, second, posted.Err(), expected.Err())
			}
		}
		never, err := b.Expect(data(link.Transfer, 9), make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		never.Then(func() { ended <- "cancelled" })
		never.Cancel(nil)
		if got := <-ended; got != "cancelled" || !errors.Is(never.Err(), link.ErrCancelled) {
			t.Errorf("%s: %v", got, never.Err())
		}
		never.Then(func() { ended <- "late" })
		if got := <-ended; got != "late" || len(ended) > 0 {
			t.Errorf("%s, and %d more", got, len(ended))
		}
	})
}
