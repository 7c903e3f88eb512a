package link_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// Messages of every size reach the memory that is posted for them, whichever side comes first.
func TestMessages(t *testing.T) {
	clause.Cite(t, "CL-TRN-1", "CL-TRN-2", "CL-TRN-3", "CL-TRN-11")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends(func(o *link.Options) { o.Chunk = 64 << 10 })
		seq := uint64(0)
		for _, family := range []link.Family{link.Collective, link.Transfer} {
			for _, size := range []int{0, 1, 8, 8 << 10, 8<<10 + 1, 100_000, 1<<20 + 13} {
				for _, first := range []string{"post", "expect"} {
					seq++
					h := data(family, seq)
					want := fill(size, seq)
					got := make([]byte, size)
					var err error
					var posted, expected *link.Ticket
					post := func() { posted, err = a.Post(h, want[:size/3], want[size/3:]) }
					if first == "post" {
						if post(); err != nil {
							t.Fatal(err)
						}
					}
					expected, err = b.Expect(h, got[:size/2], got[size/2:])
					if err != nil {
						t.Fatal(err)
					}
					if first == "expect" {
						if post(); err != nil {
							t.Fatal(err)
						}
					}
					if err := expected.Wait(t.Context()); err != nil {
						t.Fatalf("%v, %d bytes, %s first: Expect: %v", family, size, first, err)
					}
					if err := posted.Wait(t.Context()); err != nil {
						t.Fatalf("%v, %d bytes, %s first: Post: %v", family, size, first, err)
					}
					if !bytes.Equal(got, want) {
						t.Fatalf("%v, %d bytes, %s first: other bytes came", family, size, first)
					}
				}
			}
		}
	})
}

// Many messages in both directions at once, over few connections.
func TestManyMessages(t *testing.T) {
	clause.Cite(t, "CL-TRN-2", "CL-TRN-23")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.ends()
		const count = 200
		type pending struct {
			*link.Ticket
			got, want []byte
		}
		var all []pending
		for i := range count {
			size := (i * i * 37) % 300_000
			h := data(link.Collective, uint64(i))
			from, to := a, b
			if i%2 == 1 {
				from, to = b, a
			}
			p := pending{got: make([]byte, size), want: fill(size, uint64(i))}
			if _, err := from.Post(h, p.want); err != nil {
				t.Fatal(err)
			}
			var err error
			if p.Ticket, err = to.Expect(h, p.got); err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		for i, p := range all {
			if err := p.Wait(t.Context()); err != nil || !bytes.Equal(p.got, p.want) {
				t.Fatalf("message %d of %d bytes: %v", i, len(p.want), err)
			}
		}
		if s := a.Stats(); s.Expected != 0 || s.Waiting != 0 || s.Parked != 0 {
			t.Errorf("left over: %+v", s)
		}
	})
}

