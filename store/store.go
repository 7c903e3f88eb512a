// Package store keeps the journal of a coordination service: the history that outlives its owner.
//
// A [Store] is a place that several servers can share. Each of them campaigns, and the one that wins
// has a [Reign]: the right to append, until it resigns or is deposed. A reign is fenced. Whatever a
// deposed server still tries, however long it was frozen, reaches neither the journal nor a client:
// its Append and its Confirm return [ErrDeposed].
//
// A journal is one snapshot and the batches appended after it, in order. Batches and snapshots are
// bytes that only package coord understands. Values too large for a batch are stored beside the batches, each under the
// digest of its bytes ([coord.Ref]); those that nothing names are garbage and go with a later
// [Reign.Save].
//
// There are two kinds of store. [File] is a folder on a local disk for one process at a time; what Append has
// acknowledged is there after a crash of the process or of the machine. Package store/etcd shares a journal between
// machines. Tests have two more: internal/lab/shareddisk is several stores on one disk in memory, with elections,
// leases and faults, in virtual time; internal/lab/faultydisk is a File store on a real file whose disk fails.
//
// A store has a number ([Reign.Store]), drawn at its first reign. Terms ascend within one store, so two
// terms can be compared only where the numbers are the same.
//
// [Read] opens what a File store left behind, or a file that [Export] wrote, without a server.
package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A Store holds a journal, as one server of a service sees it. Its methods may be called at the
// same time.
type Store interface {
	// Campaign waits until this server leads. One store campaigns for one reign at a time.
	Campaign(ctx context.Context, who Candidate) (Reign, error)

	// Leader returns the present leader, or [ErrNoLeader].
	Leader(ctx context.Context) (Leader, error)

	// Candidates says how many wait for the leadership, this server not counted while it leads.
	Candidates(ctx context.Context) (int, error)

	// Watch sends the leader, and again after every change; the zero Leader while there is none. A reader
	// that is slow misses changes, but never the last. The channel is closed when ctx ends or the store
	// is closed.
	Watch(ctx context.Context) <-chan Leader

	// Depose ends the leadership of l before its lease does, if it still leads. The caller has made sure
	// that l is dead (C-TERM-3); a leader that is not loses nothing but its office. A store that only one
	// process can open answers [errors.ErrUnsupported].
	Depose(ctx context.Context, l Leader) error

	// Close ends the reign, if there is one, as Resign does, and frees what the store holds.
	Close() error
}

// A Candidate is a server that wants to lead.
type Candidate struct {
	Address string // where streams reach it
}

// A Leader is the candidate that leads, and its term.
type Leader struct {
	Address string // of its candidacy
	Term    uint64 // ascends with every leadership; 0 where there is no leader
}

// A Peer is one of the servers that share a store of their own (package store/member).
type Peer struct {
	Name    string // empty: it has not been there yet
	Address string // where clients reach it; empty: not known
	Log     string // where the others reach it
}

// A Journal is what there is to read of a history.
type Journal interface {
	// Load reads the newest snapshot, nil at first, and the batches after it, in order. A sequence that
	// yields an error ends with it. Whatever was acknowledged is found, or there is an error.
	Load(ctx context.Context) (snapshot []byte, batches iter.Seq2[[]byte, error], err error)

	// Get reads a value that [Reign.Put] stored; [ErrNoValue] when it is not there.
	Get(ctx context.Context, ref coord.Ref) ([]byte, error)

	// Values lists the values that [Reign.Put] stored, garbage included, in the order of their digests.
	Values(ctx context.Context) iter.Seq2[coord.Ref, error]
}

// A Mark is a place in a journal: the end of a batch.
type Mark uint64

// A Reign is a journal and the exclusive right to write it. One goroutine calls Append and Mark, and
// there is one Save at a time; but for that all methods may be called at once. What is handed in is not
// kept, what is handed out belongs to the caller.
//
// An error of Append is final for the reign: it is not known whether the batch will be found, so
// nothing may be appended after it, and all later calls of Append and Save return that error.
type Reign interface {
	Journal

	// Store is the same for every reign of the store, and of no other. It is drawn at the first reign and
	// lasts as long as the journal.
	Store() serry.StoreID

	// Term is higher than that of every leadership of the same store before.
	Term() uint64

	// Append adds a batch to the journal. When it returns nil the batch will be there after any crash;
	// after an error it may be there or not.
	Append(ctx context.Context, batch []byte) error

	// Confirm returns nil only if this reign still led after Confirm was called: then no other reign has
	// written yet, and what the caller has read from its own state is the truth (C-TERM-2).
	Confirm(ctx context.Context) error

	// Put stores a value of at most [Reign.MaxValue] bytes, before a batch that names it is appended.
	// It may be repeated.
	Put(ctx context.Context, ref coord.Ref, value []byte) error

	// Mark is where the journal ends now.
	Mark() Mark

	// Save replaces the journal up to a mark by a snapshot that covers it. It takes its time: what is
	// appended meanwhile waits for one part of it at most. Values that are not in keep are removed, unless
	// they were Put after the Save before this one began: the batch that names such a value may be yet to
	// come.
	Save(ctx context.Context, at Mark, snapshot []byte, keep []coord.Ref) error

	// MaxValue is the size of the largest value that Put takes (C-LOG-5).
	MaxValue() int64

	// Deposed is closed when the reign is known to be over, by Resign too.
	Deposed() <-chan struct{}

	// Resign gives the leadership back at once, so that the next candidate need not wait for a lease.
	Resign(ctx context.Context) error
}

// Limited is implemented by reigns whose store has a limit on its size, so that a server can refuse calls
// before the store has to.
type Limited interface {
	// Capacity is how many bytes of snapshots, batches and values the server may write before it removes
	// some; 0 where that is not known before the store is full.
	Capacity() int64

	// Full says why the store takes no writes at present, or nil. It does not wait. An Append meanwhile
	// waits until there is room, the reign ends, or its context does.
	Full() *FullError
}

// MaxValue is the largest value of a store that sets no limit of its own: what one message of a client
// can carry (C-LIM-2).
const MaxValue = 1<<31 - 1

// What a store may answer, besides the errors of its disk or its network.
var (
	ErrDeposed  = errors.New("no longer the leader")
	ErrNoLeader = errors.New("nobody leads")
	ErrNoValue  = errors.New("no such value aside")
	ErrClosed   = errors.New("store is closed")
	ErrInUse    = errors.New("in use")
	ErrDamaged  = errors.New("damaged journal")
)

// A FullError says that there is no room for what should be written, and what to do about it. Nothing
// that was acknowledged is lost.
type FullError struct {
	What string // what is full: "disk of DIR", "etcd quota"
	Fix  string // what to do
	Err  error  // what the system said
}

func (e *FullError) Error() string {
	return fmt.Sprintf("store: %s is full: %v; to fix it, %s", e.What, e.Err, e.Fix)
}

func (e *FullError) Unwrap() error { return e.Err }

// A SizeError says that a value is larger than the store takes (C-LOG-5).
type SizeError struct {
	Size, Limit int64 // bytes
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("store: a value of %d bytes is over the limit of %d", e.Size, e.Limit)
}

// checkValue refuses what no store can keep under ref.
func checkValue(ref coord.Ref, value []byte, limit int64) error {
	if ref.Size > limit {
		return &SizeError{Size: ref.Size, Limit: limit}
	}
	if int64(len(value)) != ref.Size {
		return fmt.Errorf("store: value of %d bytes put as one of %d", len(value), ref.Size)
	}
	return nil
}
