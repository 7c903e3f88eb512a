package link_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
)

// lent makes a segment on one side of a link and borrows it on the other.
func lent(t *testing.T, from, to *link.Link, n *link.Net, name uint64) (mine, theirs *link.Segment) {
	t.Helper()
	mine, err := n.NewSegment(100_000)
	if err != nil {
		t.Fatalf("NewSegment() = %v", err)
	}
	if err := from.Lend(t.Context(), name, mine); err != nil {
		t.Fatalf("Lend() = %v", err)
	}
	theirs, err = to.Borrow(t.Context(), name)
	if err != nil {
		t.Fatalf("Borrow() = %v", err)
	}
	return mine, theirs
}

// passWord has one side write and wake, and the other one sleep and read.
func passWord(t *testing.T, mine, theirs *link.Segment) {
	t.Helper()
	const rounds, word, data = 50, 64, 4096
	never := make(chan struct{})
	read := make(chan []byte)
	go func() {
		for i := range uint32(rounds) {
			for theirs.Word(word).Load() == i {
				theirs.Sleep(word, i, never, never, time.Second)
			}
			read <- bytes.Clone(theirs.Bytes()[data : data+8])
		}
	}()
	for i := range uint32(rounds) {
		want := fill(8, uint64(i))
		copy(mine.Bytes()[data:], want)
		mine.LongWord(8).Store(uint64(i))
		mine.Word(word).Store(i + 1)
		mine.Wake(word)
		if got := <-read; !bytes.Equal(got, want) {
			t.Fatalf("round %d: the borrower reads %x; want %x", i, got, want)
		}
	}
	if got := theirs.LongWord(8).Load(); got != rounds-1 {
		t.Errorf("LongWord() = %d; want %d", got, rounds-1)
	}
}

// What the owner of a segment writes is read where the segment was borrowed, among Nets of one process in virtual time.
func TestOrdinarySegments(t *testing.T) {
	clause.Cite(t, "CL-TRN-21", "CL-TRN-19")
	inBubble(t, func(t *testing.T, w *world) {
		w.options.Segments = new(link.Local)
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, b := w.linked(m, n)
		mine, theirs := lent(t, a, b, m, 1)
		passWord(t, mine, theirs)

		var woken atomic.Int32
		gone := make(chan struct{})
		for _, channels := range [][2]chan struct{}{{gone, nil}, {nil, gone}} {
			go func() {
				theirs.Sleep(0, 0, channels[0], channels[1], 0)
				woken.Add(1)
			}()
		}
		synctest.Wait()
		close(gone)
		synctest.Wait()
		if woken.Load() != 2 {
			t.Errorf("%d of 2 sleepers were woken by their channels", woken.Load())
		}
		if err := errors.Join(mine.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
	})
	inBubble(t, func(t *testing.T, w *world) { // no process of this host
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, _ := w.linked(m, n)
		if err := a.Lend(t.Context(), 1, link.OrdinarySegment(64)); !errors.Is(err, link.ErrNoLending) {
			t.Errorf("Lend() over a network = %v; want ErrNoLending", err)
		}
	})
}

// Borrow ends with its context and with the link.
func TestBorrowEnds(t *testing.T) {
	clause.Cite(t, "CL-TRN-16")
	inBubble(t, func(t *testing.T, w *world) {
		w.options.Segments = new(link.Local)
		m, n := w.join(life(0, 10)), w.join(life(1, 11))
		a, b := w.linked(m, n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := b.Borrow(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Borrow() of nothing = %v; want that its time is over", err)
		}
		failed := make(chan error)
		go func() {
			_, err := b.Borrow(t.Context(), 1)
			failed <- err
		}()
		synctest.Wait()
		a.Shutdown(errors.New("enough"))
		if err := <-failed; !errors.Is(err, link.ErrClosed) {
			t.Errorf("Borrow() over a link that ends = %v; want ErrClosed", err)
		}
		if err := a.Lend(t.Context(), 1, link.OrdinarySegment(64)); !errors.Is(err, link.ErrClosed) {
			t.Errorf("Lend() over a link that has ended = %v; want ErrClosed", err)
		}
	})
}
