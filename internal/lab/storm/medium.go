package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/faultydisk"
	"github.com/serry-dev/serry/internal/lab/history"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/store"
)

// A medium is what the servers of a world keep their journal on.
type medium interface {
	// open is what a new process does.
	open() (seat, error)

	// expire ends the present leadership, where others wait for it.
	expire()

	// calm ends all faults of the medium.
	calm()

	// errs says whether an error is one of the faults that the medium has by itself: the process ends of
	// it, and the next may go on.
	errs(error) bool

	// terms is how many leaderships there were before one of a term.
	terms(term uint64) int

	// remove ends what is left of the medium, when the schedule is over.
	remove()
}

func newMedium(w *world) medium {
	switch {
	case w.options.Etcd != "":
		return newRealEtcd(w)
	case w.options.Dir != "":
		return newRealFile(w)
	}
	return sharedDisk{shareddisk.New(shareddisk.Config{
		LeaseTTL: w.plan.lease, Notice: w.plan.notice, Fault: w.operation, Planted: w.options.Planted,
	})}
}

// A seat is a store that a process has open, and what happens to it with the process.
type seat interface {
	store.Store
	kill()
	cut()
	heal()

	// crashed is closed when the store has ended the process; or nil.
	crashed() <-chan struct{}
}

// sharedDisk is a medium in memory for several servers.
type sharedDisk struct{ *shareddisk.Disk }

func (d sharedDisk) open() (seat, error) { return sharedSeat{d.Open()}, nil }
func (d sharedDisk) expire()             { d.Expire() }
func (d sharedDisk) calm()               {}
func (d sharedDisk) errs(error) bool     { return false }
func (d sharedDisk) terms(t uint64) int  { return int(t) - 1 }
func (d sharedDisk) remove()             {}

type sharedSeat struct{ *shareddisk.Handle }

func (s sharedSeat) kill() { s.Kill() }
func (s sharedSeat) cut()  { s.Cut() }
func (s sharedSeat) heal() { s.Heal() }

func (s sharedSeat) crashed() <-chan struct{} { return nil }

// The sizes of parts in a file: so small that most snapshots have several, and large values not too many.
const (
	partBytes      = 256
	largePartBytes = 32 << 10
)

// A realFile is a medium for one server: the real File store on a disk that fails, tears and forgets.
type realFile struct {
	world *world
	disk  *faultydisk.Disk

	mu   sync.Mutex
	rand *rand.Rand
	lies history.Moment // when the disk last began to lie
}

func newRealFile(w *world) *realFile {
	parts := partBytes
	if w.plan.large {
		parts = largePartBytes
	}
	f := &realFile{world: w, rand: dice(w.seed, forDisk, 1)}
	f.disk = faultydisk.New(faultydisk.Config{
		Dir: w.options.Dir, PartBytes: parts, Seed: w.seed, Rate: w.plan.rate, Kinds: w.plan.kinds(), RoomPause: 200 * time.Millisecond,
		Planted: w.options.Planted, Lies: f.lie,
	})
	return f
}

// lie notes that the disk begins to lie.
func (f *realFile) lie() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lies = f.world.clock.Now()
}

func (f *realFile) open() (seat, error) {
	st, err := f.disk.Open()
	if err != nil {
		f.disk.Kill(nil)
		return nil, err
	}
	gate := newPlace("store")
	gate.start()
	return &fileSeat{st, f, gate}, nil
}

func (f *realFile) expire()            {}
func (f *realFile) calm()              { f.disk.Calm() }
func (f *realFile) terms(t uint64) int { return int(t) - 1 }
func (f *realFile) remove()            {}

// errs implements medium. What a disk does is an error of the system, or the end of the process. A journal
// that is damaged is neither.
func (f *realFile) errs(err error) bool {
	var system *os.PathError
	return errors.As(err, &system) || errors.Is(err, faultydisk.ErrCrashed)
}

type fileSeat struct {
	store.Store
	file *realFile
	gate *place // frozen with the process; nothing else of it is used
}

// Campaign implements store.Store.
func (s *fileSeat) Campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	s.gate.runs()
	r, err := s.Store.Campaign(ctx, who)
	if err != nil {
		return nil, err
	}
	return &fileReign{r, s.gate}, nil
}

// A fileReign is one of a process that may be frozen. While it is, it begins nothing; a Save that is under way
// goes on, because its parts are written under locks of the store.
type fileReign struct {
	store.Reign
	gate *place
}

// Capacity implements store.Limited.
func (r *fileReign) Capacity() int64 { return r.Reign.(store.Limited).Capacity() }

// Full implements store.Limited.
func (r *fileReign) Full() *store.FullError { return r.Reign.(store.Limited).Full() }

func (r *fileReign) Append(ctx context.Context, batch []byte) error {
	r.gate.runs()
	return r.Reign.Append(ctx, batch)
}

func (r *fileReign) Confirm(ctx context.Context) error {
	r.gate.runs()
	return r.Reign.Confirm(ctx)
}

func (r *fileReign) Put(ctx context.Context, ref coord.Ref, value []byte) error {
	r.gate.runs()
	return r.Reign.Put(ctx, ref, value)
}

func (r *fileReign) Save(ctx context.Context, at store.Mark, snapshot []byte, keep []coord.Ref) error {
	r.gate.runs()
	return r.Reign.Save(ctx, at, snapshot, keep)
}

// kill ends the process, or the machine as well.
func (s *fileSeat) kill() {
	s.gate.open(frozen)
	s.file.mu.Lock()
	machine := s.file.rand.IntN(2) == 0
	s.file.mu.Unlock()
	s.file.disk.Kill(s.Store)
	if !machine {
		return
	}
	if s.file.disk.Lied() {
		s.file.disk.Calm() // one loss is enough
		s.file.mu.Lock()
		from := s.file.lies
		s.file.mu.Unlock()
		s.file.world.rollBack(from)
	}
	if err := s.file.disk.PowerLoss(nil); err != nil {
		panic(err) // the real disk, under the one that fails
	}
}

func (s *fileSeat) cut()  { s.gate.shut(frozen) }
func (s *fileSeat) heal() { s.gate.open(frozen) }

// crashed is nil: the process learns of its end from the store.
func (s *fileSeat) crashed() <-chan struct{} { return nil }
