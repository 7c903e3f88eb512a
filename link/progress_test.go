package link_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// Pings tell how far the peer has come with each stream, and for how long it has not moved on, until the stream is over.
func TestPingsCarryProgress(t *testing.T) {
	clause.Cite(t, "CL-TRN-7", "CL-TMO-11")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		of := func(rank uint32) link.Header {
			return link.Header{Family: link.Collective, Stream: 7, Generation: 1, Step: rank}
		}
		first, second := link.NewProgress(of(0)), link.NewProgress(of(1))
		for _, p := range []*link.Progress{first, second} {
			if err := a.Carry(p); err != nil {
				t.Fatal(err)
			}
		}
		standing := func(rank uint32, started, ended uint64, since time.Duration) {
			t.Helper()
			const ping = 300 * time.Millisecond // and a scan
			s, told := b.Standing(of(rank))
			if !told || s.Started != started || s.Ended != ended || s.Since > since || s.Since < since-2*ping {
				t.Errorf("Standing() of rank %d = %+v, %v; want operations %d and %d for about %v", rank, s, told, started, ended, since)
			}
		}
		if s, told := b.Standing(of(0)); told {
			t.Errorf("Standing() before the first ping = %+v; want none", s)
		}
		first.Start(1)
		first.Start(3)
		first.End(2)
		first.End(1) // ended earlier, and says so late
		pingFor(500 * time.Millisecond)
		standing(0, 3, 2, 500*time.Millisecond)
		standing(1, 0, 0, 500*time.Millisecond)
		second.Start(1)
		pingFor(5 * time.Second)
		standing(0, 3, 2, 5500*time.Millisecond)
		standing(1, 1, 0, 5*time.Second)
		if s, told := a.Standing(of(0)); told {
			t.Errorf("Standing() at the end that tells = %+v; want none", s)
		}
		a.Forget(link.Collective, 7, 1, errors.New("over"))
		pingFor(500 * time.Millisecond)
		if s, told := b.Standing(of(0)); told {
			t.Errorf("Standing() of a stream that is over = %+v; want none", s)
		}
	})
}

// What pings carry is bounded, and has names that differ.
func TestCarryRefuses(t *testing.T) {
	clause.Cite(t, "CL-TRN-7")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		carry := func(rank int) error {
			return a.Carry(link.NewProgress(link.Header{Family: link.Collective, Stream: 7, Step: uint32(rank)}))
		}
		if carry(0) != nil || !errors.Is(carry(0), serry.ErrInvalid) {
			t.Error("a second progress of the same name is not refused")
		}
		rank := 1
		for carry(rank) == nil {
			rank++
		}
		if _, ok := errors.AsType[*serry.LimitError](carry(rank)); !ok || rank != 256 {
			t.Errorf("Carry() refuses number %d with %v; want a limit at 256", rank, carry(rank))
		}
		pingFor(time.Second)
		if _, told := b.Standing(link.Header{Family: link.Collective, Stream: 7, Step: 255}); !told || a.Err() != nil {
			t.Errorf("the last progress is not told: %v", a.Err())
		}
		a.Shutdown(errors.New("enough"))
		if err := carry(rank); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Carry() on a closed link = %v; want %v", err, link.ErrClosed)
		}
	})
}

// pingFor lets the detectors of all links run for a while.
func pingFor(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
