package link_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// A peer that has proven who it is and then breaks the protocol loses its link, with the reason. Other links
// go on.
func TestLiars(t *testing.T) {
	clause.Cite(t, "CL-TRN-26", "CL-TRN-2")
	big := data(link.Collective, 1) // memory for it is posted
	const size = 100_000
	at := func(h link.Header, offset uint64) link.Header { h.Offset = offset; return h }
	credit := link.Header{Family: link.Collective, Type: link.CollectiveCredit}
	for name, row := range map[string]struct {
		lie  func(l *link.Link)
		want string // in the text of the error
	}{
		"data longer than a chunk": {func(l *link.Link) { l.Inject(2, big, 0, link.ChunkBytes+1, nil) }, "too long"},
		"control longer than allowed": {func(l *link.Link) {
			l.Inject(0, link.Header{Family: link.Transfer, Type: link.Offer}, 0, link.ControlBytes+1, nil)
		}, "too long"},
		"unknown family":    {func(l *link.Link) { l.Inject(0, link.Header{Family: 9, Type: 1}, 0, 0, nil) }, "unknown family"},
		"large on small":    {func(l *link.Link) { l.Inject(1, data(link.Collective, 5), 0, link.SmallBytes+1, nil) }, "not for it"},
		"no data on bulk":   {func(l *link.Link) { l.Inject(2, link.Header{Family: link.Transfer, Type: link.Offer}, 0, 0, nil) }, "not for it"},
		"handshake again":   {func(l *link.Link) { l.Inject(0, link.Header{Type: link.Hello}, 0, 0, nil) }, "not for it"},
		"beyond the memory": {func(l *link.Link) { l.Inject(2, at(big, size-10), 0, 11, make([]byte, 11)) }, "outside"},
		"the same bytes twice": {func(l *link.Link) {
			l.Inject(2, big, 0, 10, make([]byte, 10))
			l.Inject(2, at(big, 5), 0, 10, make([]byte, 10))
		}, "twice"},
		"crumbs": {func(l *link.Link) {
			for i := range uint64(1<<13 + 1) {
				l.Inject(2, at(big, 2*i), 0, 1, []byte{1})
			}
		}, "too many pieces"},
		"nothing of a message": {func(l *link.Link) { l.Inject(2, big, 0, 0, nil) }, "outside"},
		"credit without bytes": {func(l *link.Link) { l.Inject(0, credit, 0, 0, nil) }, "too long"},
		"more than the window": {func(l *link.Link) {
			for i := range 200 {
				l.Inject(1, data(link.Collective, uint64(100+i)), 0, link.SmallBytes, make([]byte, link.SmallBytes))
			}
		}, "more than its window"},
		"window that was not used": {func(l *link.Link) { l.Inject(0, link.Header{Type: link.Window, Seq: 1 << 30}, 0, 0, nil) }, "window"},
		"part of a word":           {func(l *link.Link) { l.Inject(0, link.Header{Type: link.Ping}, 0, 3, make([]byte, 3)) }, "progress"},
		"too many words":           {func(l *link.Link) { l.Inject(0, link.Header{Type: link.Ping}, 0, 257*40, make([]byte, 257*40)) }, "progress"},
		"word of nothing":          {func(l *link.Link) { l.Inject(0, link.Header{Type: link.Ping}, 0, 40, bytes.Repeat([]byte{7}, 40)) }, "progress"},
		"endless credit": {func(l *link.Link) {
			for i := range 1<<16 + 1 {
				h := credit
				h.Seq = uint64(i)
				l.Inject(0, h, 0, 8, binary.LittleEndian.AppendUint64(nil, 9000))
			}
		}, "more credit"},
		"endless announcements": {func(l *link.Link) {
			for i := range 1<<16 + 1 {
				l.Inject(1, data(link.Collective, uint64(100+i)), link.Announce, 0, nil)
			}
		}, "announced more"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				m, n, third := w.join(life(0, 10)), w.join(life(1, 11)), w.join(life(2, 12))
				liar, b := w.linked(m, n)
				c, d := w.linked(n, third)
				expected, err := b.Expect(big, make([]byte, size))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				row.lie(liar)
				err = expected.Wait(t.Context())
				if !errors.Is(err, link.ErrTransport) || !strings.Contains(err.Error(), row.want) {
					t.Errorf("Wait() = %v; want ErrTransport and %q", err, row.want)
				}
				exchange(t, c, d, 1)
			})
		})
	}
}

