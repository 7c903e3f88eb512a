package etcd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// A batch in the journal is its bytes, or names a blob. The first byte tells.
const (
	inline = 'i'
	aBlob  = 'b'
)

// A reader reads a journal: as its leader, or as it was at some revision.
type reader struct {
	*service
	// read performs all reads at one moment.
	read func(ctx context.Context, gets ...getting) ([][]*mvccpb.KeyValue, error)
}

// A getting is one of several reads.
type getting struct {
	key     string
	options []clientv3.OpOption
}

func get(key string, options ...clientv3.OpOption) getting { return getting{key, options} }

// Read opens a journal without campaigning for it: to export it, or to see what happened. It shows the
// journal as it is now. If its leader replaces it by a snapshot meanwhile, and etcd has dropped what was
// before, there is an error, and another try finds the new one.
func Read(ctx context.Context, cfg Config) (*store.History, error) {
	st, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := st.(*service)
	_, revision, err := s.current(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	r := reader{service: s, read: func(ctx context.Context, gets ...getting) ([][]*mvccpb.KeyValue, error) {
		return s.at(ctx, revision, gets)
	}}
	return &store.History{Journal: r, Closer: s}, nil
}

// at performs reads at a revision.
func (s *service) at(ctx context.Context, revision int64, gets []getting) (kvs [][]*mvccpb.KeyValue, err error) {
	for _, g := range gets {
		err := s.retry(ctx, func(ctx context.Context) error {
			resp, err := s.client.Get(ctx, g.key, append(g.options, clientv3.WithRev(revision))...)
			if err == nil {
				kvs = append(kvs, resp.Kvs)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return kvs, nil
}

// number is how a number is written in keys: so that they are in order.
func number(n uint64) string { return fmt.Sprintf("%016x", n) }

func (s *service) batchKey(n uint64) string { return s.key("journal/" + number(n)) }

// An extent is what there is of a journal.
type extent struct {
	head
	last      uint64        // number of the last batch
	formatted bool          // a candidate has led before
	store     serry.StoreID // 0 before the first reign
}

func (r reader) extent(ctx context.Context) (e extent, err error) {
	journal := r.key("journal/")
	kvs, err := r.read(ctx, get(r.key("format")), get(r.key("snapshot")),
		get(journal, append(clientv3.WithLastKey(), clientv3.WithKeysOnly())...), get(r.key("store")))
	if err != nil {
		return e, err
	}
	if e.formatted = len(kvs[0]) > 0; e.formatted {
		if err := checkFormat(string(kvs[0][0].Value)); err != nil {
			return e, err
		}
	}
	if e.head, err = readHead(kvs[1]); err != nil {
		return e, err
	}
	if e.store, err = readID(kvs[3]); err != nil {
		return e, err
	}
	e.last = e.base
	for _, kv := range kvs[2] {
		n, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), journal), 16, 64)
		if err != nil {
			return e, fmt.Errorf("store: %w: key %q in etcd", store.ErrDamaged, kv.Key)
		}
		e.last = max(e.last, n)
	}
	return e, nil
}

// readID reads the number of the store, 0 if it has none yet.
func readID(kvs []*mvccpb.KeyValue) (serry.StoreID, error) {
	if len(kvs) == 0 {
		return 0, nil
	}
	id, err := strconv.ParseUint(string(kvs[0].Value), 16, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("store: %w: the number of the store in etcd is %q", store.ErrDamaged, kvs[0].Value)
	}
	return serry.StoreID(id), nil
}

// checkFormat refuses a journal of another format.
func checkFormat(text string) error {
	if text == format {
		return nil
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("store: %w: journal format %q in etcd", store.ErrDamaged, text)
	}
	return fmt.Errorf("store: %w", &coord.VersionError{What: "journal in etcd", Version: version, Oldest: formatNumber, Newest: formatNumber})
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

// Load reads page by page. No other process can write meanwhile, unless the reign is over; then what is
// missing shows it.
func (r reader) Load(ctx context.Context) ([]byte, iter.Seq2[[]byte, error], error) {
	e, err := r.extent(ctx)
	if err != nil {
		return nil, nil, err
	}
	var snapshot []byte
	if e.snapshot != nil {
		if snapshot, err = r.readBlob(ctx, *e.snapshot); err != nil {
			return nil, nil, err
		}
	}
	return snapshot, func(yield func([]byte, error) bool) {
		limit := int64(64)
		for next := e.base + 1; next <= e.last; {
			page, err := r.page(ctx, next, e.last, limit)
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
func (r reader) page(ctx context.Context, next, last uint64, limit int64) (batches [][]byte, err error) {
	kvs, err := r.read(ctx, get(r.batchKey(next), clientv3.WithRange(r.batchKey(last+1)), clientv3.WithLimit(limit)))
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
func (r reader) batch(ctx context.Context, entry []byte) ([]byte, error) {
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

func (r reader) valueKey(ref coord.Ref) string { return r.key("value/" + refName(ref)) }

// Get reads a value and compares its digest.
func (r reader) Get(ctx context.Context, ref coord.Ref) ([]byte, error) {
	kvs, err := r.read(ctx, get(r.valueKey(ref)))
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
func (r reader) Values(ctx context.Context) iter.Seq2[coord.Ref, error] {
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

func (r reader) values(ctx context.Context) (values []named, err error) {
	prefix := r.key("value/")
	kvs, err := r.read(ctx, get(prefix, clientv3.WithPrefix()))
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
