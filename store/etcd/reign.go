package etcd

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/plant"
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

// write performs operations if this reign leads and the conditions hold. It returns the answer of etcd,
// which says whether they did. A request without an answer is sent again, and the first one may still
// arrive: after the second, after later requests, after an hour. So each write must be safe when it is
// performed once more at any later time of the reign; writes.go says why each of them is.
func (r *reign) write(ctx context.Context, conditions []clientv3.Cmp, ops ...clientv3.Op) (answer *clientv3.TxnResponse, err error) {
	if !r.cfg.Planted.Has(plant.NoFence) {
		conditions = append(slices.Clip(conditions), r.fence())
	}
	err = r.try(ctx, func(ctx context.Context) error {
		answer, err = r.client.Txn(ctx).If(conditions...).Then(ops...).Else(clientv3.OpGet(r.slot)).Commit()
		if err != nil || answer.Succeeded {
			return err
		}
		if slots := answer.Responses[0].GetResponseRange().Kvs; len(slots) == 0 || slots[0].CreateRevision != r.term {
			return store.ErrDeposed
		}
		return nil
	})
	return answer, err
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
	if err := r.learnQuota(ctx); err != nil {
		return err
	}
	if !e.formatted {
		if _, err = r.write(ctx, nil, clientv3.OpPut(r.key("format"), format)); err != nil {
			return err
		}
	}
	if r.store = e.store; r.store == 0 {
		return r.draw(ctx)
	}
	return nil
}

// draw gives the store its number. The first number that arrives stays: what a deposed reign still sends
// meets the fence, and a request that is repeated finds the key.
func (r *reign) draw(ctx context.Context) error {
	key := r.key("store")
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	put := clientv3.OpPut(key, number(uint64(serry.NewStoreID())))
	if _, err := r.write(ctx, []clientv3.Cmp{absent}, put); err != nil {
		return err
	}
	kvs, err := r.fenced(ctx, get(key))
	if err != nil {
		return err
	}
	r.store, err = readID(kvs[0])
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
		b, err := r.writeBlob(ctx, batch, ofBatch)
		if err != nil {
			return err
		}
		r.blobs.appending(b.id, r.next)
		entry = append([]byte{aBlob}, b.String()...)
	}
	key := r.batchKey(r.next)
	answer, err := r.write(ctx, []clientv3.Cmp{absent(key)}, clientv3.OpPut(key, string(entry)))
	if err != nil {
		return err
	}
	if !answer.Succeeded { // no other server writes: it was this batch, and the answer got lost
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
	b, err := r.writeBlob(ctx, snapshot, ofSnapshot)
	if err != nil {
		return err
	}
	h := head{base: uint64(at), snapshot: &b}
	if err := r.nameSnapshot(ctx, h); err != nil {
		return err
	}
	r.blobs.saved()
	return r.sweep(ctx, h, garbage)
}

// nameSnapshot makes h the snapshot of the journal. The write compares the revision of the key that it
// replaces: a first attempt that arrives after a later Save finds another revision, and does nothing.
func (r *reign) nameSnapshot(ctx context.Context, h head) error {
	key := r.key("snapshot")
	for {
		kvs, err := r.fenced(ctx, get(key))
		if err != nil {
			return err
		}
		revision := int64(0)
		if len(kvs[0]) > 0 {
			if string(kvs[0][0].Value) == h.String() { // the answer to the write got lost
				return nil
			}
			revision = kvs[0][0].ModRevision
		}
		now, err := readHead(kvs[0])
		if err != nil {
			return err
		}
		if now.base > h.base {
			return fmt.Errorf("store: %w: the snapshot in etcd covers batch %d, and the new one only %d", store.ErrDamaged, now.base, h.base)
		}
		unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", revision)
		conditions := []clientv3.Cmp{unchanged}
		if r.cfg.Planted.Has(plant.LateDuplicate) {
			conditions = nil
		}
		answer, err := r.write(ctx, conditions, clientv3.OpPut(key, h.String()))
		if err != nil || answer.Succeeded {
			return err
		}
	}
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
	there, revision, err := r.touch(ctx, key)
	if there || err != nil {
		return err
	}
	b, err := r.writeBlob(ctx, value, ofValue)
	if err != nil {
		return err
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	answer, err := r.write(ctx, append(r.whole(b), unchanged), clientv3.OpPut(key, b.String()))
	if err != nil {
		return err
	}
	if answer.Succeeded {
		r.blobs.settle(b.id)
		return nil
	}
	// The key names this blob, and the answer got lost; or it names that of another Put of the value.
	there, _, err = r.touch(ctx, key)
	if err == nil && !there {
		err = fmt.Errorf("store: %w: value %x in etcd is not the one of its leader", store.ErrDamaged, ref.Digest)
	}
	return err
}

// touch says whether a value is there with all its parts. If it is, its key has a new revision now; if
// not, revision is that of a key whose parts are missing, or zero. A journal in which a key outlived its
// parts is mended by the Put that finds it.
func (r *reign) touch(ctx context.Context, key string) (there bool, revision int64, err error) {
	present := clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	touch := clientv3.OpPut(key, "", clientv3.WithIgnoreValue())
	answer, err := r.write(ctx, []clientv3.Cmp{present}, touch, clientv3.OpGet(key))
	if err != nil || !answer.Succeeded {
		return false, 0, err
	}
	kv := answer.Responses[1].GetResponseRange().Kvs[0]
	b, ok := parseBlob(string(kv.Value))
	if !ok {
		return false, kv.ModRevision, nil
	}
	parts, err := r.countParts(ctx, b)
	if err != nil || parts != b.parts {
		return false, kv.ModRevision, err
	}
	r.blobs.settle(b.id)
	return true, kv.ModRevision, nil
}

// absent is true while there is no such key.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}
