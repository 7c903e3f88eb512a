package jax_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
)

// keys is a key-value store for tests.
type keys struct {
	mu      sync.Mutex
	values  map[string][]byte
	changed chan struct{}
}

func (k *keys) Create(_ context.Context, key string, value []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values[key] != nil {
		return errors.New("exists")
	}
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
		n, k := newNetwork(), &keys{values: make(map[string][]byte), changed: make(chan struct{})}
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
