package store

import (
	"bytes"
	"errors"

	"go.etcd.io/bbolt"
)

// Crash does to a File store what the end of its process would.
func Crash(st Store) {
	s := st.(*fileStore)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	s.mu.db.Close()
	s.lock.Close()
}

// Slow calls wait before each commit of a File store.
func Slow(st Store, wait func()) {
	st.(*fileStore).cfg.Disk = slowDisk{wait: wait}
}

type slowDisk struct {
	realDisk
	wait func()
}

func (d slowDisk) Commit(tx *bbolt.Tx) error {
	d.wait()
	return tx.Commit()
}

// Parts counts parts of values and snapshots in the folder of a File store, open or not.
func Parts(st Store) (n int) {
	s := st.(*fileStore)
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.mu.db.View(func(tx *bbolt.Tx) error {
		count := func([]byte, []byte) error { n++; return nil }
		for _, b := range [][]byte{partsBucket, snapshotBucket} {
			_ = tx.Bucket(b).ForEach(count)
		}
		if staged := tx.Bucket(stagedBucket); staged != nil && staged.Bucket(snapshotBucket) != nil {
			_ = staged.Bucket(snapshotBucket).ForEach(count)
		}
		return nil
	})
	return n
}

// Cut makes a File store cut long things into parts of a size.
func Cut(st Store, partBytes int) { st.(*fileStore).cfg.PartBytes = partBytes }

// FileFormat is the format of the journals that a File store writes.
const FileFormat = fileFormat

// Reformat says in the head of a journal that it is of another format.
func Reformat(name string, format byte) error {
	db, err := bbolt.Open(name, 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, _ := unseal(tx.Bucket(headBucket).Get(headKey))
		b = bytes.Clone(b)
		b[0] = format
		return tx.Bucket(headBucket).Put(headKey, seal(b))
	})
	return errors.Join(err, db.Close())
}
