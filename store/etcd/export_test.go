package etcd

import (
	"context"
	"errors"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/store"
)

// errKilled is what a store that was killed says.
var errKilled = errors.New("killed")

// Kill does to a store what the end of its process would: nothing of it goes on, and etcd is not told.
func Kill(st store.Store) {
	s := bare(st)
	s.stop(errKilled)
	s.work.Wait()
}

// bare finds the store of this package in one that a member has wrapped: it lies in a field of that
// name.
func bare(st store.Store) *service {
	if s, ok := st.(*service); ok {
		return s
	}
	return reflect.ValueOf(st).FieldByName("Store").Interface().(*service)
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
	bare(st).changed(ctx, revision)
}
