package etcd

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/store"
)

// errKilled is what a store that was killed says.
var errKilled = errors.New("killed")

// Kill does to a store what the end of its process would: nothing of it goes on, and etcd is not told.
func Kill(st store.Store) {
	s := st.(*service)
	s.stop(errKilled)
	s.work.Wait()
}

// Expire ends a lease of a store that was killed, as time would.
func Expire(ctx context.Context, client *clientv3.Client, prefix string) error {
	resp, err := client.Get(ctx, prefix+"election/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if _, err := client.Revoke(ctx, clientv3.LeaseID(kv.Lease)); err != nil && !leaseGone(err) {
			return err
		}
	}
	return nil
}

// Changed waits until the election may have changed after a revision.
func Changed(ctx context.Context, st store.Store, revision int64) {
	st.(*service).changed(ctx, revision)
}
