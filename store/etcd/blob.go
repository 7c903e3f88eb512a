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
	"github.com/serry-dev/serry/store"
	"github.com/serry-dev/serry/store/internal/aside"
)

// A blob is bytes that lie in parts, under an id that no other blob ever has. It counts for nothing until
// a key names it.
type blob struct {
	id    string
	parts int
	size  int64
}

func (b blob) String() string { return fmt.Sprintf("%s %d %d", b.id, b.parts, b.size) }

func parseBlob(s string) (b blob, ok bool) {
	n, err := fmt.Sscanf(s, "%s %d %d", &b.id, &b.parts, &b.size)
	return b, n == 3 && err == nil && b.parts >= 0 && b.size >= 0
}

// blobs are those of a reign.
type blobs struct {
	book aside.Book // of values
	mu   struct {
		sync.Mutex
		made    int
		writing map[string]bool   // ids that no key names yet
		batches map[string]uint64 // ids of batches of this reign, and their numbers
	}
}

// begin makes an id. end is called when a key names the blob, or nothing ever will.
func (b *blobs) begin(term uint64) (id string, end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.made++
	id = fmt.Sprintf("%s-%08x", number(term), b.mu.made)
	if b.mu.writing == nil {
		b.mu.writing = make(map[string]bool)
	}
	b.mu.writing[id] = true
	return id, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.mu.writing, id)
	}
}

// ofBatch notes that a blob is a batch.
func (b *blobs) ofBatch(id string, number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.batches == nil {
		b.mu.batches = make(map[string]uint64)
	}
	b.mu.batches[id] = number
}

// needed are the ids of blobs that are being written, and of batches after a number. Batches up to there
// are forgotten.
func (b *blobs) needed(base uint64) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.mu.batches, func(_ string, number uint64) bool { return number <= base })
	ids := make(map[string]bool)
	maps.Copy(ids, b.mu.writing)
	for id := range b.mu.batches {
		ids[id] = true
	}
	return ids
}

// partsInFlight is how many parts are written at a time where somebody waits for them: etcd writes them
// to its log together.
const partsInFlight = 4

func (s *service) partKey(id string, i int) string { return s.key(fmt.Sprintf("blob/%s/%08x", id, i)) }

// writeBlob writes all parts, some at a time. The caller names the blob, then calls done.
func (r *reign) writeBlob(ctx context.Context, data []byte, inFlight int) (b blob, done func(), err error) {
	b.id, done = r.blobs.begin(r.Term())
	b.size = int64(len(data))
	group, parts := errgroup.WithContext(ctx)
	group.SetLimit(inFlight)
	for ; len(data) > 0 && parts.Err() == nil; b.parts++ {
		n := min(len(data), r.cfg.PartBytes)
		put := clientv3.OpPut(r.partKey(b.id, b.parts), string(data[:n]))
		group.Go(func() error {
			_, err := r.write(parts, nil, put)
			return err
		})
		data = data[n:]
	}
	if err := group.Wait(); err != nil {
		return b, done, err
	}
	if len(data) > 0 {
		return b, done, context.Cause(ctx)
	}
	return b, done, nil
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

// sweep removes what a new snapshot has made useless: batches, values, and blobs that nothing names.
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
		if _, err := r.write(ctx, []clientv3.Cmp{untouched}, clientv3.OpDelete(key)); err != nil {
			return err
		}
	}
	if err := r.sweepBlobs(ctx, h); err != nil {
		return err
	}
	return r.compact(ctx)
}

// batchesAtOnce is how many batches one request removes.
const batchesAtOnce = 256

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
// is still being written, or a key names it already, or it is garbage.
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
		if _, err := r.write(ctx, nil, clientv3.OpDelete(prefix+id+"/", clientv3.WithPrefix())); err != nil {
			return err
		}
	}
	return nil
}

// compact drops etcd's own history, in which all that was removed is still there.
func (r *reign) compact(ctx context.Context) error {
	if !r.cfg.Compact {
		return nil
	}
	return r.try(ctx, func(ctx context.Context) error {
		resp, err := r.client.Get(ctx, r.slot, clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if _, err := r.client.Compact(ctx, resp.Header.Revision); err != nil && !compacted(err) {
			return err
		}
		return nil
	})
}
