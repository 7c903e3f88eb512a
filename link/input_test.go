package link_test

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
)

// A flipped bit on the way is found: in the header always, in the payload if it has a checksum. The program
// never gets wrong bytes as a success.
func TestCorruption(t *testing.T) {
	clause.Cite(t, "CLT-DES-4", "CL-TRN-4", "CL-TRN-26")
	for _, size := range []int{100, 100_000} {
		for _, at := range []int{3, 20, 60, 47, 90} { // of the frame: in the header, in the payload
			t.Run(fmt.Sprintf("%d bytes, byte %d", size, at), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					a, b := w.pair(func(o *link.Options) { o.Collective = link.Always })
					h := data(link.Collective, 1)
					want := fill(size, 1)
					got := make([]byte, size)
					expected, err := b.Expect(h, got)
					if err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					w.network.damage(hostOf(life(0, 10)), hostOf(life(1, 11)), at)
					if _, err := a.Post(h, want); err != nil {
						t.Fatal(err)
					}
					err = expected.Wait(t.Context())
					if !errors.Is(err, link.ErrTransport) {
						t.Errorf("Wait() = %v; want ErrTransport", err)
					}
				})
			})
		}
	}
}

// One lane finds a wrong checksum, and another lane completes its part of the message before the link is down. The
// message fails: what the first lane has read is wrong.
func TestCorruptionOnOneLane(t *testing.T) {
	clause.Cite(t, "CLT-DES-4")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair(func(o *link.Options) { o.Lanes = 2 })
		const size = 100_000
		h := data(link.Collective, 1)
		expected, err := b.Expect(h, make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		second := h
		second.Offset = size / 2
		w.network.atClose(func() { // while b closes its connections, the control connection first
			a.Inject(3, second, 0, size/2, make([]byte, size/2))
			synctest.Wait()
		})
		w.network.damage(hostOf(life(0, 10)), hostOf(life(1, 11)), 60) // in the payload
		a.Inject(2, h, link.Sum, size/2, make([]byte, size/2))
		if err := expected.Wait(t.Context()); !errors.Is(err, link.ErrTransport) {
			t.Errorf("Wait() = %v; want ErrTransport", err)
		}
	})
}

// By default payloads have a checksum between hosts, and none inside a host. Each family can say otherwise.
func TestChecksums(t *testing.T) {
	clause.Cite(t, "CL-TRN-4")
	inBubble(t, func(t *testing.T, w *world) {
		a, _ := w.pair()
		if !a.Stats().Checksums {
			t.Error("no checksums between hosts")
		}
		c, _ := w.linked(w.join(life(2, 12), func(o *link.Options) { o.Collective, o.Transfer = link.Never, link.Never }), w.join(life(3, 13)))
		if c.Stats().Checksums {
			t.Error("checksums of families that want none")
		}
	})
	for _, secret := range [][]byte{nil, secret} { // with a secret the address is not that of loopback
		w := &world{job: newJob(), t: t}
		if a, _ := w.pair(func(o *link.Options) { o.Secret = secret }); a.Stats().Checksums {
			t.Errorf("checksums inside a host, at %s", a.Stats().Remote)
		}
	}
}

