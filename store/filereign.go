package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/aside"
	"github.com/serry-dev/serry/internal/plant"
)

// A fileReign is a leadership of a File store.
type fileReign struct {
	store  *fileStore
	leader Leader        // set when it is elected, then constant
	over   chan struct{} // closed when it no longer leads
	failed error         // of an Append, or nil; guarded by store.mu
	book   aside.Book
}

func (r *fileReign) Store() serry.StoreID { return r.store.head().store }

func (r *fileReign) Term() uint64 { return r.leader.Term }

func (r *fileReign) Deposed() <-chan struct{} { return r.over }

func (r *fileReign) MaxValue() int64 { return MaxValue }

// Confirm needs no disk: only this process can lead.
func (r *fileReign) Confirm(ctx context.Context) error { return r.store.election.confirm(ctx, r) }

func (r *fileReign) Resign(context.Context) error { return r.store.election.resign(r) }

// update performs one write transaction, which also writes the new head h. After an error of the disk the store
// cannot know what the file holds before it has opened the file anew. If the disk was full the store does that
// itself (fileroom.go). Every other error is final. The caller holds mu and has called usable.
func (s *fileStore) update(r *fileReign, h head, fill func(*bbolt.Tx) error) error {
	if err := r.Confirm(context.Background()); err != nil {
		return err
	}
	if err := s.transact(h, fill); err != nil {
		return s.miss(err)
	}
	s.mu.head = h
	s.found()
	return nil
}

func (s *fileStore) transact(h head, fill func(*bbolt.Tx) error) error {
	tx, err := s.mu.db.Begin(true)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(tx), h.write(tx)); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return s.cfg.Disk.Commit(tx)
}

// Append performs one transaction. Once it has begun it ignores ctx: a write to the disk cannot be cancelled.
func (r *fileReign) Append(ctx context.Context, batch []byte) error {
	var tried head
	err := r.patiently(ctx, func() error { return r.tryAppend(ctx, batch, &tried) })
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.failed = err
	return err
}

// tryAppend appends a batch, if the disk has room for it and an earlier try did not write it. tried is the head
// that the earlier one should have written, if there was one.
func (r *fileReign) tryAppend(ctx context.Context, batch []byte, tried *head) error {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.usable(); err != nil {
		return err
	}
	h := s.mu.head
	if tried.last > 0 && h.last == tried.last && h.lastSum == tried.lastSum {
		return nil
	}
	sealed := sealAfter(h.lastSum, batch)
	h.last++
	h.lastSum = sumOf(sealed)
	*tried = h
	return s.update(r, h, func(tx *bbolt.Tx) error {
		b := tx.Bucket(journalBucket)
		b.FillPercent = 1 // keys only ascend
		return b.Put(number(h.last), sealed)
	})
}

// Mark is the number of the last batch.
func (r *fileReign) Mark() Mark { return Mark(r.store.head().last) }

// Save writes the parts of the snapshot in transactions of their own, so that a batch need not wait for
// all of them. They are stored beside the present snapshot. The last transaction puts them in its place,
// together with the head that names them. If it fails, the present snapshot stays.
func (r *fileReign) Save(ctx context.Context, at Mark, snapshot []byte, keep []coord.Ref) error {
	garbage := r.book.Begin(keep)
	sum := uint32(0)
	if r.store.cfg.Planted.Has(plant.SweepBeforeSwitch) {
		if err := r.save(ctx, func(tx *bbolt.Tx) error {
			_, err := sweep(tx, uint64(at))
			return err
		}); err != nil {
			return err
		}
	}
	for i, part := range parts(snapshot, r.store.cfg.PartBytes) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		sealed := sealAfter(sum, part)
		sum = sumOf(sealed)
		if err := r.save(ctx, func(tx *bbolt.Tx) error { return stage(tx, i, sealed) }); err != nil {
			return err
		}
	}
	next := saved{at: uint64(at), size: uint64(len(snapshot)), sum: sum}
	var swept, tried bool
	err := r.patiently(ctx, func() (err error) {
		swept, err = r.switchTo(next, tried, garbage)
		tried = true
		return err
	})
	for err == nil && !swept {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err = r.save(ctx, func(tx *bbolt.Tx) (err error) {
			swept, err = sweep(tx, uint64(at))
			return err
		})
	}
	return err
}

