package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// A batch in the journal is its bytes, or names a blob. The first byte tells.
const (
	inline = 'i'
	aBlob  = 'b'
)

// number is how a number is written in keys: so that they are in order.
func number(n uint64) string { return fmt.Sprintf("%016x", n) }

func (r *reign) batchKey(n uint64) string { return r.key("journal/" + number(n)) }

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
	_, err := r.read(ctx, clientv3.OpGet(r.slot, clientv3.WithCountOnly()))
	return err
}

// read performs reads if this reign leads.
func (r *reign) read(ctx context.Context, ops ...clientv3.Op) (kvs [][]*mvccpb.KeyValue, err error) {
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

// begin finds out where the journal ends.
func (r *reign) begin(ctx context.Context) error {
	journal := r.key("journal/")
	kvs, err := r.read(ctx, clientv3.OpGet(r.key("format")), clientv3.OpGet(r.key("snapshot")),
		clientv3.OpGet(journal, append(clientv3.WithLastKey(), clientv3.WithKeysOnly())...))
	if err != nil {
		return err
	}
	if len(kvs[0]) == 0 {
		_, err = r.write(ctx, nil, clientv3.OpPut(r.key("format"), format))
	} else if got := string(kvs[0][0].Value); got != format {
		err = fmt.Errorf("store: journal format %q in etcd is not known to this version of serry, which reads %q", got, format)
	}
	if err != nil {
		return err
	}
	head, err := readHead(kvs[1])
	if err != nil {
		return err
	}
	r.next = head.base + 1
	for _, kv := range kvs[2] {
		n, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), journal), 16, 64)
		if err != nil {
			return fmt.Errorf("store: %w: key %q in etcd", store.ErrDamaged, kv.Key)
		}
		r.next = max(r.next, n+1)
	}
	return nil
}

// Append puts a batch under the next number.
func (r *reign) Append(ctx context.Context, batch []byte) error {
	if r.failed == nil {
		r.failed = r.append(ctx, batch)
	}
	return r.failed
}

