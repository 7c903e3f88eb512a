package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/topo"
	"github.com/serry-dev/serry/wire/topopb"
)

// Exchange takes part in finding out which devices the job has, together with all other tasks, Go and
// jaxlib alike, and returns what all of them come to. See [topo.Exchange] for what e may say; Self and
// the store are ours. Without a record of its own the task publishes what [Identify] finds.
func (m *Member) Exchange(ctx context.Context, e topo.Exchange, local *topopb.LocalTopologyProto) (*topo.Result, error) {
	e.Self = serry.TaskIndex(m.cfg.Task.Index)
	if e.Record == nil {
		e.Record = thisHost().record(e, local)
	}
	return e.Run(ctx, exchangeKeys{m.KV()}, local)
}

// exchangeKeys is the store as an exchange of topologies sees it.
type exchangeKeys struct{ kv *KV }

func (x exchangeKeys) Insert(ctx context.Context, key string, value []byte) error {
	return x.kv.Create(ctx, key, value)
}

func (x exchangeKeys) Delete(ctx context.Context, key string) error { return x.kv.Delete(ctx, key) }

// Get asks for all keys at once and stops waiting when enough have come.
func (x exchangeKeys) Get(ctx context.Context, keys []string, need int, wait time.Duration) (map[string][]byte, error) {
	ask := x.kv.Wait
	if need == 0 {
		ask = x.kv.Get
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, wait, serry.ErrTimeout)
		defer cancel()
	}
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	var (
		done sync.WaitGroup
		mu   sync.Mutex
		seen = make(map[string][]byte)
		fail error
	)
	for _, key := range keys {
		done.Go(func() {
			value, err := ask(ctx, key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				seen[key] = value
				if need > 0 && len(seen) >= need {
					enough(errEnough)
				}
			case fail == nil && !errors.Is(err, serry.ErrNotFound) && !errors.Is(err, errEnough):
				fail = err
				enough(err)
			}
		})
	}
	done.Wait()
	if need > 0 && len(seen) >= need {
		fail = nil // of those that were not needed
	}
	return seen, fail
}

// errEnough ends the waits that are not needed any more.
var errEnough = errors.New("enough keys have come")