// stage writes one part of the next snapshot. The first part empties the bucket, because a Save that failed may
// have left parts there.
func stage(tx *bbolt.Tx, i int, sealed []byte) error {
	if i == 0 {
		if err := renew(tx, stagedBucket); err != nil {
			return err
		}
	}
	b, err := tx.Bucket(stagedBucket).CreateBucketIfNotExists(snapshotBucket)
	if err != nil {
		return err
	}
	return b.Put(number(uint64(i)), sealed)
}

// save performs one transaction of a Save, and is refused after an Append that failed. fill may run twice.
func (r *fileReign) save(ctx context.Context, fill func(*bbolt.Tx) error) error {
	return r.patiently(ctx, func() error {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if r.failed != nil {
			return r.failed
		}
		if err := r.store.usable(); err != nil {
			return err
		}
		return r.store.update(r, r.store.mu.head, fill)
	})
}

// saved describes a snapshot as a head does.
type saved struct {
	at, size uint64
	sum      uint32
}

// is says whether a head names this snapshot.
func (n saved) is(h head) bool {
	return h.saved && h.base == n.at && h.snapshotBytes == n.size && h.snapshotSum == n.sum
}

// switchTo makes the staged snapshot the current one, in place of the old snapshot and of the batches up to
// next.at. If the journal has no later batches, it removes them in the same transaction, which costs nothing.
// tried says that an earlier attempt has failed; that attempt may have taken effect.
func (r *fileReign) switchTo(next saved, tried bool, garbage func(coord.Ref) bool) (swept bool, err error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.failed != nil {
		return false, r.failed
	}
	if err := r.store.usable(); err != nil {
		return false, err
	}
	h := r.store.mu.head
	if tried && next.is(h) {
		return false, nil
	}
	if h.baseSum, err = r.store.sumAt(next.at); err != nil {
		return false, err
	}
	doomed, err := r.store.collect(garbage)
	if err != nil {
		return false, err
	}
	h.base, h.saved, h.snapshotBytes, h.snapshotSum = next.at, true, next.size, next.sum
	h.valuesSum ^= doomed.sum
	swept = h.base == h.last
	return swept, r.store.update(r, h, func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(snapshotBucket); err != nil {
			return err
		}
		if err := tx.MoveBucket(snapshotBucket, tx.Bucket(stagedBucket), nil); err != nil {
			return err
		}
		if swept {
			if err := renew(tx, journalBucket); err != nil {
				return err
			}
		}
		return doomed.remove(tx)
	})
}

// sumAt returns the checksum of batch n, which lies between base and last. mu is held.
func (s *fileStore) sumAt(n uint64) (sum uint32, err error) {
	switch h := s.mu.head; n {
	case h.last:
		return h.lastSum, nil
	case h.base:
		return h.baseSum, nil
	}
	err = s.mu.db.View(func(tx *bbolt.Tx) error {
		sealed := tx.Bucket(journalBucket).Get(number(n))
		if len(sealed) < 4 {
			return fmt.Errorf("store: %s: %w: no batch %d to take a snapshot at", s.cfg.Dir, ErrDamaged, n)
		}
		sum = sumOf(sealed)
		return nil
	})
	return sum, err
}

// renew makes a bucket empty.
func renew(tx *bbolt.Tx, name []byte) error {
	if err := tx.DeleteBucket(name); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
		return err
	}
	_, err := tx.CreateBucket(name)
	return err
}

// sweptAtOnce is about how much of the journal one transaction removes.
const sweptAtOnce = 4 << 20

// sweep removes batches that the snapshot covers, and says whether there are none left.
func sweep(tx *bbolt.Tx, base uint64) (all bool, err error) {
	b := tx.Bucket(journalBucket)
	var doomed [][]byte
	size := 0
	c := b.Cursor()
	k, v := c.First()
	for ; k != nil && bytes.Compare(k, number(base)) <= 0 && size < sweptAtOnce; k, v = c.Next() {
		doomed = append(doomed, bytes.Clone(k))
		size += len(v)
	}
	for _, k := range doomed {
		if err := b.Delete(k); err != nil {
			return false, err
		}
	}
	return size < sweptAtOnce, nil
}

// A collection lists what a new snapshot makes garbage.
type collection struct {
	parts [][]byte // their keys
	sum   uint64   // of the values that were complete
}

