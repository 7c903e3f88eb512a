// Package faultydisk is a real folder with a real File store in it, on a disk that fails by plan. It is for
// tests: those of package store, and fleets of servers.
//
// A [Disk] is the folder and what its disk holds. Each [Disk.Open] is a process that opens the store.
// bbolt then writes to the real file, but every write and every sync goes through the Disk, which can
// let it fail, tear it, or end the process in the midst of it. The Disk remembers for each sector what
// the platter holds, as opposed to the memory of the operating system, so that it can cut the power.
//
// A fleet uses it like this, with one Disk for the life of the fleet:
//
//	disk := faultydisk.New(faultydisk.Config{Dir: dir, Seed: seed, Rate: 0.02})
//	st, err := disk.Open()     // what the server gets as its store
//	...                        // a write fails, or returns ErrCrashed: the server ends
//	disk.Kill(st)              // kill -9: what was written is still in the memory of the machine
//	disk.PowerLoss(st)         // or: what was not synced is lost, sector by sector
//	st, err = disk.Open()      // the next process
//
// What must hold after that: all batches whose Append returned nil are there, in their order, and after
// them at most the one whose Append had not returned. A crash, a failed write and a failed sync are no
// excuse. After a sync that has lied ([Disk.Lied]) and a power loss, the store may also say
// [store.ErrDamaged], or hold what it held at an earlier moment since the last honest sync, in the memory
// of the machine; it must never hold anything else. Everything is decided by the seed and the order of the writes, so a
// schedule can be repeated. No time passes and no goroutine is started: a store runs in a
// testing/synctest bubble.
//
// Read disk.go of package store for the other side, then process.go here.
package faultydisk

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/store"
)

// ErrCrashed is what a process gets from its store after it was ended. A real one would get nothing.
var ErrCrashed = errors.New("faulty: the process has crashed")

// A Fault is what happens to one commit, which is: pages are written, the file is synced, the page that
// makes them count is written, the file is synced.
type Fault int

// The faults. After one that returns an error the store writes nothing more, until it is opened anew: by the
// next process, or, after Full, by itself.
const (
	None        Fault = iota
	CrashBefore       // the process ends before it has written anything
	CrashWithin       // in the midst of a write, or between two
	CrashAfter        // after the commit, which its caller does not learn
	WriteFails        // a write stops after some bytes: EIO
	Full              // the same: ENOSPC, and by chance at some of the next commits, too
	SyncFails         // a sync returns EIO, and the operating system forgets some of what was to be synced
	SyncLies          // both syncs return nil and have done nothing
)

func (f Fault) String() string {
	return []string{"none", "crash before", "crash within", "crash after", "write fails", "full", "sync fails", "sync lies"}[f]
}

// A Config is a folder, and a plan of what goes wrong in it.
type Config struct {
	// Dir is the folder of the store.
	Dir string
	// PartBytes is as in [store.FileConfig].
	PartBytes int
	// RoomPause is as in [store.FileConfig], but a millisecond by default.
	RoomPause time.Duration
	// Planted is as in [store.FileConfig].
	Planted plant.Faults
	// Seed decides everything that is left to chance.
	Seed uint64
	// Rate is the share of commits that go wrong, of 0 to 1.
	Rate float64
	// Kinds are the faults to choose from; all but SyncLies by default.
	Kinds []Fault
	// Lies, or nil, is called when a sync lies after all before it were honest. It must not call the disk.
	Lies func()
	// At are faults of certain commits, which count from 1 over the life of the disk. The first is that
	// of a new journal, the second that of the first campaign.
	At map[int]Fault
}

// A Disk is a folder on a disk that fails. Its methods may be called at the same time.
type Disk struct {
	cfg Config // set in New, then constant

	mu struct {
		sync.Mutex
		rnd     *rand.Rand
		commits int
		file    string           // of the database
		sectors map[int64]sector // by offset: those that the platter does not hold as they were written
		lied    bool
		short   int  // so many of the next commits find the disk full
		full    bool // there is no room at all
		calm    bool // nothing goes wrong any more
		last    *process
	}
}