// What a peer of a later version sends besides is skipped and counted.
func TestUnknownTypes(t *testing.T) {
	clause.Cite(t, "CL-TRN-26", "CLT-DES-10")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		for _, h := range []link.Header{{Type: 99}, {Family: link.Collective, Type: 77}, {Family: link.Transfer, Type: 0}} {
			a.Inject(0, h, 0, 3, []byte("new"))
		}
		synctest.Wait()
		if s := b.Stats(); s.Skipped != 3 {
			t.Errorf("%d frames skipped; want 3", s.Skipped)
		}
		exchange(t, a, b, 1)
	})
}

// Urgent messages overtake normal ones, and those bulk ones, between two chunks. Control overtakes all.
func TestClasses(t *testing.T) {
	clause.Cite(t, "CL-TRN-28", "CL-TRN-1", "CLT-DES-10")
	inBubble(t, func(t *testing.T, w *world) {
		one := func(o *link.Options) { o.Lanes, o.Chunk = 1, 256<<10 }
		m, n := w.join(life(0, 10), one), w.join(life(1, 11), one)
		o := w.observe(n)
		a, b := w.linked(m, n)
		post := func(seq uint64, class link.Class, size int) *link.Ticket {
			h := data(link.Collective, seq)
			h.Class = class
			expected, err := b.Expect(h, make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Post(h, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			return expected
		}
		w.network.cut(hostOf(m.Life()), hostOf(n.Life()))
		bulk := post(1, link.Bulk, 4<<20)
		synctest.Wait() // its credit comes, and its first chunk fills the socket
		normal := post(2, 0, 2<<20)
		urgent := post(3, link.Urgent, 1<<20)
		synctest.Wait()
		if s := a.Stats(); s.Moving != 3 {
			t.Errorf("%d messages are moving; want 3", s.Moving)
		}
		a.Post(link.Header{Family: link.Collective, Type: link.Revoke}, []byte("now"))
		w.network.heal(hostOf(m.Life()), hostOf(n.Life()))
		for _, step := range []struct {
			last   *link.Ticket
			before []*link.Ticket
		}{{normal, []*link.Ticket{urgent}}, {bulk, []*link.Ticket{urgent, normal}}} {
			if err := step.last.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, ticket := range step.before {
				select {
				case <-ticket.Done():
				default:
					t.Error("a message was complete before one of a more urgent class")
				}
			}
		}
		synctest.Wait()
		if frames, _ := o.seen(); len(frames) != 1 {
			t.Errorf("%d control frames came; want 1", len(frames))
		}
	})
}

// A message that nothing reads is drained when its memory was withdrawn, also by a lane that had gone to rest.
func TestLateData(t *testing.T) {
	clause.Cite(t, "CL-TRN-27", "CL-TRN-10")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		h := data(link.Transfer, 5)
		expected, err := b.Expect(h, make([]byte, 20_000))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		expected.Cancel(errors.New("no longer"))
		posted, err := a.Post(h, bytes.Repeat([]byte{1}, 20_000)) // uses the credit
		if err != nil {
			t.Fatal(err)
		}
		if err := posted.Wait(t.Context()); err != nil {
			t.Errorf("Post: %v", err)
		}
		exchange(t, a, b, 1)
		if s := b.Stats(); s.Strays != 1 {
			t.Errorf("%d strays; want 1", s.Strays)
		}
	})
}

// While a lane reads a message into its memory, a small message of the same name comes. The memory stays that of the
// first: it is not handed back while the lane may write to it.
func TestTwoMessagesOfOneName(t *testing.T) {
	clause.Cite(t, "CL-TRN-10", "CL-TRN-27")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		const size = 100_000
		h := data(link.Collective, 1)
		want, got := fill(size, 1), make([]byte, size)
		expected, err := b.Expect(h, got)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.Inject(2, h, 0, size, want[:10])
		synctest.Wait()
		if _, err := a.Post(h, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		select {
		case <-expected.Done():
			t.Fatalf("the message has ended while a lane reads it: %v", expected.Err())
		default:
		}
		a.Write(2, want[10:])
		if err := expected.Wait(t.Context()); err != nil || !bytes.Equal(got, want) {
			t.Errorf("Wait() = %v; want the bytes of the first", err)
		}
		b.Forget(h.Family, h.Stream, h.Generation, errors.New("over"))
		exchange(t, a, b, 1)
	})
}