// collect finds the values that no batch names, and the parts of values that were never completed. mu is held.
func (s *fileStore) collect(garbage func(coord.Ref) bool) (c collection, err error) {
	err = s.mu.db.View(func(tx *bbolt.Tx) error {
		last := coord.Ref{Size: -1}
		return tx.Bucket(partsBucket).ForEach(func(k, _ []byte) error {
			ref, ok := readRef(k)
			if !ok || !garbage(ref) {
				return nil
			}
			c.parts = append(c.parts, bytes.Clone(k))
			if ref != last && tx.Bucket(valuesBucket).Get(refKey(ref)) != nil {
				c.sum ^= refSum(ref)
			}
			last = ref
			return nil
		})
	})
	return c, err
}

// remove deletes the parts, and the values that they belong to.
func (c collection) remove(tx *bbolt.Tx) error {
	for _, k := range c.parts {
		if err := errors.Join(tx.Bucket(partsBucket).Delete(k), tx.Bucket(valuesBucket).Delete(k[:refBytes])); err != nil {
			return err
		}
	}
	return nil
}

// Put writes the parts of a value in transactions of their own, so that a batch need not wait for all
// of them; the last makes it a value.
func (r *fileReign) Put(ctx context.Context, ref coord.Ref, value []byte) error {
	if err := checkValue(ref, value, r.MaxValue()); err != nil {
		return err
	}
	r.book.Enter(ref)
	defer r.book.Leave(ref)
	if known, err := r.has(ctx, ref); known || err != nil {
		return err
	}
	for i, part := range parts(value, r.store.cfg.PartBytes) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := r.write(ctx, func(tx *bbolt.Tx) error {
			return tx.Bucket(partsBucket).Put(partKey(ref, i), seal(part))
		}); err != nil {
			return err
		}
	}
	return r.patiently(ctx, func() error { return r.complete(ref) })
}

// complete marks a value as complete, unless another Put of the same value has done so.
func (r *fileReign) complete(ref coord.Ref) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if known, err := r.hasLocked(ref); known || err != nil {
		return err
	}
	h := r.store.mu.head
	h.valuesSum ^= refSum(ref)
	return r.store.update(r, h, func(tx *bbolt.Tx) error { return tx.Bucket(valuesBucket).Put(refKey(ref), nil) })
}

// write performs a transaction that does not change the head. fill may run twice.
func (r *fileReign) write(ctx context.Context, fill func(*bbolt.Tx) error) error {
	return r.patiently(ctx, func() error {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if err := r.store.usable(); err != nil {
			return err
		}
		return r.store.update(r, r.store.mu.head, fill)
	})
}

// has tells whether a value is complete. It asks the fence as well, because a reign that finds the value there
// writes nothing; and it waits for a Save that may be about to remove it.
func (r *fileReign) has(ctx context.Context, ref coord.Ref) (known bool, err error) {
	err = r.patiently(ctx, func() (err error) {
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		known, err = r.hasLocked(ref)
		return err
	})
	return known, err
}

func (r *fileReign) hasLocked(ref coord.Ref) (known bool, err error) {
	if err := r.store.usable(); err != nil {
		return false, err
	}
	if err := r.Confirm(context.Background()); err != nil {
		return false, err
	}
	err = r.store.mu.db.View(func(tx *bbolt.Tx) error {
		known = tx.Bucket(valuesBucket).Get(refKey(ref)) != nil
		return nil
	})
	return known, err
}

// database is the database, unless the store is closed.
func (r *fileReign) database() (*bbolt.DB, error) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.store.mu.failed != nil && !r.store.mu.closed {
		return r.store.mu.db, nil // what was written before can still be read
	}
	err := r.store.usable() // which may open another
	return r.store.mu.db, err
}

func (r *fileReign) journal() (fileJournal, error) {
	db, err := r.database()
	return fileJournal{db: db, name: r.store.cfg.Dir, head: r.store.head()}, err
}

func (r *fileReign) Load(ctx context.Context) ([]byte, iter.Seq2[[]byte, error], error) {
	j, err := r.journal()
	if err != nil {
		return nil, nil, err
	}
	return j.Load(ctx)
}

func (r *fileReign) Get(ctx context.Context, ref coord.Ref) ([]byte, error) {
	j, err := r.journal()
	if err != nil {
		return nil, err
	}
	return j.Get(ctx, ref)
}

func (r *fileReign) Values(ctx context.Context) iter.Seq2[coord.Ref, error] {
	j, err := r.journal()
	if err != nil {
		return func(yield func(coord.Ref, error) bool) { yield(coord.Ref{}, err) }
	}
	return j.Values(ctx)
}

