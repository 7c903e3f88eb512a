package jax_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
)

// keys is a key-value store for tests.
type keys struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{}
}

func newKeys() *keys { return &keys{values: make(map[string][]byte), changed: make(chan struct{})} }

func (k *keys) Put(_ context.Context, key string, value []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.values[key] = value
	close(k.changed)
	k.changed = make(chan struct{})
	return nil
}

func (k *keys) Wait(ctx context.Context, key string) ([]byte, error) {
	for {
		k.mu.Lock()
		value, changed := k.values[key], k.changed
		k.mu.Unlock()
		if value != nil {
			return value, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Three processes put shards to each other. Each makes all calls; every move has its own number, by destination and source.
func TestPuts(t *testing.T) {
	clause.Cite(t, "TR-DPT-7", "TR-MAT-5")
	synctest.Test(t, func(t *testing.T) {
		n, k := newNetwork(), newKeys()
		var puts []*jax.Puts
		for i := range 3 {
			p, err := jax.NewPuts(t.Context(), n.serve(t, jax.Config{}), k, i, jax.Config{}.By(n.dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			puts = append(puts, p)
		}
		calls := [][][2]int{{{0, 1}}, {{2, 0}, {0, 2}, {1, 0}}, {}, {{1, 2}, {0, 2}}}
		text := func(call, from, to, shard int) []byte {
			return bytes.Repeat([]byte{byte(call), byte(from), byte(to), byte(shard)}, 1+call)
		}
		var work sync.WaitGroup
		for me, p := range puts {
			work.Go(func() {
				for c, pairs := range calls {
					var moves []jax.Move
					for _, pair := range pairs {
						m := jax.Move{From: pair[0], To: pair[1]}
						for shard := range 2 {
							data := text(c, m.From, m.To, shard)
							if m.From == me {
								m.Buffers = append(m.Buffers, jax.Buffer{Bytes: data})
							}
							if m.To == me {
								m.Into = append(m.Into, make([]byte, len(data)))
							}
						}
						moves = append(moves, m)
					}
					offers, err := p.Put(t.Context(), moves)
					if err != nil {
						t.Errorf("process %d, call %d: %v", me, c, err)
					}
					for _, m := range moves {
						for shard, got := range m.Into {
							if !bytes.Equal(got, text(c, m.From, m.To, shard)) {
								t.Errorf("process %d, call %d: shard %d of process %d is %v", me, c, shard, m.From, got)
							}
						}
					}
					for _, o := range offers {
						<-o.Done()
					}
				}
			})
		}
		work.Wait()
		if string(k.values["transfer_server:ifrt_cross_host_socket_address_1"]) == "" {
			t.Error("process 1 has published no address")
		}
		for _, bad := range [][]jax.Move{{{From: 1, To: 1}}, {{From: 0, To: 1}, {From: 0, To: 1}}, {{From: -1, To: 0}}} {
			if _, err := puts[0].Put(t.Context(), bad); err == nil {
				t.Errorf("Put(%v) = nil; want an error", bad)
			}
		}
	})
}

// A player is a process of a JAX program.
type player struct {
	*jax.Puts
	server *jax.Server
}

// join starts a process under a number.
func (n *network) join(t *testing.T, k *keys, process int) player {
	t.Helper()
	p := player{server: n.serve(t, jax.Config{})}
	p.Puts = must(jax.NewPuts(t.Context(), p.server, k, process, jax.Config{}.By(n.dial)))(t)
	t.Cleanup(p.Close)
	return p
}

// move moves bytes from process 0 to process 1: each of them calls Put.
func move(ctx context.Context, t *testing.T, from, to player, data []byte) {
	t.Helper()
	if _, err := from.Put(ctx, []jax.Move{{To: 1, Buffers: []jax.Buffer{{Bytes: data}}}}); err != nil {
		t.Fatal(err)
	}
	into := make([]byte, len(data))
	if _, err := to.Put(ctx, []jax.Move{{To: 1, Into: [][]byte{into}}}); err != nil || !bytes.Equal(into, data) {
		t.Fatalf("Put() = %v, with %q; want %q", err, into, data)
	}
}

// A connection that broke is not used again: neither after a reset, nor after the process was replaced, whose next life has another
// address. While the old address is still published, it is dialled in vain.
func TestPutsAfterARestart(t *testing.T) {
	clause.Cite(t, "TR-H-12", "TR-DPT-7", "TR-ERR-2", "TR-MAT-5")
	synctest.Test(t, func(t *testing.T) {
		n, k := newNetwork(), newKeys()
		from, to := n.join(t, k, 0), n.join(t, k, 1)
		move(t.Context(), t, from, to, []byte("first"))
		for _, c := range from.server.Conns() {
			c.Close()
		}
		synctest.Wait()
		move(t.Context(), t, from, to, []byte("after a reset"))

		from.server.Close()
		from.Close()
		synctest.Wait()
		again := make(chan player)
		go func() {
			time.Sleep(30 * time.Second)
			next := n.join(t, k, 0)
			if _, err := next.Put(t.Context(), []jax.Move{{From: 1, To: 2}, {From: 2, To: 1}}); err != nil { // the moves of its earlier life
				t.Error(err)
			}
			if _, err := next.Put(t.Context(), []jax.Move{{To: 1, Buffers: []jax.Buffer{{Bytes: []byte("after a restart")}}}}); err != nil {
				t.Error(err)
			}
			again <- next
		}()
		into := make([]byte, len("after a restart"))
		begun := time.Now()
		if _, err := to.Put(t.Context(), []jax.Move{{To: 1, Into: [][]byte{into}}}); err != nil || string(into) != "after a restart" {
			t.Fatalf("Put() after the other process was replaced = %v, with %q", err, into)
		}
		if d := time.Since(begun); d > 33*time.Second {
			t.Errorf("Put() took %v; the process was back after 30s", d)
		}
		move(t.Context(), t, <-again, to, []byte("and on"))
	})
}

// Calls that need the same connection at once make one.
func TestPutsDialOnce(t *testing.T) {
	clause.Cite(t, "TR-DPT-7")
	synctest.Test(t, func(t *testing.T) {
		n, k := newNetwork(), newKeys()
		from, to := n.join(t, k, 0), n.join(t, k, 1)
		var work sync.WaitGroup
		for range 5 {
			if _, err := from.Put(t.Context(), []jax.Move{{To: 1, Buffers: []jax.Buffer{{Bytes: []byte("x")}}}}); err != nil {
				t.Fatal(err)
			}
			work.Go(func() {
				if _, err := to.Put(t.Context(), []jax.Move{{To: 1, Into: [][]byte{make([]byte, 1)}}}); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if got := len(from.server.Conns()); got != 1 {
			t.Errorf("%d connections; want 1", got)
		}
	})
}

// Close ends a call that dials, and later ones, with an error.
func TestPutsClosed(t *testing.T) {
	clause.Cite(t, "TR-ERR-2", "TR-DPT-7")
	synctest.Test(t, func(t *testing.T) {
		n, k := newNetwork(), newKeys()
		p := n.join(t, k, 1)
		for process, address := range []string{"127.0.0.1:9", ""} { // no process is there; no address is published
			process *= 2
			if address != "" {
				k.Put(t.Context(), "transfer_server:ifrt_cross_host_socket_address_0", []byte(address))
			}
			go func() {
				_, err := p.Put(t.Context(), []jax.Move{{From: process, To: 1, Into: [][]byte{make([]byte, 1)}}})
				if !errors.Is(err, jax.ErrClosed) {
					t.Errorf("Put() that dials process %d = %v; want ErrClosed", process, err)
				}
			}()
		}
		time.Sleep(time.Minute)
		p.Close()
		synctest.Wait()
		if _, err := p.Put(t.Context(), []jax.Move{{To: 1, Into: [][]byte{make([]byte, 1)}}}); !errors.Is(err, jax.ErrClosed) {
			t.Errorf("Put() after Close() = %v; want ErrClosed", err)
		}
		p.Close()
	})
}
