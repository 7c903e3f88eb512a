package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
)

const (
	journalName = "journal.db" // in the folder of a File store
	lockName    = "lock"       // held by the process that has the store open
)

// A fileStore is a journal in a bbolt database. The election is held in memory, because one process
// alone can have the folder.
type fileStore struct {
	cfg      FileConfig // set in OpenFile, then constant
	lock     *os.File
	election election

	full atomic.Pointer[FullError] // why the disk takes no writes, or nil

	mu struct {
		sync.Mutex // held for every write
		db         *bbolt.DB
		head       head
		failed     error // of a write, or nil: nothing more is written
		doubt      bool  // there was no room for the last write: the file must be read anew
		unsynced   bool  // with doubt: a sync has failed
		closed     bool
	}
}

// File opens the store in a folder, which it makes if there is none. The folder belongs to one process
// at a time; the error names the one that has it. Files are checked before they are used, and damage
// that a crash does not explain is [ErrDamaged].
//
// What a snapshot makes free is used again, but the file does not get smaller. A copy of the folder,
// made while no process has it, is a backup.
func File(dir string) (Store, error) { return OpenFile(FileConfig{Dir: dir}) }

// A FileConfig says where a File store is, and on what.
type FileConfig struct {
	// Dir is the folder.
	Dir string
	// PartBytes is the size of the parts that long things are written in, 8 MiB by default.
	PartBytes int
	// RoomPause is how long a write waits that found no room, before it is tried again: 250 ms by default,
	// and more after each try.
	RoomPause time.Duration
	// Log, or nil, is told when the disk is full, and when it has room again.
	Log *slog.Logger
	// Disk, or nil, is for tests of what a disk can do.
	Disk Disk
	// Planted is none, but in tests of tests.
	Planted plant.Faults
}

