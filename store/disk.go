package store

import (
	"io"
	"os"

	"go.etcd.io/bbolt"
)

// A Disk stands between a File store and its file, so that a test can do to the file what disks do: see
// package internal/lab/faultydisk. The store calls it from one goroutine at a time.
type Disk interface {
	// Attach is called with the database after it was opened, before its first transaction.
	Attach(db *bbolt.DB) error

	// Commit makes a write transaction durable and closes it, as [bbolt.Tx.Commit] does.
	Commit(tx *bbolt.Tx) error

	// Open opens the file of the database while bbolt does not have it open.
	Open(name string) (DiskFile, error)

	// Touch makes an empty file. It need not outlive a crash of the machine.
	Touch(name string) error
}

// A DiskFile is what a Disk opens: an [os.File].
type DiskFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Sync() error
}

// realDisk is the Disk of a store that is not under test.
type realDisk struct{}

func (realDisk) Attach(*bbolt.DB) error { return nil }

func (realDisk) Commit(tx *bbolt.Tx) error { return tx.Commit() }

func (realDisk) Open(name string) (DiskFile, error) { return os.OpenFile(name, os.O_RDWR, 0) }

func (realDisk) Touch(name string) error { return os.WriteFile(name, nil, 0o600) }
