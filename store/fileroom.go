package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A disk that is full is no reason to end a service: an operator frees space, and it goes on. Until then every
// write of a reign waits, and the server, which sees that by Full, refuses calls that store something.
//
// A write that found no room may be on the disk all the same, or in part: the page that makes a commit count
// may have been written, or torn. bbolt does not know which. So the file is read anew, as the next process
// would do it, before anything more is written; and then the write is tried again if it is not there.

const (
	roomPause  = 250 * time.Millisecond // before the second try of a write that found no room
	roomPauses = 20                     // the longest pause, in roomPause: each try reads the whole file
)

// Capacity is 0: what a disk has room for is not known before it is full.
func (r *fileReign) Capacity() int64 { return 0 }

// Full says why the disk takes no writes, or nil.
func (r *fileReign) Full() *FullError { return r.store.full.Load() }

// patiently tries a write until there is room for it, or ctx or the reign ends.
func (r *fileReign) patiently(ctx context.Context, try func() error) error {
	first := r.store.cfg.RoomPause
	for pause := first; ; pause = min(2*pause, roomPauses*first) {
		err := try()
		if _, full := errors.AsType[*FullError](err); !full {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-r.Deposed():
			timer.Stop()
			return ErrDeposed
		}
	}
}

// miss notes that a write has failed, and returns the error that says what to do. For want of room the write
// may be tried again; every other error is final. mu is held.
func (s *fileStore) miss(err error) error {
	unsynced := !isWrite(err)
	if unsynced {
		s.distrust()
	}
	err = s.explain(err)
	full, ok := errors.AsType[*FullError](err)
	if !ok {
		s.mu.failed = err
		return err
	}
	s.mu.doubt, s.mu.unsynced = true, s.mu.unsynced || unsynced
	if s.full.Swap(full) == nil {
		s.cfg.Log.Warn("the disk is full: calls that store something are refused, and changes wait", "err", full)
	}
	return err
}

// isWrite says whether an error is of a write to the file, and not of a sync. What a sync has failed to write
// is lost, although the system believes it written; see filemend.go.
func isWrite(err error) bool {
	e, ok := errors.AsType[*os.PathError](err)
	return ok && strings.HasSuffix(e.Op, "write")
}

// found notes that there is room.
func (s *fileStore) found() {
	if s.full.Load() != nil && s.full.Swap(nil) != nil {
		s.cfg.Log.Info("the disk has room again")
	}
}

// usable says why the store cannot be written or read, or nil. mu is held.
func (s *fileStore) usable() error {
	switch {
	case s.mu.closed:
		return ErrClosed
	case s.mu.failed != nil:
		return s.mu.failed
	case s.mu.doubt:
		return s.reopen()
	}
	return nil
}

// reopen reads the file anew, after a write for which there was no room. That there is still none, or that
// another process reads the file just now, is no reason to give up. mu is held.
func (s *fileStore) reopen() error {
	_ = s.mu.db.Close() // what it has in memory is of no use any more
	err := s.open(filepath.Join(s.cfg.Dir, journalName), s.mu.unsynced)
	if err == nil {
		s.mu.doubt, s.mu.unsynced = false, false
		return nil
	}
	if errors.Is(err, ErrInUse) {
		return s.full.Load()
	}
	err = s.explain(err)
	if _, full := errors.AsType[*FullError](err); !full {
		s.mu.failed = err
	}
	return err
}

// explain makes an error of the system one that says what to do.
func (s *fileStore) explain(err error) error {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) || strings.HasSuffix(err.Error(), full.Error()) { // bbolt keeps only the text when it makes a file larger
			return &FullError{
				What: "the disk of " + s.cfg.Dir,
				Fix:  "free space there; a server that runs goes on by itself",
				Err:  err,
			}
		}
	}
	return fmt.Errorf("store: %s: %w", s.cfg.Dir, err)
}