// OpenFile is [File] with settings.
func OpenFile(cfg FileConfig) (Store, error) {
	cfg.PartBytes = cmp.Or(max(cfg.PartBytes, 0), partBytes)
	cfg.RoomPause = cmp.Or(max(cfg.RoomPause, 0), roomPause)
	if cfg.Disk == nil {
		cfg.Disk = realDisk{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	lock, err := lockFolder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &fileStore{cfg: cfg, lock: lock}
	if err := s.begin(); err != nil {
		lock.Close()
		return nil, s.explain(err)
	}
	s.election.begin(s.mu.head.term)
	return s, nil
}

// begin opens the database. A new one gets its name only when it is complete.
func (s *fileStore) begin() error {
	name := filepath.Join(s.cfg.Dir, journalName)
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		if err := create(name, s.cfg.Disk); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return s.open(name, false)
}

// open opens a database that is there. failed says that a sync of it is known to have failed.
func (s *fileStore) open(name string, failed bool) error {
	if err := s.settle(name, failed); err != nil {
		return err
	}
	db, h, err := openDatabase(name, false, s.cfg.Planted)
	if err != nil {
		return err
	}
	if err := s.cfg.Disk.Attach(db); err != nil {
		return errors.Join(err, db.Close())
	}
	if h.format < fileFormat {
		if h, err = s.upgrade(db, h); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	s.mu.db, s.mu.head = db, h
	return nil
}

// create makes an empty journal.
func create(name string, disk Disk) error {
	draft := name + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(draft, 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		return fmt.Errorf("new journal: %w", err)
	}
	if err := errors.Join(fillEmpty(db, disk), db.Close()); err != nil {
		return fmt.Errorf("new journal: %w", err)
	}
	if err := os.Rename(draft, name); err != nil {
		return fmt.Errorf("new journal: %w", err)
	}
	return syncFolder(filepath.Dir(name))
}

// fillEmpty writes what a journal without a history holds.
func fillEmpty(db *bbolt.DB, disk Disk) error {
	if err := disk.Attach(db); err != nil {
		return err
	}
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	for _, b := range buckets {
		if _, err := tx.CreateBucket(b); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	if err := (head{format: fileFormat}).write(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return disk.Commit(tx)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openDatabase opens a journal that is known to exist, after a look at all its pages: bbolt believes
// what it finds in them.
func openDatabase(name string, readOnly bool, planted plant.Faults) (*bbolt.DB, head, error) {
	if err := checkPages(name, planted); err != nil {
		return nil, head{}, err
	}
	wait := time.Second // for a reader to finish
	if readOnly {
		wait = 50 * time.Millisecond // the writer does not finish soon
	}
	db, err := bbolt.Open(name, 0o600, &bbolt.Options{
		Timeout:  wait,
		ReadOnly: readOnly,
		// The list of free pages can be larger than a batch. It is found again when the file is opened.
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: 256 << 20,
		NoStatistics:    true,
	})
	if errors.Is(err, bbolt.ErrTimeout) {
		return nil, head{}, fmt.Errorf("%w by another process", ErrInUse)
	}
	if err != nil {
		return nil, head{}, err
	}
	var h head
	err = db.View(func(tx *bbolt.Tx) (err error) {
		h, err = readHead(tx)
		return err
	})
	if err != nil {
		return nil, head{}, errors.Join(err, db.Close())
	}
	return db, h, nil
}

// lockFolder makes sure that no other process has the folder, and leaves a note for processes that come
// later.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		defer f.Close()
		return nil, fmt.Errorf("store: %s: %w by %s", dir, ErrInUse, holder(f))
	case err != nil:
		return nil, errors.Join(fmt.Errorf("store: lock %s: %w", dir, err), f.Close())
	}
	host, _ := os.Hostname()
	note := fmt.Sprintf("process %d on %s since %s\n", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	_ = f.Truncate(0) // the note is for people; the lock is what counts
	_, _ = f.WriteAt([]byte(note), 0)
	return f, nil
}

// holder reads the note of the process that has a folder.
func holder(f *os.File) string {
	note := make([]byte, 200)
	n, _ := f.ReadAt(note, 0)
	text, _, _ := strings.Cut(string(note[:n]), "\n")
	if text == "" {
		return "another process"
	}
	return text
}

// Campaign waits until the reign before has ended, if there is one.
func (s *fileStore) Campaign(ctx context.Context, who Candidate) (Reign, error) {
	r := &fileReign{store: s, over: make(chan struct{})}
	if err := s.election.campaign(ctx, who, r); err != nil {
		return nil, err
	}
	if err := s.install(r); err != nil {
		return nil, errors.Join(err, r.Resign(ctx))
	}
	return r, nil
}

// install notes a reign. It does not wait for room: a server that cannot begin says why.
func (s *fileStore) install(r *fileReign) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	h := s.mu.head
	h.term = r.Term()
	h.store = cmp.Or(h.store, serry.NewStoreID())
	return s.update(r, h, func(tx *bbolt.Tx) error { return writeID(tx, h.store) })
}

func (s *fileStore) head() head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.head
}

// Leader returns the leader in this process.
func (s *fileStore) Leader(ctx context.Context) (Leader, error) { return s.election.leads(ctx) }

// Candidates says how many wait in this process: one at most, because a store campaigns for one reign at a time.
func (s *fileStore) Candidates(ctx context.Context) (int, error) { return s.election.waiting(ctx) }

// Watch sends the leader in this process.
func (s *fileStore) Watch(ctx context.Context) <-chan Leader { return s.election.watch(ctx) }

// Depose is not for files: the lock ends with the process that holds it.
func (s *fileStore) Depose(context.Context, Leader) error {
	return fmt.Errorf("store: a file store has one process, whose end frees it: %w", errors.ErrUnsupported)
}

// Close ends the reign, waits for a write that is under way, and frees the folder.
func (s *fileStore) Close() error {
	s.election.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil
	}
	s.mu.closed = true
	return errors.Join(s.mu.db.Close(), s.lock.Close())
}