func (r *reign) append(ctx context.Context, batch []byte) error {
	entry := append([]byte{inline}, batch...)
	if len(batch) > r.cfg.PartBytes {
		b, done, err := r.writeBlob(ctx, batch)
		defer done()
		if err != nil {
			return err
		}
		entry = append([]byte{aBlob}, b.String()...)
	}
	key := r.batchKey(r.next)
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	ok, err := r.write(ctx, []clientv3.Cmp{absent}, clientv3.OpPut(key, string(entry)))
	if err != nil {
		return err
	}
	if !ok { // nobody else writes: it was this batch, and the answer got lost
		kvs, err := r.read(ctx, clientv3.OpGet(key))
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

// A head is what the snapshot key says.
type head struct {
	base     uint64 // number of the last batch it covers
	snapshot *blob  // or nil
}

func (h head) String() string { return fmt.Sprintf("%s %s", number(h.base), h.snapshot) }

func readHead(kvs []*mvccpb.KeyValue) (h head, err error) {
	if len(kvs) == 0 {
		return h, nil
	}
	base, rest, _ := strings.Cut(string(kvs[0].Value), " ")
	h.base, err = strconv.ParseUint(base, 16, 64)
	b, ok := parseBlob(rest)
	if err != nil || !ok {
		return h, fmt.Errorf("store: %w: snapshot key %q in etcd", store.ErrDamaged, kvs[0].Value)
	}
	h.snapshot = &b
	return h, nil
}

// Save writes the snapshot as a blob, names it, and removes what is not needed any more.
func (r *reign) Save(ctx context.Context, snapshot []byte, keep []coord.Ref) error {
	if r.failed != nil {
		return r.failed
	}
	garbage := r.blobs.book.Begin(keep)
	b, done, err := r.writeBlob(ctx, snapshot)
	defer done()
	if err != nil {
		return err
	}
	h := head{base: r.next - 1, snapshot: &b}
	if _, err := r.write(ctx, nil, clientv3.OpPut(r.key("snapshot"), h.String())); err != nil {
		return err
	}
	return r.sweep(ctx, h, garbage)
}

// Load reads page by page. Nobody else can write meanwhile, unless the reign is over; then what is
// missing shows it.
func (r *reign) Load(ctx context.Context) ([]byte, iter.Seq2[[]byte, error], error) {
	kvs, err := r.read(ctx, clientv3.OpGet(r.key("snapshot")))
	if err != nil {
		return nil, nil, err
	}
	h, err := readHead(kvs[0])
	if err != nil {
		return nil, nil, err
	}
	var snapshot []byte
	if h.snapshot != nil {
		if snapshot, err = r.readBlob(ctx, *h.snapshot); err != nil {
			return nil, nil, err
		}
	}
	last := r.next - 1
	return snapshot, func(yield func([]byte, error) bool) {
		limit := int64(64)
		for next := h.base + 1; next <= last; {
			page, err := r.page(ctx, next, last, limit)
			size := 0
			for _, batch := range page {
				if !yield(batch, nil) {
					return
				}
				size += len(batch)
				next++
			}
			if err != nil {
				yield(nil, err)
				return
			}
			switch { // many small batches a request, few large ones
			case size < 1<<20:
				limit = min(2*limit, 4096)
			case size > 8<<20:
				limit = max(limit/2, 1)
			}
		}
	}, nil
}

// page reads up to limit batches; with an error, those before it.
func (r *reign) page(ctx context.Context, next, last uint64, limit int64) (batches [][]byte, err error) {
	kvs, err := r.read(ctx, clientv3.OpGet(r.batchKey(next), clientv3.WithRange(r.batchKey(last+1)), clientv3.WithLimit(limit)))
	if err != nil {
		return nil, err
	}
	if len(kvs[0]) == 0 {
		return nil, fmt.Errorf("store: %w: batch %d of %d in etcd is missing", store.ErrDamaged, next, last)
	}
	for _, kv := range kvs[0] {
		if string(kv.Key) != r.batchKey(next) {
			return batches, fmt.Errorf("store: %w: batch %d of %d in etcd is missing", store.ErrDamaged, next, last)
		}
		batch, err := r.batch(ctx, kv.Value)
		if err != nil {
			return batches, err
		}
		batches = append(batches, batch)
		next++
	}
	return batches, nil
}

// batch is what an entry of the journal stands for.
func (r *reign) batch(ctx context.Context, entry []byte) ([]byte, error) {
	if len(entry) > 0 && entry[0] == inline {
		return entry[1:], nil
	}
	if len(entry) > 0 && entry[0] == aBlob {
		if b, ok := parseBlob(string(entry[1:])); ok {
			return r.readBlob(ctx, b)
		}
	}
	return nil, fmt.Errorf("store: %w: in etcd, an entry of no known kind", store.ErrDamaged)
}

// refName is how a ref is written in keys.
func refName(ref coord.Ref) string {
	return hex.EncodeToString(ref.Digest[:]) + "-" + strconv.FormatInt(ref.Size, 10)
}

func parseRef(name string) (ref coord.Ref, ok bool) {
	digest, size, _ := strings.Cut(name, "-")
	b, err := hex.DecodeString(digest)
	if err != nil || len(b) != len(ref.Digest) {
		return ref, false
	}
	ref.Digest = [32]byte(b)
	ref.Size, err = strconv.ParseInt(size, 10, 64)
	return ref, err == nil
}

func (r *reign) valueKey(ref coord.Ref) string { return r.key("value/" + refName(ref)) }

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
	b, done, err := r.writeBlob(ctx, value)
	defer done()
	if err != nil {
		return err
	}
	absent := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	_, err = r.write(ctx, []clientv3.Cmp{absent}, clientv3.OpPut(key, b.String())) // or somebody else was faster
	return err
}

// Get reads a value and compares its digest.
func (r *reign) Get(ctx context.Context, ref coord.Ref) ([]byte, error) {
	kvs, err := r.read(ctx, clientv3.OpGet(r.valueKey(ref)))
	if err != nil {
		return nil, err
	}
	if len(kvs[0]) == 0 {
		return nil, store.ErrNoValue
	}
	b, ok := parseBlob(string(kvs[0][0].Value))
	if !ok {
		return nil, fmt.Errorf("store: %w: value %x in etcd", store.ErrDamaged, ref.Digest)
	}
	value, err := r.readBlob(ctx, b)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(value) != ref.Digest {
		return nil, fmt.Errorf("store: %w: value %x in etcd", store.ErrDamaged, ref.Digest)
	}
	return value, nil
}

// Values lists the keys of values.
func (r *reign) Values(ctx context.Context) iter.Seq2[coord.Ref, error] {
	values, err := r.values(ctx)
	return func(yield func(coord.Ref, error) bool) {
		for _, v := range values {
			if !yield(v.ref, nil) {
				return
			}
		}
		if err != nil {
			yield(coord.Ref{}, err)
		}
	}
}

// A named is a value that a key names.
type named struct {
	ref      coord.Ref
	blob     blob
	revision int64 // of the key
}

func (r *reign) values(ctx context.Context) (values []named, err error) {
	prefix := r.key("value/")
	kvs, err := r.read(ctx, clientv3.OpGet(prefix, clientv3.WithPrefix()))
	if err != nil {
		return nil, err
	}
	for _, kv := range kvs[0] {
		ref, ok := parseRef(strings.TrimPrefix(string(kv.Key), prefix))
		b, ok2 := parseBlob(string(kv.Value))
		if !ok || !ok2 {
			return nil, fmt.Errorf("store: %w: value key %q in etcd", store.ErrDamaged, kv.Key)
		}
		values = append(values, named{ref: ref, blob: b, revision: kv.ModRevision})
	}
	return values, nil
}