// A fileJournal reads a database, at the state that head describes. Its transactions are short: a long
// one would keep the file from growing.
type fileJournal struct {
	db   *bbolt.DB
	name string
	head head
}

func (j fileJournal) Load(ctx context.Context) ([]byte, iter.Seq2[[]byte, error], error) {
	snapshot, err := j.snapshot()
	if err != nil {
		return nil, nil, err
	}
	return snapshot, func(yield func([]byte, error) bool) {
		sum := j.head.baseSum
		for next := j.head.base + 1; next <= j.head.last; {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			page, err := j.page(next, &sum)
			for _, batch := range page {
				if !yield(batch, nil) {
					return
				}
				next++
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}, nil
}

func (j fileJournal) damaged(what string, args ...any) error {
	return fmt.Errorf("store: %s: %w: %s", j.name, ErrDamaged, fmt.Sprintf(what, args...))
}

func (j fileJournal) snapshot() (snapshot []byte, err error) {
	if !j.head.saved {
		return nil, nil
	}
	snapshot = []byte{}
	sum := uint32(0)
	err = j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(snapshotBucket).ForEach(func(k, v []byte) error {
			part, ok := unsealAfter(j.head.chain(sum), v)
			if !ok {
				return j.damaged("snapshot, part %x", k)
			}
			snapshot, sum = append(snapshot, part...), sumOf(v)
			return nil
		})
	})
	switch {
	case err != nil:
	case uint64(len(snapshot)) != j.head.snapshotBytes:
		err = j.damaged("a snapshot of %d bytes, of which %d are there", j.head.snapshotBytes, len(snapshot))
	case j.head.format > 1 && sum != j.head.snapshotSum:
		err = j.damaged("the snapshot is an older one")
	}
	return snapshot, err
}

// pageBytes is about how much of the journal is read in one transaction.
const pageBytes = 4 << 20

// page reads batches, beginning with number next; *sum is the checksum of the batch before it. If a batch is not as
// it was written, page returns the batches before it and an error.
func (j fileJournal) page(next uint64, sum *uint32) (batches [][]byte, err error) {
	err = j.db.View(func(tx *bbolt.Tx) error {
		size := 0
		c := tx.Bucket(journalBucket).Cursor()
		for k, v := c.Seek(number(next)); next <= j.head.last && size < pageBytes; k, v = c.Next() {
			if !bytes.Equal(k, number(next)) {
				return j.damaged("batch %d of %d is missing", next, j.head.last)
			}
			batch, ok := unsealAfter(j.head.chain(*sum), v)
			if !ok {
				return j.damaged("batch %d of %d", next, j.head.last)
			}
			*sum = sumOf(v)
			if next == j.head.last && j.head.format > 1 && *sum != j.head.lastSum {
				return j.damaged("batch %d, the last, is an older one", next)
			}
			batches = append(batches, append([]byte{}, batch...))
			size += len(batch)
			next++
		}
		return nil
	})
	return batches, err
}

func (j fileJournal) Get(ctx context.Context, ref coord.Ref) ([]byte, error) {
	if ref.Size < 0 || ref.Size > MaxValue {
		return nil, ErrNoValue
	}
	var value []byte
	for i := 0; int64(len(value)) < ref.Size || i == 0; i++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := j.db.View(func(tx *bbolt.Tx) error {
			if tx.Bucket(valuesBucket).Get(refKey(ref)) == nil {
				return ErrNoValue
			}
			part, ok := unseal(tx.Bucket(partsBucket).Get(partKey(ref, i)))
			if !ok || len(part) == 0 && ref.Size > 0 {
				return j.damaged("value %x, part %d", ref.Digest, i)
			}
			if value == nil {
				value = make([]byte, 0, ref.Size)
			}
			value = append(value, part...)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if sha256.Sum256(value) != ref.Digest {
		return nil, j.damaged("value %x", ref.Digest)
	}
	return value, nil
}

func (j fileJournal) Values(context.Context) iter.Seq2[coord.Ref, error] {
	var refs []coord.Ref
	err := j.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(valuesBucket).ForEach(func(k, _ []byte) error {
			ref, ok := readRef(k)
			if !ok {
				return j.damaged("a value without a digest")
			}
			refs = append(refs, ref)
			return nil
		})
	})
	if err != nil {
		return func(yield func(coord.Ref, error) bool) { yield(coord.Ref{}, err) }
	}
	return each(refs)
}
