package faultydisk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"syscall"
	"unsafe"

	"go.etcd.io/bbolt"

	"github.com/serry-dev/serry/store"
)

// A process is a store that is open on a Disk: its [store.Disk]. All fields are guarded by disk.mu.
type process struct {
	disk *Disk
	dead bool // it writes nothing any more

	// Of the present commit.
	file     *os.File
	metas    int64 // where the two pages end that make a commit count
	fault    Fault
	happened bool // the fault has happened
}

// Attach takes the writes of a database. bbolt has a hook for them, which its own tests use and which it
// does not export. With NoSync and NoGrowSync it leaves the syncs of a commit to this package: the one between the
// pages and the page that makes them count, see writeAt, and the last one, see Commit.
func (p *process) Attach(db *bbolt.DB) error {
	ops := reflect.ValueOf(db).Elem().FieldByName("ops")
	if !ops.IsValid() || !ops.FieldByName("writeAt").IsValid() {
		return errors.New("faulty: this version of bbolt has no hook for its writes")
	}
	field := ops.FieldByName("writeAt")
	hook, ok := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Interface().(*func([]byte, int64) (int, error))
	if !ok {
		return errors.New("faulty: this version of bbolt has another hook for its writes")
	}
	*hook = p.writeAt
	db.NoSync, db.NoGrowSync = true, true
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	p.metas = 2 * int64(db.Info().PageSize)
	p.disk.use(db.Path())
	return nil
}

// use notes which file is written. Another one than before, as the journal is after its draft, begins
// with nothing unsynced. mu is held.
func (d *Disk) use(name string) {
	if d.mu.file != name {
		d.mu.file = name
		clear(d.mu.sectors)
	}
}

// Commit commits a transaction, or does to it what the plan says.
func (p *process) Commit(tx *bbolt.Tx) error {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.dead {
		return errors.Join(ErrCrashed, tx.Rollback())
	}
	if p.disk.mu.full {
		return errors.Join(&os.PathError{Op: "write", Path: tx.DB().Path(), Err: syscall.ENOSPC}, tx.Rollback())
	}
	p.fault, p.happened = p.disk.next(), false
	if p.fault == CrashBefore {
		p.dead = true
		return errors.Join(ErrCrashed, tx.Rollback())
	}
	f, err := os.OpenFile(tx.DB().Path(), os.O_RDWR, 0)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	defer f.Close()
	p.file = f
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := p.sync(true); err != nil {
		return err
	}
	if p.fault == CrashAfter {
		p.dead = true
		return ErrCrashed
	}
	return nil
}

// writeAt is a write of bbolt. The pages that make a commit count are written last, after a sync.
func (p *process) writeAt(b []byte, off int64) (int, error) {
	last := off < p.metas
	if last {
		if err := p.sync(false); err != nil {
			return 0, err
		}
	}
	stops := p.fault == CrashWithin || p.fault == WriteFails || p.fault == Full
	if !stops || p.happened || !last && p.disk.mu.rnd.IntN(4) > 0 {
		return p.disk.write(p.file, b, off)
	}
	p.happened = true
	n, err := p.disk.write(p.file, b[:p.disk.mu.rnd.IntN(len(b)+1)], off)
	if err != nil {
		return n, err
	}
	switch p.fault {
	case WriteFails:
		return n, &os.PathError{Op: "write", Path: p.file.Name(), Err: syscall.EIO}
	case Full:
		return n, &os.PathError{Op: "write", Path: p.file.Name(), Err: syscall.ENOSPC}
	}
	p.dead = true
	return n, ErrCrashed
}

// sync is one of the two syncs of a commit.
func (p *process) sync(last bool) error {
	switch {
	case p.fault == SyncLies:
		if !p.disk.mu.lied && p.disk.cfg.Lies != nil {
			p.disk.cfg.Lies()
		}
		p.disk.mu.lied = true
		return nil
	case p.fault == SyncFails && !p.happened && (last || p.disk.mu.rnd.IntN(2) == 0):
		p.happened = true
		p.disk.forget()
		return &os.PathError{Op: "fdatasync", Path: p.file.Name(), Err: syscall.EIO}
	}
	p.disk.synced()
	return nil
}

// write writes to the file, and remembers what the platter holds of it. mu is held.
func (d *Disk) write(f *os.File, b []byte, off int64) (int, error) {
	for at := off / sectorBytes * sectorBytes; at < off+int64(len(b)); at += sectorBytes {
		s, ok := d.mu.sectors[at]
		if !ok {
			s.platter = make([]byte, sectorBytes) // zeros after the end of the file
			if _, err := f.ReadAt(s.platter, at); err != nil && err != io.EOF {
				return 0, fmt.Errorf("faulty: %w", err)
			}
		}
		s.dirty = true
		d.mu.sectors[at] = s
	}
	return f.WriteAt(b, off)
}

// synced notes that the platter holds what was written. What an earlier sync has failed to write, and
// the system believes written, is not among that. mu is held.
func (d *Disk) synced() {
	d.mu.lied = false
	for off, s := range d.mu.sectors {
		if s.dirty {
			delete(d.mu.sectors, off)
		}
	}
}

// forget does what operating systems do when a sync fails: what could not be written is not tried
// again, and the next sync says that all is well. mu is held.
func (d *Disk) forget() {
	for _, off := range d.unsynced() {
		s := d.mu.sectors[off]
		if !s.dirty {
			continue
		}
		if d.mu.rnd.IntN(2) == 0 {
			delete(d.mu.sectors, off)
			continue
		}
		s.dirty = false
		d.mu.sectors[off] = s
	}
}

// Open opens the database as a file.
func (p *process) Open(name string) (store.DiskFile, error) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	p.disk.use(name)
	return diskFile{f, p}, nil
}

// A diskFile is a file whose writes are not durable before it is synced.
type diskFile struct {
	*os.File
	process *process
}

func (f diskFile) WriteAt(b []byte, off int64) (int, error) {
	d := f.process.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.process.dead {
		return 0, ErrCrashed
	}
	return d.write(f.File, b, off)
}

func (f diskFile) Sync() error {
	d := f.process.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced()
	return nil
}

// Touch makes a file that stays when the power is lost: too much, but a store may not rely on less.
func (p *process) Touch(name string) error {
	p.disk.mu.Lock()
	defer p.disk.mu.Unlock()
	if p.dead {
		return ErrCrashed
	}
	return os.WriteFile(name, nil, 0o600)
}
