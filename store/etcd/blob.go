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
		writing map[string]bool // ids that no key names yet
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

// unnamed are the ids of blobs that are being written.
func (b *blobs) unnamed() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.mu.writing)
}

// partsInFlight is how many parts are written at a time: etcd writes them to its log together.
const partsInFlight = 4

func (s *service) partKey(id string, i int) string { return s.key(fmt.Sprintf("blob/%s/%08x", id, i)) }

// writeBlob writes all parts. The caller names the blob, then calls done.
func (r *reign) writeBlob(ctx context.Context, data []byte) (b blob, done func(), err error) {
	b.id, done = r.blobs.begin(r.Term())
	b.size = int64(len(data))
	group, parts := errgroup.WithContext(ctx)
	group.SetLimit(partsInFlight)
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
	old := clientv3.OpDelete(r.batchKey(0), clientv3.WithRange(r.batchKey(h.base+1)))
	if _, err := r.write(ctx, nil, old); err != nil {
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

// sweepBlobs removes blobs that nothing names. The order of its questions matters: a blob that is found
// is still being written, or a key names it already, or it is garbage.
func (r *reign) sweepBlobs(ctx context.Context, h head) error {
	prefix := r.key("blob/")
	kvs, err := r.read(ctx, get(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	if err != nil {
		return err
	}
	named := map[string]bool{h.snapshot.id: true}
	maps.Copy(named, r.blobs.unnamed())
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