// A sector is one that was written, and not synced.
type sector struct {
	platter []byte // what the platter holds
	dirty   bool   // the next sync writes it; else a sync has failed, and the system believes it written
}

// sectorBytes is how much a disk writes as a whole, or not at all.
const sectorBytes = 512

// New is a disk as the folder is now.
func New(cfg Config) *Disk {
	if cfg.Kinds == nil {
		cfg.Kinds = []Fault{CrashBefore, CrashWithin, CrashAfter, WriteFails, Full, SyncFails}
	}
	d := &Disk{cfg: cfg}
	d.mu.rnd = rand.New(rand.NewPCG(cfg.Seed, 3))
	d.mu.sectors = make(map[int64]sector)
	return d
}

// Open opens the store as a new process does. The process before must have ended.
func (d *Disk) Open() (store.Store, error) {
	p := &process{disk: d}
	d.mu.Lock()
	d.mu.last = p
	d.mu.Unlock()
	return store.OpenFile(store.FileConfig{
		Dir: d.cfg.Dir, PartBytes: d.cfg.PartBytes, RoomPause: cmp.Or(d.cfg.RoomPause, time.Millisecond), Disk: p, Planted: d.cfg.Planted,
	})
}

// Fill lets every commit find the disk full, before anything of it is written, or ends that.
func (d *Disk) Fill(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.full = full
}

// Calm ends all faults, for the last look at what there is.
func (d *Disk) Calm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.calm = true
}

// Commits is how many transactions have begun to be committed.
func (d *Disk) Commits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.commits
}

// Lied says whether a power loss now would lose what a sync has promised, or the last one did.
func (d *Disk) Lied() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.lied
}

// Kill ends the process that has the store open, or nil if it failed to open it. From now on it writes
// nothing; what it has written stays.
func (d *Disk) Kill(st store.Store) {
	d.mu.Lock()
	if d.mu.last != nil {
		d.mu.last.dead = true
	}
	d.mu.Unlock()
	if st != nil {
		_ = st.Close() // writes nothing, and frees the folder as the end of a process does
	}
}

// PowerLoss ends the process as Kill does, and then the machine: of the sectors that were not synced
// some are lost, and hold what they held before. A disk that has lied may lose all of them: then the file is
// what it was at the last honest sync.
func (d *Disk) PowerLoss(st store.Store) error {
	d.Kill(st)
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.sectors) == 0 {
		return nil
	}
	f, err := os.OpenFile(d.mu.file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	all := d.mu.lied && d.mu.rnd.IntN(2) == 0
	for _, off := range d.unsynced() {
		s := d.mu.sectors[off]
		if s.dirty && !all && d.mu.rnd.IntN(2) == 0 {
			continue // written in time
		}
		if _, err := f.WriteAt(s.platter, off); err != nil {
			return fmt.Errorf("faulty: power loss: %w", err)
		}
	}
	clear(d.mu.sectors)
	return nil
}

// unsynced lists the sectors that the platter does not hold. mu is held.
func (d *Disk) unsynced() []int64 {
	offs := make([]int64, 0, len(d.mu.sectors))
	for off := range d.mu.sectors {
		offs = append(offs, off)
	}
	slices.Sort(offs)
	return offs
}

// next is what happens to the next commit. mu is held.
func (d *Disk) next() Fault {
	d.mu.commits++
	if d.mu.calm {
		return None
	}
	if d.mu.short > 0 {
		d.mu.short--
		return Full
	}
	if f, ok := d.cfg.At[d.mu.commits]; ok {
		return f
	}
	if d.mu.rnd.Float64() >= d.cfg.Rate {
		return None
	}
	f := d.cfg.Kinds[d.mu.rnd.IntN(len(d.cfg.Kinds))]
	if f == Full {
		d.mu.short = d.mu.rnd.IntN(mostShort)
	}
	return f
}

// mostShort bounds how many commits after one find the disk full, too.
const mostShort = 4
