package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// What a process reads from a file that another process has left may not be on the disk yet: it may be only in the
// memory of the operating system. Two things follow.
//
// A process may have been killed between the last write of a commit and the sync after it. The next process
// finds that commit, and writes to the pages that the commit made free. If the power fails then, the disk may have
// the new bytes of these pages and the commit before, which needs the old bytes. So the file is synced before it is
// used.
//
// After a sync has failed, operating systems forget what they could not write: the pages in their memory
// count as written, and the next sync says that all is well. So a process whose write has failed leaves a
// note, and the next one writes everything again before it syncs. After a crash of the machine the note
// may be missing, but so is the memory that could not be trusted.

// noteName is the file in the folder of a store that says that a write has failed.
const noteName = "write-failed"

// distrust writes that note, if it can.
func (s *fileStore) distrust() { _ = s.cfg.Disk.Touch(filepath.Join(s.cfg.Dir, noteName)) }

// settle makes sure that what can be read of a journal is on the disk.
// failed says that a write of this process could not be synced.
func (s *fileStore) settle(name string, failed bool) error {
	note := filepath.Join(s.cfg.Dir, noteName)
	_, err := os.Stat(note)
	noted := err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := s.cfg.Disk.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if noted || failed {
		err = rewrite(f)
	} else {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("settle what was written before: %w", err)
	}
	if noted {
		return os.Remove(note)
	}
	return nil
}

// rewriteBytes is how much is written again at a time.
const rewriteBytes = 1 << 20

// rewrite writes all pages again. The order is that of a commit: the two pages that say what counts come
// last, so that a crash leaves one journal or the other.
func rewrite(f DiskFile) error {
	state, err := (&pageChecker{f: f}).state()
	if err != nil {
		return err
	}
	metas, end := 2*state.pageSize, int64(state.end)*state.pageSize
	if err := errors.Join(again(f, metas, end), f.Sync()); err != nil {
		return err
	}
	return errors.Join(again(f, 0, metas), f.Sync())
}

// again reads the bytes between two offsets of a file, and writes them to the same place.
func again(f DiskFile, from, to int64) error {
	b := make([]byte, rewriteBytes)
	for off := from; off < to; {
		n, err := f.ReadAt(b[:min(rewriteBytes, to-off)], off)
		if n == 0 {
			if err == io.EOF { // shorter than it should be, which is found later
				return nil
			}
			return err
		}
		if _, err := f.WriteAt(b[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// upgrade rewrites a journal of format 1 in the present format, in which the checksum of each batch, and of each
// part of the snapshot, continues the checksum of the one before it.
func (s *fileStore) upgrade(db *bbolt.DB, h head) (head, error) {
	tx, err := db.Begin(true)
	if err != nil {
		return h, err
	}
	up := h
	up.format = fileFormat
	covered := func(k []byte) bool { return bytes.Compare(k, number(h.base)) <= 0 }
	if up.lastSum, err = chainUp(tx.Bucket(journalBucket), covered); err == nil {
		up.snapshotSum, err = chainUp(tx.Bucket(snapshotBucket), func([]byte) bool { return false })
	}
	if err == nil {
		up.valuesSum, err = sumValues(tx)
	}
	if err := errors.Join(err, up.write(tx)); err != nil {
		return h, errors.Join(err, tx.Rollback())
	}
	return up, s.cfg.Disk.Commit(tx)
}

// chainUp seals the entries of a bucket anew, each with a checksum that continues that of the entry before it, and
// returns the last checksum. It leaves out the entries that are covered by the snapshot.
func chainUp(b *bbolt.Bucket, covered func(k []byte) bool) (sum uint32, err error) {
	type entry struct{ key, sealed []byte }
	var all []entry
	err = b.ForEach(func(k, v []byte) error {
		if covered(k) {
			return nil
		}
		sealed, ok := unseal(v)
		if !ok {
			return fmt.Errorf("%w: entry %x", ErrDamaged, k)
		}
		e := entry{bytes.Clone(k), sealAfter(sum, sealed)}
		sum = sumOf(e.sealed)
		all = append(all, e)
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, e := range all {
		if err := b.Put(e.key, e.sealed); err != nil {
			return 0, err
		}
	}
	return sum, nil
}
