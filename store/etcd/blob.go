package etcd

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/aside"
	"github.com/serry-dev/serry/store"
)

// A blob is bytes that are stored in parts, under an id that no other blob ever has. It counts for nothing until
// a key names it.
type blob struct {
	id    string
	parts int
	size  int64

	born int64 // revision at which its writer created the first part; not part of its text
}

func (b blob) String() string { return fmt.Sprintf("%s %d %d", b.id, b.parts, b.size) }

func parseBlob(s string) (b blob, ok bool) {
	n, err := fmt.Sscanf(s, "%s %d %d", &b.id, &b.parts, &b.size)
	return b, n == 3 && err == nil && b.parts >= 0 && b.size >= 0
}

// A purpose is what a blob holds.
type purpose uint8

const (
	ofValue purpose = iota
	ofBatch
	ofSnapshot
)

// blobs are those of a reign.
type blobs struct {
	book aside.Book // of values
	mu   struct {
		sync.Mutex
		made int
		// unnamed are blobs that no key names yet, but that a request on its way may name. Until that is
		// ruled out no sweep may remove them: the key would outlive its blob. A blob whose Put was given up
		// stays here, and is removed by the next leader, which the request cannot reach any more.
		unnamed map[string]purpose
		batches map[string]uint64 // ids of batches of this reign, and their numbers
	}
}

// begin makes an id.
func (b *blobs) begin(term uint64, of purpose) (id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.made++
	id = fmt.Sprintf("%s-%08x", number(term), b.mu.made)
	if b.mu.unnamed == nil {
		b.mu.unnamed = make(map[string]purpose)
	}
	b.mu.unnamed[id] = of
	return id
}

// settle notes that the fate of a blob is known: a key names it, or no request that would is on its way.
func (b *blobs) settle(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.mu.unnamed, id)
}

// appending notes that a blob is a batch.
func (b *blobs) appending(id string, number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.batches == nil {
		b.mu.batches = make(map[string]uint64)
	}
	b.mu.batches[id] = number
	delete(b.mu.unnamed, id)
}

// saved notes that a key names the newest snapshot. Those of earlier Saves that were given up can no
// longer be named: their request compares a revision that the key does not have any more.
func (b *blobs) saved() {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.mu.unnamed, func(_ string, of purpose) bool { return of == ofSnapshot })
}

// needed are the ids of blobs that a key may come to name, and of batches after a number. Batches up to
// there are forgotten.
func (b *blobs) needed(base uint64) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.mu.batches, func(_ string, number uint64) bool { return number <= base })
	ids := make(map[string]bool)
	for id := range b.mu.unnamed {
		ids[id] = true
	}
	for id := range b.mu.batches {
		ids[id] = true
	}
	return ids
}

// partsInFlight is how many parts are written at a time where a caller waits for them: etcd writes them
// to its log together. A snapshot is written one part after the other, because no caller waits for it.
const partsInFlight = 4

func (s *service) blobPrefix(id string) string { return s.key("blob/" + id + "/") }

func (s *service) partKey(id string, i int) string { return fmt.Sprintf("%s%08x", s.blobPrefix(id), i) }

// writeBlob writes all parts, some at a time. The caller names the blob.
func (r *reign) writeBlob(ctx context.Context, data []byte, of purpose) (b blob, err error) {
	b.id = r.blobs.begin(r.Term(), of)
	b.size = int64(len(data))
	var born int64
	group, parts := errgroup.WithContext(ctx)
	group.SetLimit(partsInFlight)
	if of == ofSnapshot {
		group.SetLimit(1)
	}
	for ; len(data) > 0 && parts.Err() == nil; b.parts++ {
		i, part := b.parts, data[:min(len(data), r.cfg.PartBytes)]
		group.Go(func() error {
			created, err := r.writePart(parts, r.partKey(b.id, i), part)
			if i == 0 {
				born = created
			}
			return err
		})
		data = data[len(part):]
	}
	err = group.Wait()
	if err == nil && len(data) > 0 {
		err = context.Cause(ctx)
	}
	if err != nil {
		r.blobs.settle(b.id)
	}
	b.born = born
	return b, err
}

// writePart writes a part and returns the revision at which it was created.
func (r *reign) writePart(ctx context.Context, key string, part []byte) (created int64, err error) {
	answer, err := r.write(ctx, []clientv3.Cmp{absent(key)}, clientv3.OpPut(key, string(part)))
	if err != nil {
		return 0, err
	}
	if answer.Succeeded {
		return answer.Header.Revision, nil
	}
	kvs, err := r.fenced(ctx, get(key, clientv3.WithKeysOnly())) // it is there, and the answer got lost
	if err == nil && len(kvs[0]) == 0 {
		err = fmt.Errorf("store: %w: a part that was written is missing in etcd", store.ErrDamaged)
	}
	if err != nil {
		return 0, err
	}
	return kvs[0][0].CreateRevision, nil
}