// Small messages that find no memory fill the window of their sender and not more. When memory is posted,
// each one comes, also one that was announced behind thousands of others.
func TestWindow(t *testing.T) {
	clause.Cite(t, "CL-TRN-2", "CL-TRN-9")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends()
		const size, total = 1000, 3000 // three windows
		var posted []*link.Ticket
		for i := range uint64(total) {
			ticket, err := a.Post(data(link.Collective, i), fill(size, i))
			if err != nil {
				t.Fatal(err)
			}
			posted = append(posted, ticket)
		}
		receive := func(i uint64) {
			t.Helper()
			got := make([]byte, size)
			ticket, err := b.Expect(data(link.Collective, i), got)
			if err != nil {
				t.Fatal(err)
			}
			if err := ticket.Wait(t.Context()); err != nil || !bytes.Equal(got, fill(size, i)) {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		receive(total - 1) // the last one first
		if s := b.Stats(); s.Parked > 1<<20 {
			t.Errorf("%d bytes are parked; want at most 1 MiB", s.Parked)
		}
		for i := range uint64(total - 1) {
			receive(total - 2 - i)
		}
		for i, ticket := range posted {
			if err := ticket.Wait(t.Context()); err != nil {
				t.Errorf("Post of message %d: %v", i, err)
			}
		}
		if s := b.Stats(); s.Parked != 0 || s.Expected != 0 {
			t.Errorf("left over: %+v", s)
		}
		if w.network == nil {
			return
		}
		synctest.Wait() // until the sender knows that the window is open again
		for i := range uint64(500) {
			if _, err := a.Post(data(link.Collective, 10000+i), make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		if s := a.Stats(); s.Waiting != 0 {
			t.Errorf("%d messages wait although all others have found memory", s.Waiting)
		}
	})
}

// Several goroutines tell the peer how much has found memory, and an earlier number may come later. That is no fault
// of the peer.
func TestOldWindow(t *testing.T) {
	clause.Cite(t, "CL-TRN-2")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		for i := range uint64(500) { // half a window
			h := data(link.Collective, i)
			if _, err := a.Post(h, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Expect(h, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		before := a.Stats().Unread
		b.Inject(0, link.Header{Type: link.Window, Seq: 1}, 0, 0, nil)
		synctest.Wait()
		if s := a.Stats(); a.Err() != nil || s.Unread != before {
			t.Errorf("an old number: %v, %d bytes unread; want %d", a.Err(), s.Unread, before)
		}
		exchange(t, a, b, 1000)
	})
}

// A small message that was announced got its credit, and then its memory was withdrawn. It is dropped, although the
// window is full, and the link goes on.
func TestCreditOfWithdrawnMemory(t *testing.T) {
	clause.Cite(t, "CL-TRN-2", "CL-TRN-27")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		const size, total = 1000, 1200 // more than a window
		for i := range uint64(total) {
			if _, err := a.Post(data(link.Collective, i), fill(size, i)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		parked := b.Stats().Parked
		for i := range uint64(100) {
			expected, err := b.Expect(data(link.Collective, total-1-i), make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			expected.Cancel(errors.New("no more"))
		}
		synctest.Wait()
		if s := b.Stats(); s.Strays != 100 || s.Parked != parked || a.Err() != nil || b.Err() != nil {
			t.Fatalf("%d strays, %d bytes parked, links: %v, %v; want 100 and %d", s.Strays, s.Parked, a.Err(), b.Err(), parked)
		}
		for i := range uint64(total - 100) {
			got := make([]byte, size)
			expected, err := b.Expect(data(link.Collective, i), got)
			if err != nil {
				t.Fatal(err)
			}
			if err := expected.Wait(t.Context()); err != nil || !bytes.Equal(got, fill(size, i)) {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		synctest.Wait()
		if s := a.Stats(); s.Unread > link.WindowBytes/4 || s.Waiting != 0 {
			t.Errorf("%d bytes unread, %d messages wait; want an open window", s.Unread, s.Waiting)
		}
	})
}

// A small message that cannot even be announced, because the peer reads nothing, is refused. What Post has taken comes
// when the peer reads again.
func TestAnnouncementsOfAFullLane(t *testing.T) {
	clause.Cite(t, "CL-TRN-2", "CL-TRN-9")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		w.observe(n)
		a, b := w.linked(m, n)
		w.network.cut(hostOf(m.Life()), hostOf(n.Life()))
		var err error
		for i := uint64(0); err == nil; i++ {
			_, err = a.Post(link.Header{Family: link.Transfer, Type: link.Offer, Class: link.Urgent, Stream: i}, make([]byte, 10_000))
		}
		if !errors.Is(err, link.ErrCongested) {
			t.Fatalf("Post() = %v; want ErrCongested", err)
		}
		const size = 1000
		var taken []uint64
		for i := range uint64(2000) {
			switch _, err := a.Post(data(link.Collective, i), fill(size, i)); {
			case err == nil:
				taken = append(taken, i)
			case !errors.Is(err, link.ErrCongested):
				t.Fatal(err)
			}
		}
		if len(taken) == 2000 || a.Stats().Waiting != 0 {
			t.Errorf("%d messages were taken, %d of them wait; want some refused", len(taken), a.Stats().Waiting)
		}
		w.network.heal(hostOf(m.Life()), hostOf(n.Life()))
		for _, i := range taken {
			got := make([]byte, size)
			expected, err := b.Expect(data(link.Collective, i), got)
			if err != nil {
				t.Fatal(err)
			}
			if err := expected.Wait(t.Context()); err != nil || !bytes.Equal(got, fill(size, i)) {
				t.Fatalf("message %d: %v", i, err)
			}
		}
	})
}

// A message of another size than its memory fails alone.
func TestWrongSize(t *testing.T) {
	clause.Cite(t, "CL-TRN-27")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends()
		for i, sizes := range [][2]int{{10, 11}, {10, 0}, {20_000, 20_001}, {10, 20_000}} {
			h := data(link.Collective, uint64(i))
			expected, err := b.Expect(h, make([]byte, sizes[1]))
			if err != nil {
				t.Fatal(err)
			}
			posted, err := a.Post(h, make([]byte, sizes[0]))
			if err != nil {
				t.Fatal(err)
			}
			failing := expected
			if sizes[0] > link.SmallBytes {
				failing = posted
			}
			if err := failing.Wait(t.Context()); !errors.Is(err, link.ErrSize) {
				t.Errorf("%d bytes for memory of %d: %v; want ErrSize", sizes[0], sizes[1], err)
			}
			b.Forget(link.Collective, h.Stream, h.Generation, errors.New("over"))
			a.Forget(link.Collective, h.Stream, h.Generation, errors.New("over"))
			<-expected.Done()
		}
		exchange(t, a, b, 100)
	})
}

// Cancelled messages let go of their memory at once, whatever the peer does, and the link goes on.
func TestCancel(t *testing.T) {
	clause.Cite(t, "CL-TRN-10", "CL-TRN-27")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends(func(o *link.Options) { o.Chunk = 64 << 10 })
		cause := errors.New("no more")
		for i, size := range []int{10, 10_000, 1 << 20} {
			h := data(link.Collective, uint64(i))
			expected, err := b.Expect(h, make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			expected.Cancel(cause)
			if err := expected.Err(); !errors.Is(err, cause) || !errors.Is(err, link.ErrCancelled) {
				t.Errorf("Err() of a cancelled message = %v", err)
			}
			expected.Cancel(cause) // does nothing
		}
		waiting, err := a.Post(data(link.Collective, 9), make([]byte, 1<<20))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		if err := waiting.Wait(ctx); !errors.Is(err, cause) {
			t.Errorf("Wait(cancelled) = %v; want its cause", err)
		}
		if s := a.Stats(); s.Waiting != 0 {
			t.Errorf("%d messages wait", s.Waiting)
		}
		exchange(t, a, b, 100)
	})
}

// A message is cancelled on both sides in the middle of a chunk, while the network carries nothing. Its memory
// is not touched any more, and the rest of the chunk does not disturb the next message.
func TestCancelInTheMiddle(t *testing.T) {
	clause.Cite(t, "CL-TRN-10")
	for _, row := range []struct {
		checks link.Checksum
		tls    bool
	}{{link.Never, false}, {link.Always, false}, {link.Never, true}} {
		inBubble(t, func(t *testing.T, w *world) {
			if row.tls {
				w.options.TLS = newAuthority(t).identity("task", "spiffe://lab/job/task")
			}
			a, b := w.pair(func(o *link.Options) { o.Lanes, o.Collective = 1, row.checks })
			const size = 3 << 20
			h := data(link.Collective, 1)
			out, in := fill(size, 1), make([]byte, size)
			expected, err := b.Expect(h, in)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.network.cut(hostOf(life(0, 10)), hostOf(life(1, 11)))
			posted, err := a.Post(h, out)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // the buffers of the network are full
			start := time.Now()
			posted.Cancel(errors.New("sender"))
			clear(out)
			expected.Cancel(errors.New("receiver"))
			if time.Since(start) > 0 {
				t.Errorf("cancelling took %v", time.Since(start))
			}
			clear(in)
			w.network.heal(hostOf(life(0, 10)), hostOf(life(1, 11)))
			exchange(t, a, b, 5)
			if !bytes.Equal(in, make([]byte, size)) {
				t.Error("memory was written after its message was cancelled")
			}
			if a.Err() != nil || b.Err() != nil {
				t.Errorf("links: %v, %v", a.Err(), b.Err())
			}
		})
	}
}

// A peer that stops reading holds up its own messages, and no others.
func TestPeerStopsReading(t *testing.T) {
	clause.Cite(t, "CL-TRN-2", "CL-TRN-10")
	inBubble(t, func(t *testing.T, w *world) {
		m, n, other := w.join(life(0, 10)), w.join(life(1, 11)), w.join(life(2, 12))
		a, b := w.linked(m, n)
		c, d := w.linked(m, other)
		big := data(link.Collective, 1)
		if _, err := b.Expect(big, make([]byte, 8<<20)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.network.cut(hostOf(m.Life()), hostOf(n.Life()))
		posted, err := a.Post(big, make([]byte, 8<<20))
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for i := range 2000 {
			_, err := a.Post(link.Header{Family: link.Transfer, Type: link.Offer, Stream: uint64(i)}, make([]byte, 10_000))
			if errors.Is(err, link.ErrCongested) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if refused == 0 {
			t.Error("20 MB of frames were queued for a peer that does not read")
		}
		exchange(t, c, d, 1)
		start := time.Now()
		a.Shutdown(errors.New("enough"))
		if time.Since(start) > 10*time.Millisecond {
			t.Errorf("Shutdown took %v", time.Since(start))
		}
		if err := posted.Err(); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Post: %v; want ErrClosed", err)
		}
		exchange(t, c, d, 2)
	})
}

// Data for a stream that the family does not know are dropped, and the family is told. The link goes on.
func TestStrays(t *testing.T) {
	clause.Cite(t, "CL-TRN-27")
	inBubble(t, func(t *testing.T, w *world) {
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		o := w.observe(n)
		o.drop = true
		a, b := w.linked(m, n)
		for i := range uint64(3000) { // more than a window
			if _, err := a.Post(data(link.Collective, i), make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if s := b.Stats(); s.Parked != 0 || s.Strays != 3000 || o.strays != 3000 {
			t.Errorf("%d bytes parked, %d strays, %d told; want 0, 3000, 3000", s.Parked, s.Strays, o.strays)
		}
		o.drop = false
		exchange(t, a, b, 1)
	})
}

// Close ends everything with an error, deletes what it published, and no call waits afterwards.
func TestClose(t *testing.T) {
	clause.Cite(t, "CL-TRN-32", "CL-TRN-10", "CL-TRN-6")
	onEach(t, func(t *testing.T, w *world) {
		if testing.Short() {
			t.Skip()
		}
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, b := w.linked(m, n)
		onA, onB := expectations(t, a), expectations(t, b)
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("Close() = %v", err)
		}
		fails(t, a, onA, link.ErrClosed)
		loss := fails(t, b, onB, link.ErrClosed)
		if loss.Source != link.FromLink {
			t.Errorf("the peer lost the link by %v: %v; want by its goodbye", loss.Source, loss)
		}
		if _, err := m.Link(t.Context(), n.Life()); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Link() after Close = %v; want ErrClosed", err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Errorf("second Close() = %v", err)
		}
	})
}

// A service that does not answer keeps nothing open for long, and no call of Close returns before all is closed.
func TestCloseWithoutService(t *testing.T) {
	clause.Cite(t, "CL-TRN-32")
	inBubble(t, func(t *testing.T, w *world) {
		m := w.join(life(0, 10))
		w.set(serry.TaskInfo{Task: life(1, 0).Task, Incarnation: 11, State: serry.Connected})
		n, err := link.Open(t.Context(), member{w.job, life(1, 11), 7, false}, muteKeys{w.job}, link.Options{
			Network: dialler{w.network, hostOf(life(1, 11))}, Listen: []string{hostOf(life(1, 11)) + ":0"}, Secret: secret,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, b := w.linked(m, n)
		start := time.Now()
		for range 2 {
			go n.Close(context.Background())
		}
		synctest.Wait()
		n.Close(context.Background())
		if d := time.Since(start); d < 5*time.Second || d > 6*time.Second || b.Err() == nil {
			t.Errorf("Close() returned after %v, its link: %v; want 5s, and none", d, b.Err())
		}
	})
}

// muteKeys do not answer when a key is deleted.
type muteKeys struct{ *job }

func (muteKeys) Delete(ctx context.Context, _ string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// There are as many links as the options allow, and a clear error beyond.
func TestMaxLinks(t *testing.T) {
	clause.Cite(t, "CL-TRN-25")
	inBubble(t, func(t *testing.T, w *world) {
		m := w.join(life(0, 10), func(o *link.Options) { o.MaxLinks = 2 })
		w.linked(m, w.join(life(1, 11)))
		w.linked(m, w.join(life(2, 12)))
		third := w.join(life(3, 13))
		if _, err := m.Link(t.Context(), third.Life()); !errors.Is(err, serry.ErrLimit) {
			t.Errorf("a third link = %v; want ErrLimit", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := third.Link(ctx, m.Life()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third link from outside = %v; want to wait for room", err)
		}
	})
}

// Memory was posted for a large message and withdrawn; the peer posts the message long after. It is drained, so that the
// sender can use its memory again, and nothing is reported of a peer that does nothing wrong.
func TestLateMessageForWithdrawnMemory(t *testing.T) {
	clause.Cite(t, "CL-TRN-2", "CL-TRN-27")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		const size = 4 << 20 // more than connections hold
		expected, err := b.Expect(data(link.Collective, 1), make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		expected.Cancel(errors.New("no more"))
		time.Sleep(5 * time.Second)
		posted, err := a.Post(data(link.Collective, 1), make([]byte, size))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := posted.Wait(ctx); err != nil || len(w.reports()) > 0 {
			t.Errorf("Wait() = %v, reports %q; want it drained, and none", err, w.reports())
		}
		exchange(t, a, b, 9)
	})
}
