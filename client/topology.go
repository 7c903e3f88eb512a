package client

import (
	"context"
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
	if need == 0 {
		return gather(ctx, x.kv.Get, keys, 0)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, serry.ErrTimeout)
	defer cancel()
	return gather(ctx, x.kv.Wait, keys, need)
}
