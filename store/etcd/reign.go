package etcd

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// fence is true while this reign leads.
func (r *reign) fence() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(r.slot), "=", r.term)
}

// try does what can be repeated, while the reign lasts.
func (r *reign) try(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.alive, func() { cancel(store.ErrDeposed) })()
	return r.retry(ctx, do)
}

// write performs operations if this reign leads and the conditions hold; ok says whether they did. The
// operations must bear to be performed twice.
func (r *reign) write(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (ok bool, err error) {
	err = r.try(ctx, func(ctx context.Context) error {
		resp, err := r.client.Txn(ctx).If(append(conditions, r.fence())...).Then(ops...).
			Else(clientv3.OpGet(r.slot)).Commit()
		if err != nil {
			return err
		}
		if ok = resp.Succeeded; ok {
			return nil
		}
		if slots := resp.Responses[0].GetResponseRange().Kvs; len(slots) == 0 || slots[0].CreateRevision != r.term {
			return store.ErrDeposed
		}
		return nil
	})
	return ok, err
}

// Confirm is the fence with a read behind it: without one etcd would answer from what this member
// happens to know.
func (r *reign) Confirm(ctx context.Context) error {
	_, err := r.fenced(ctx, get(r.slot, clientv3.WithCountOnly()))
	return err
}

// fenced performs reads if this reign leads.
func (r *reign) fenced(ctx context.Context, gets ...getting) (kvs [][]*mvccpb.KeyValue, err error) {
	ops := make([]clientv3.Op, len(gets))
	for i, g := range gets {
		ops[i] = clientv3.OpGet(g.key, g.options...)
	}
	err = r.try(ctx, func(ctx context.Context) error {
		resp, err := r.client.Txn(ctx).If(r.fence()).Then(ops...).Else(clientv3.OpGet(r.slot)).Commit()
		if err != nil {
			return err
		}
		if !resp.Succeeded {
			return store.ErrDeposed
		}
		kvs = kvs[:0]
		for _, answer := range resp.Responses {
			kvs = append(kvs, answer.GetResponseRange().Kvs)
		}
		return nil
	})
	return kvs, err
}

// begin finds out where the journal ends, and makes it one if there is none.
func (r *reign) begin(ctx context.Context) error {
	e, err := r.extent(ctx)
	if err != nil {
		return err
	}
	r.next = e.last + 1
	if !e.formatted {
		_, err = r.write(ctx, nil, clientv3.OpPut(r.key("format"), format))
	}
	return err
}

// Mark is the number of the last batch.
func (r *reign) Mark() store.Mark { return store.Mark(r.next - 1) }

// Append puts a batch under the next number.
func (r *reign) Append(ctx context.Context, batch []byte) error {
	err := r.failure()
	if err == nil {
		if err = r.append(ctx, batch); err != nil {
			r.failed.Store(&err)
		}
	}
	return err
}

// failure is the error of an Append, or nil.
func (r *reign) failure() error {
	if err := r.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (r *reign) append(ctx context.Context, batch []byte) error {
	entry := append([]byte{inline}, batch...)
	if len(batch) > r.cfg.PartBytes {
		b, done, err := r.writeBlob(ctx, batch, partsInFlight)
		defer done()
		if err != nil {
			return err
		}
		r.blobs.ofBatch(b.id, r.next)
		entry = append([]byte{aBlob}, b.String()...)
	}
	key := r.batchKey(r.next)
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	ok, err := r.write(ctx, []clientv3.Cmp{absent}, clientv3.OpPut(key, string(entry)))
	if err != nil {
		return err
	}
	if !ok { // nobody else writes: it was this batch, and the answer got lost
		kvs, err := r.fenced(ctx, get(key))
		if err != nil {
			return err
		}
		if len(kvs[0]) == 0 || !bytes.Equal(kvs[0][0].Value, entry) {
			return fmt.Errorf("store: %w: batch %d in etcd is not the one of its leader", store.ErrDamaged, r.next)
		}
	}
	r.next++
	return nil
}

// Save writes the snapshot as a blob, names it, and removes what is not needed any more. All of that is
// done in small steps, one after the other: a batch that is appended meanwhile stands in line behind one
// of them.
func (r *reign) Save(ctx context.Context, at store.Mark, snapshot []byte, keep []coord.Ref) error {
	if err := r.failure(); err != nil {
		return err
	}
	garbage := r.blobs.book.Begin(keep)
	b, done, err := r.writeBlob(ctx, snapshot, 1)
	defer done()
	if err != nil {
		return err
	}
	h := head{base: uint64(at), snapshot: &b}
	if _, err := r.write(ctx, nil, clientv3.OpPut(r.key("snapshot"), h.String())); err != nil {
		return err
	}
	return r.sweep(ctx, h, garbage)
}

// Put writes a value as a blob, unless it is there: then touching its key keeps a Save that is under
// way from removing it.
func (r *reign) Put(ctx context.Context, ref coord.Ref, value []byte) error {
	if ref.Size > r.MaxValue() {
		return &store.SizeError{Size: ref.Size, Limit: r.MaxValue()}
	}
	if int64(len(value)) != ref.Size {
		return fmt.Errorf("store: value of %d bytes put as one of %d", len(value), ref.Size)
	}
	r.blobs.book.Enter(ref)
	defer r.blobs.book.Leave(ref)
	key := r.valueKey(ref)
	present := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	touch := clientv3.OpPut(key, "", clientv3.WithIgnoreValue())
	if ok, err := r.write(ctx, []clientv3.Cmp{present}, touch); ok || err != nil {
		return err
	}
	b, done, err := r.writeBlob(ctx, value, partsInFlight)
	defer done()
	if err != nil {
		return err
	}
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	_, err = r.write(ctx, []clientv3.Cmp{absent}, clientv3.OpPut(key, b.String())) // or somebody else was faster
	return err
}