// Frames that are not data reach the handler of their family, in order.
func TestFrames(t *testing.T) {
	clause.Cite(t, "CL-TRN-1", "CL-TRN-32")
	onEach(t, func(t *testing.T, w *world) {
		if strings.HasSuffix(t.Name(), "/self") {
			t.Skip("one observer cannot be at both ends")
		}
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		o := w.observe(n)
		a, b := w.linked(m, n)
		for i := range uint64(3) {
			for _, h := range []link.Header{
				{Family: link.Collective, Type: link.Revoke, Stream: i},
				{Family: link.Transfer, Type: link.Pull, Stream: i + 10},
			} {
				if _, err := a.Post(h, []byte("why "), []byte("not")); err != nil {
					t.Errorf("Post(%+v) = %v", h, err)
				}
			}
		}
		// What comes behind them on the same lane shows that they have come.
		last := data(link.Collective, 1)
		got := make([]byte, link.SmallBytes+1)
		posted, err := a.Post(last, fill(len(got), 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Expect(last, got); err != nil {
			t.Fatal(err)
		}
		if err := posted.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.Shutdown(errors.New("enough"))
		<-b.Done()
		frames, _ := o.seen()
		want := []string{"collective/4 stream 0: why not", "transfer/10 stream 10: why not", "collective/4 stream 1: why not",
			"transfer/10 stream 11: why not", "collective/4 stream 2: why not", "transfer/10 stream 12: why not"}
		if diff := cmp.Diff(want, frames); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
	})
}

// A peer dials as soon as it knows an address, and may send before the program has begun with the family. Its frames
// wait for the handler, those of a link that has ended do not.
func TestFramesBeforeTheirHandler(t *testing.T) {
	clause.Cite(t, "CL-TRN-1", "CL-DES-7")
	inBubble(t, func(t *testing.T, w *world) {
		n := w.join(life(0, 10))
		hosts := []*link.Net{w.join(life(1, 11)), w.join(life(2, 12))}
		for i, m := range hosts {
			a, b := w.linked(m, n)
			for stream := range uint64(2) {
				if _, err := a.Post(link.Header{Family: link.Collective, Type: link.Join, Stream: stream}, []byte{byte('a' + i)}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if i == 0 {
				a.Shutdown(errors.New("enough"))
				<-b.Done()
			}
		}
		frames, _ := w.observe(n).seen()
		want := []string{"collective/7 stream 0: b", "collective/7 stream 1: b"}
		if diff := cmp.Diff(want, frames); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
		if err := n.Handle(link.Collective, new(observer)); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("second Handle() = %v; want ErrInvalid", err)
		}
	})
}

// A program that never begins with a family keeps a bounded number of its frames.
func TestFramesWithoutHandlerAreBounded(t *testing.T) {
	clause.Cite(t, "CL-TRN-1")
	inBubble(t, func(t *testing.T, w *world) {
		n := w.join(life(0, 10))
		a, _ := w.linked(w.join(life(1, 11)), n)
		const count = 6000
		for stream := range uint64(count) {
			if _, err := a.Post(link.Header{Family: link.Collective, Type: link.Join, Stream: stream}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if frames, _ := w.observe(n).seen(); len(frames) == 0 || len(frames) == count {
			t.Errorf("%d of %d frames were kept; want some", len(frames), count)
		}
	})
}

// Post refuses what is no frame of a family.
func TestBadFrames(t *testing.T) {
	clause.Cite(t, "CL-TRN-32")
	inBubble(t, func(t *testing.T, w *world) {
		a, _ := w.pair()
		for _, h := range []link.Header{
			{}, {Family: link.Collective}, {Family: link.Collective, Type: 3}, {Family: link.Collective, Type: 99},
			{Family: 7, Type: 1}, {Family: link.Transfer, Type: link.Pull, Class: 9},
		} {
			if _, err := a.Post(h); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Post(%+v) = %v; want ErrInvalid", h, err)
			}
			if _, err := a.Expect(h); !errors.Is(err, serry.ErrInvalid) {
				t.Errorf("Expect(%+v) = %v; want ErrInvalid", h, err)
			}
		}
		if _, err := a.Post(link.Header{Family: link.Transfer, Type: link.Pull}, make([]byte, link.ControlBytes+1)); !errors.Is(err, serry.ErrInvalid) {
			t.Errorf("Post of a control frame that is too long = %v; want ErrInvalid", err)
		}
	})
}

// Memory may have any number of segments, of any size, and empty ones among them. A message of a million segments takes
// as many steps, and not their square.
func TestSegments(t *testing.T) {
	clause.Cite(t, "CL-TRN-3")
	onEach(t, func(t *testing.T, w *world) {
		for i, checks := range []link.Checksum{link.Never, link.Always} {
			a, b := w.ends(func(o *link.Options) { o.Chunk, o.Collective = 64<<10, checks })
			for j, sizes := range [][2]int{{16, 3}, {50, 1 << 20}, {70_001, 64}, {9000, 8191}} {
				h := data(link.Collective, uint64(10*i+j))
				want, got := fill(1<<18+7, h.Seq), make([]byte, 1<<18+7)
				posted, err := a.Post(h, segments(want, sizes[0])...)
				if err != nil {
					t.Fatal(err)
				}
				expected, err := b.Expect(h, segments(got, sizes[1])...)
				if err != nil {
					t.Fatal(err)
				}
				if err := expected.Wait(t.Context()); err != nil || !bytes.Equal(got, want) {
					t.Errorf("segments of %d and %d bytes: %v, the same bytes: %v", sizes[0], sizes[1], err, bytes.Equal(got, want))
				}
				if err := posted.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if i == 0 {
				w = &world{job: newJob(), t: t, network: w.network, local: w.local}
			}
		}
	})
}

// segments cuts b, with an empty segment before, behind and between the first two.
func segments(b []byte, size int) [][]byte {
	all := [][]byte{nil, b[:min(size, len(b))], {}}
	for b = b[len(all[1]):]; len(b) > 0; b = b[min(size, len(b)):] {
		all = append(all, b[:min(size, len(b))])
	}
	return append(all, nil)
}