// whole is true while a blob that was just written is there. Parts are created once and removed together,
// so if the first one is that which the writer created, the others are there, too. A part that arrives
// again after its blob was removed has another revision.
func (r *reign) whole(b blob) []clientv3.Cmp {
	if b.parts == 0 {
		return nil
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(r.partKey(b.id, 0)), "=", b.born)}
}

// countParts says how many parts of a blob there are.
func (r *reign) countParts(ctx context.Context, b blob) (int, error) {
	kvs, err := r.fenced(ctx, get(r.blobPrefix(b.id), clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return 0, err
	}
	return len(kvs[0]), nil
}

// partsAtOnce is how many parts one request reads.
const partsAtOnce = 8

// readBlob reads all parts.
func (r reader) readBlob(ctx context.Context, b blob) ([]byte, error) {
	var data []byte
	for i := 0; i < b.parts; {
		kvs, err := r.read(ctx, get(r.partKey(b.id, i), clientv3.WithRange(r.partKey(b.id, b.parts)), clientv3.WithLimit(partsAtOnce)))
		if err != nil {
			return nil, err
		}
		if len(kvs[0]) == 0 {
			break
		}
		for _, kv := range kvs[0] {
			data = append(data, kv.Value...)
		}
		i += len(kvs[0])
	}
	if int64(len(data)) != b.size {
		return nil, fmt.Errorf("store: %w: blob %s in etcd has %d of %d bytes", store.ErrDamaged, b.id, len(data), b.size)
	}
	if data == nil {
		data = []byte{}
	}
	return data, nil
}

// sweep removes what a new snapshot has made useless: batches, values, and blobs that nothing names. A value
// goes together with its blob: between the two a late request could name the blob again.
func (r *reign) sweep(ctx context.Context, h head, garbage func(coord.Ref) bool) error {
	if err := r.sweepBatches(ctx, h); err != nil {
		return err
	}
	values, err := r.values(ctx)
	if err != nil {
		return err
	}
	for _, v := range values {
		if !garbage(v.ref) {
			continue
		}
		key := r.valueKey(v.ref)
		untouched := clientv3.Compare(clientv3.ModRevision(key), "=", v.revision)
		_, err := r.write(ctx, []clientv3.Cmp{untouched}, clientv3.OpDelete(key),
			clientv3.OpDelete(r.blobPrefix(v.blob.id), clientv3.WithPrefix()))
		if err != nil {
			return err
		}
	}
	if err := r.sweepBlobs(ctx, h); err != nil {
		return err
	}
	return r.compact(ctx)
}

// batchesAtOnce is how many batches one request removes. A member syncs its disk after each request that removes something.
const batchesAtOnce = 1024

// sweepBatches removes the batches that a snapshot covers.
func (r *reign) sweepBatches(ctx context.Context, h head) error {
	first, end := r.batchKey(0), r.batchKey(h.base+1)
	for {
		kvs, err := r.read(ctx, get(first, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(batchesAtOnce)))
		if err != nil || len(kvs[0]) == 0 {
			return err
		}
		next := string(kvs[0][len(kvs[0])-1].Key) + "\x00"
		if _, err := r.write(ctx, nil, clientv3.OpDelete(first, clientv3.WithRange(next))); err != nil {
			return err
		}
		first = next
	}
}

// sweepBlobs removes blobs that nothing names. The order of its questions matters: a blob that is found
// may come to be named, or a key names it already, or it is garbage.
func (r *reign) sweepBlobs(ctx context.Context, h head) error {
	prefix := r.key("blob/")
	kvs, err := r.read(ctx, get(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return err
	}
	named := map[string]bool{h.snapshot.id: true}
	maps.Copy(named, r.blobs.needed(h.base))
	values, err := r.values(ctx)
	if err != nil {
		return err
	}
	for _, v := range values {
		named[v.blob.id] = true
	}
	for _, kv := range kvs[0] {
		id, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), prefix), "/")
		if named[id] {
			continue
		}
		named[id] = true // once is enough
		if _, err := r.write(ctx, nil, clientv3.OpDelete(r.blobPrefix(id), clientv3.WithPrefix())); err != nil {
			return err
		}
	}
	return nil
}

// compact drops etcd's own history, in which all that was removed is still there, and waits until the member
// that is asked has dropped it: then there is room for what comes next.
func (r *reign) compact(ctx context.Context) error {
	if !r.cfg.Compact {
		return nil
	}
	return r.try(ctx, func(ctx context.Context) error {
		resp, err := r.client.Get(ctx, r.slot, clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		_, err = r.client.Compact(ctx, resp.Header.Revision, clientv3.WithCompactPhysical())
		if err != nil && !compacted(err) {
			return err
		}
		return nil
	})
}
