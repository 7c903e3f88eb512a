package link_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/wire/conn"
)

const (
	ownLanes = 4       // control, small, and two for bulk data
	laneRate = 1 << 20 // bytes a second of a paced connection
)

// A paced network takes time for bytes that are written to connections which one of its processes has dialled.
type paced struct {
	link.Network
	shared chan struct{} // with room for one: what all connections share; or nil, if each is as fast whatever the others do
}

func (w paced) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := w.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &pacedConn{c.(conn.Partial), w.shared}, nil
}

type pacedConn struct {
	conn.Partial
	shared chan struct{}
}

// Write is how bulk lanes write.
func (c *pacedConn) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		part := p[n:min(n+64<<10, len(p))]
		if c.shared != nil {
			c.shared <- struct{}{}
		}
		time.Sleep(time.Duration(len(part)) * time.Second / laneRate)
		if c.shared != nil {
			<-c.shared
		}
		var k int
		k, err = c.Partial.Write(part)
		n += k
	}
	return n, err
}

// pacedPair links two tasks. The first one dials, and may write to eight bulk lanes.
func pacedPair(t *testing.T, w *world, shared chan struct{}, change ...func(*link.Options)) (a, b *link.Link) {
	t.Helper()
	pace := func(o *link.Options) { o.Network = paced{o.Network, shared} }
	m, n := w.join(life(0, 10), append(change, pace)...), w.join(life(1, 11))
	if len(change) == 0 {
		m.SetMostLanes(8)
	}
	m.SetTrial(12 << 20)
	return w.linked(m, n)
}

// stream sends messages one after the other, for so long. It returns the number of the next one.
func stream(t *testing.T, from, to *link.Link, seq uint64, lasts time.Duration) uint64 {
	t.Helper()
	out := fill(2<<20, seq)
	for begun := time.Now(); time.Since(begun) < lasts; seq++ {
		h, in := data(link.Transfer, seq), make([]byte, len(out))
		arrives, err := to.Expect(h, in)
		if err != nil {
			t.Fatal(err)
		}
		leaves, err := from.Post(h, out)
		if err == nil {
			err = errors.Join(leaves.Wait(t.Context()), arrives.Wait(t.Context()))
		}
		if err != nil || !bytes.Equal(in, out) {
			t.Fatalf("message %d: %v, or other bytes", seq, err)
		}
	}
	return seq
}

func wantLanes(t *testing.T, a, b *link.Link, want int) {
	t.Helper()
	synctest.Wait()
	if here, there := a.Stats().Lanes, b.Stats().Lanes; here != want || there != want {
		t.Errorf("%d lanes at one end and %d at the other; want %d", here, there, want)
	}
}

// A link adds lanes while each makes it faster, as far as it may, and closes them when there is nothing to send. Then it
// begins anew.
func TestLanesAreAdded(t *testing.T) {
	clause.Cite(t, "CL-TRN-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := pacedPair(t, w, nil)
		wantLanes(t, a, b, ownLanes)
		seq := stream(t, a, b, 1, 30*time.Second)
		wantLanes(t, a, b, 2+link.MaxLanes)
		time.Sleep(12 * time.Second)
		wantLanes(t, a, b, ownLanes)
		stream(t, a, b, seq, 30*time.Second)
		wantLanes(t, a, b, 2+link.MaxLanes)
		exchange(t, b, a, 1<<40) // the other way, over the lanes that the link began with
	})
}

// A lane that does not make the link faster is closed, and the next trial is a minute later.
func TestLanesThatDoNotHelp(t *testing.T) {
	clause.Cite(t, "CL-TRN-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := pacedPair(t, w, make(chan struct{}, 1))
		dials := func() int {
			w.network.mu.Lock()
			defer w.network.mu.Unlock()
			return len(w.network.dials)
		}
		before := dials()
		seq := stream(t, a, b, 1, 30*time.Second)
		wantLanes(t, a, b, ownLanes)
		if n := dials() - before; n != 1 {
			t.Errorf("%d lanes were tried in 30 s; want 1", n)
		}
		stream(t, a, b, seq, 90*time.Second)
		wantLanes(t, a, b, ownLanes)
		if n := dials() - before; n != 2 {
			t.Errorf("%d lanes were tried in two minutes; want 2", n)
		}
	})
}

// A link whose options say how many lanes it has, adds none.
func TestLanesOfOptions(t *testing.T) {
	clause.Cite(t, "CL-TRN-3")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := pacedPair(t, w, nil, func(o *link.Options) { o.Lanes = 2 })
		stream(t, a, b, 1, 15*time.Second)
		wantLanes(t, a, b, ownLanes)
	})
}

// Memory that added lanes write from and read into is let go when its message is cancelled, and the link goes on.
func TestCancelOnAddedLanes(t *testing.T) {
	clause.Cite(t, "CL-TRN-3", "CL-TRN-10")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := pacedPair(t, w, nil)
		seq := stream(t, a, b, 1, 30*time.Second)
		wantLanes(t, a, b, 2+link.MaxLanes)
		h, out, in := data(link.Transfer, seq), fill(16<<20, 1), make([]byte, 16<<20)
		arrives, err := b.Expect(h, in)
		if err != nil {
			t.Fatal(err)
		}
		leaves, err := a.Post(h, out)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		enough := errors.New("enough")
		arrives.Cancel(enough)
		leaves.Cancel(enough)
		clear(out)
		clear(in)
		if err := errors.Join(arrives.Err(), leaves.Err()); !errors.Is(err, enough) {
			t.Errorf("both ended with %v; want %v", err, enough)
		}
		stream(t, a, b, seq+1, time.Second)
		if !bytes.Equal(in, make([]byte, len(in))) {
			t.Error("the memory of a cancelled message was written to")
		}
	})
}

// The loss of a link ends what added lanes carry.
func TestLossOnAddedLanes(t *testing.T) {
	clause.Cite(t, "CL-TRN-3", "CL-TRN-5")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := pacedPair(t, w, nil)
		seq := stream(t, a, b, 1, 30*time.Second)
		h := data(link.Transfer, seq)
		arrives, err := b.Expect(h, make([]byte, 16<<20))
		if err != nil {
			t.Fatal(err)
		}
		leaves, err := a.Post(h, fill(16<<20, 1))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond)
		w.network.kill(hostOf(a.Peer()))
		if err := leaves.Wait(t.Context()); !errors.Is(err, link.ErrPeerFailed) {
			t.Errorf("Post() ended with %v; want %v", err, link.ErrPeerFailed)
		}
		if err := arrives.Wait(t.Context()); err == nil {
			t.Error("Expect() succeeded; want a loss")
		}
	})
}
