package jax_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
)

// A slowConn takes a time for each read, and counts bytes.
type slowConn struct {
	net.Conn
	pause time.Duration
	bytes atomic.Int64
}

func (c *slowConn) Read(p []byte) (int, error) {
	time.Sleep(c.pause)
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

// Chunks are taken by lanes as they become free, so the faster of two lanes carries more.
func TestFasterLaneCarriesMore(t *testing.T) {
	clause.Cite(t, "TRT-165", "TR-W-19")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		s := n.serve(t, jax.Config{Lanes: 2, ChunkBytes: 1000})
		var mu sync.Mutex
		var conns []*slowConn // guarded by mu
		dial := func(ctx context.Context, network, to string) (net.Conn, error) {
			c, err := n.dial(ctx, network, to)
			if err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			slow := &slowConn{Conn: c}
			if len(conns) == 2 { // after the control connection and the first lane
				slow.pause = 10 * time.Millisecond
			} else if len(conns) == 1 {
				slow.pause = time.Millisecond
			}
			conns = append(conns, slow)
			return slow, nil
		}
		c, err := jax.Dial(t.Context(), s.Address(), jax.Config{Lanes: 2}.By(dial))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want := noise(500_000)
		mustOffer(t, s, 7, want)
		mustPull(t, c, 7, want)
		mu.Lock()
		defer mu.Unlock()
		if len(conns) != 3 {
			t.Fatalf("%d connections; want three", len(conns))
		}
		if fast, slow := conns[1].bytes.Load(), conns[2].bytes.Load(); slow == 0 || fast < 5*slow || fast+slow != int64(len(want)) {
			t.Errorf("the fast lane carried %d bytes and the slow one %d; want about ten times as many", fast, slow)
		}
	})
}
