package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab/conform"
	"github.com/serry-dev/serry/internal/lab/faultydisk"
	"github.com/serry-dev/serry/store"
)

const diskPartBytes = 2000

// A diary is what a server has been told by its store, on a disk that fails: the model that the store is
// compared with.
type diary struct {
	disk *faultydisk.Disk
	rnd  *rand.Rand

	batches []string    // acknowledged
	maybe   string      // appended without an answer, or empty
	ghosts  []string    // appended without an answer, and not found after that
	synced  int         // how many batches were acknowledged when the disk was last honest
	values  []coord.Ref // acknowledged
	sure    int         // how many of them were when the disk was last honest
	wrote   int         // makes each batch another one
	seen    map[string]int
}

// memoryFolder is a folder in memory, where there is one: the faults are those of the plan, and waiting for
// a real disk would only take time.
func memoryFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "serry-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// snapshotOf is a snapshot that covers batches: it says how many, and depends on all their bytes.
func snapshotOf(batches []string) string {
	sum := sha256.Sum256([]byte(strings.Join(batches, "|")))
	return fmt.Sprintf("%08d%s", len(batches), conform.Bytes(string(sum[:]), 3*diskPartBytes+len(batches)%7))
}

// step does one thing with a reign, by chance.
func (d *diary) step(ctx context.Context, r store.Reign) error {
	switch n := d.rnd.IntN(10); {
	case n < 7:
		return d.append(ctx, r, d.rnd.IntN(1500))
	case n < 8:
		return d.put(ctx, r, d.rnd.IntN(3*diskPartBytes))
	}
	return d.save(ctx, r)
}

func (d *diary) append(ctx context.Context, r store.Reign, size int) error {
	d.wrote++
	d.maybe = fmt.Sprintf("%d:%s", d.wrote, conform.Bytes(fmt.Sprint(d.wrote), size))
	err := r.Append(ctx, []byte(d.maybe))
	if err == nil {
		d.batches, d.maybe = append(d.batches, d.maybe), ""
	}
	d.note()
	return err
}

func (d *diary) put(ctx context.Context, r store.Reign, size int) error {
	d.wrote++
	value := conform.Bytes(fmt.Sprint("value", d.wrote), size)
	err := r.Put(ctx, conform.Ref(value), value)
	if err == nil {
		d.values = append(d.values, conform.Ref(value))
	}
	d.note()
	return err
}

func (d *diary) save(ctx context.Context, r store.Reign) error {
	err := r.Save(ctx, r.Mark(), []byte(snapshotOf(d.batches)), d.values)
	d.note()
	return err
}

// note notes what the disk has promised, if it was honest.
func (d *diary) note() {
	if !d.disk.Lied() {
		d.synced, d.sure = len(d.batches), len(d.values)
	}
}

// run is a process: it opens the store, compares, and works until something goes wrong or its time is up.
func (d *diary) run(ctx context.Context, work func(store.Reign) error) (st store.Store, err error) {
	st, err = d.disk.Open()
	if err != nil {
		return nil, err
	}
	r, err := st.Campaign(ctx, store.Candidate{})
	if err != nil {
		return st, err
	}
	if err := d.compare(ctx, r, false); err != nil {
		return st, wrong{err}
	}
	return st, work(r)
}

// steps is what a process does that goes on until its time is up.
func (d *diary) steps(ctx context.Context, n int) func(store.Reign) error {
	return func(r store.Reign) error {
		for range n {
			if err := d.step(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// A wrong is a store that does not hold what it should.
type wrong struct{ error }

// compare reads a journal. Where a sync has lied it may be an earlier one: also one that lay in the memory
// of the machine for a moment, with a batch that no server was told of. Its pages may be on the disk, and
// be taken for those of the commit after it, which has the same number.
func (d *diary) compare(ctx context.Context, j store.Journal, lied bool) error {
	least, most := len(d.batches), d.batches
	if d.maybe != "" {
		most = append(slices.Clone(most), d.maybe)
	}
	if lied {
		least = d.synced
	}
	snapshot, batches, err := j.Load(ctx)
	if err != nil {
		return err
	}
	n := 0
	if snapshot != nil {
		if _, err := fmt.Sscanf(string(snapshot[:min(8, len(snapshot))]), "%d", &n); err != nil || n > len(most) || string(snapshot) != snapshotOf(most[:n]) {
			return fmt.Errorf("a snapshot that never was, of %d bytes", len(snapshot))
		}
	}
	for b, err := range batches {
		if err != nil {
			return err
		}
		if lied && slices.Contains(d.ghosts, string(b)) { // nothing can come after it
			most = append(most[:n:n], string(b))
		}
		if n >= len(most) || string(b) != most[n] {
			return fmt.Errorf("batch %d is %.20q", n, b)
		}
		n++
	}
	if n < least {
		return fmt.Errorf("%d batches of %d", n, least)
	}
	if d.maybe != "" && n < len(most) {
		d.ghosts = append(d.ghosts, d.maybe)
	}
	d.batches, d.maybe = slices.Clone(most[:n]), ""
	return d.compareValues(ctx, j, lied)
}

func (d *diary) compareValues(ctx context.Context, j store.Journal, lied bool) error {
	for i, ref := range d.values {
		b, err := j.Get(ctx, ref)
		switch {
		case err == nil && conform.Ref(b) != ref:
			return fmt.Errorf("value %d has other bytes", i)
		case errors.Is(err, store.ErrNoValue) && lied && i >= d.sure:
			d.values = d.values[:i]
			return nil
		case err != nil:
			return fmt.Errorf("value %d: %w", i, err)
		}
	}
	return nil
}

// crash ends the process, or the machine, and reads what is left as serry replay does.
func (d *diary) crash(ctx context.Context, st store.Store, dir string, powerLoss bool) error {
	lied := false
	if !powerLoss {
		d.disk.Kill(st)
	} else {
		lied = d.disk.Lied()
		if err := d.disk.PowerLoss(st); err != nil {
			return err
		}
	}
	h, err := store.Read(dir)
	if err == nil {
		err = d.compare(ctx, h, lied)
		h.Close()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrNotExist) && len(d.batches)+len(d.values) == 0: // before there was a journal
		return nil
	case lied && errors.Is(err, store.ErrDamaged):
		d.seen["damaged"]++
		return errDamaged
	}
	return fmt.Errorf("Read(): %w", err)
}

var errDamaged = errors.New("damaged, and says so")

// schedule is one life of a folder.
func schedule(t *testing.T, seed uint64, rate float64, kinds []faultydisk.Fault, seen map[string]int) error {
	dir := memoryFolder(t)
	d := &diary{
		disk: faultydisk.New(faultydisk.Config{Dir: dir, PartBytes: diskPartBytes, Seed: seed, Rate: rate, Kinds: kinds}),
		rnd:  rand.New(rand.NewPCG(seed, 4)),
		seen: seen,
	}
	for range 8 {
		st, err := d.run(t.Context(), d.steps(t.Context(), d.rnd.IntN(40)))
		if err := d.expected(err); err != nil {
			return err
		}
		if err := d.crash(t.Context(), st, dir, d.rnd.IntN(2) == 0); errors.Is(err, errDamaged) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// expected checks that an error says what has happened.
func (d *diary) expected(err error) error {
	_, full := errors.AsType[*store.FullError](err)
	_, bad := errors.AsType[wrong](err)
	switch {
	case bad:
		return err
	case err == nil:
		d.seen["nothing"]++
	case errors.Is(err, faultydisk.ErrCrashed):
		d.seen["crashed"]++
	case errors.Is(err, syscall.ENOSPC) && full:
		d.seen["full"]++
	case errors.Is(err, syscall.EIO) && !full:
		d.seen["EIO"]++
	default:
		return fmt.Errorf("the error does not say what has happened: %w", err)
	}
	return nil
}

// everything is what a process does that does everything once: a batch, a value in parts, a snapshot in
// parts, then all of it again over what is there.
func (d *diary) everything(ctx context.Context) func(store.Reign) error {
	return func(r store.Reign) error {
		for range 2 {
			for _, do := range []func() error{
				func() error { return d.append(ctx, r, 10) },
				func() error { return d.put(ctx, r, 3*diskPartBytes+1) },
				func() error { return d.append(ctx, r, 3000) },
				func() error { return d.save(ctx, r) },
				func() error { return d.append(ctx, r, 0) },
			} {
				if err := do(); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// C-LOG-2, C-LOG-3, C-LOG-4: whatever happens at any commit of a campaign, of an Append, of the parts of a
// Put and of a Save, and of the new journal itself: what is there afterwards is what was acknowledged, and
// the next process goes on with it.
func TestFileFaultAtEveryCommit(t *testing.T) {
	try := func(at int, fault faultydisk.Fault, powerLoss bool) (commits int) {
		dir := memoryFolder(t)
		d := &diary{
			disk: faultydisk.New(faultydisk.Config{Dir: dir, PartBytes: diskPartBytes, Seed: uint64(at), At: map[int]faultydisk.Fault{at: fault}}),
			seen: make(map[string]int),
		}
		for range 2 { // something goes wrong, then nothing does
			st, err := d.run(t.Context(), d.everything(t.Context()))
			if err := errors.Join(d.expected(err), d.crash(t.Context(), st, dir, powerLoss)); err != nil {
				t.Errorf("%v at commit %d, power loss %v: %v", fault, at, powerLoss, err)
			}
		}
		good := 1
		if fault == faultydisk.Full && at > 2 { // a store that was opened, and led, waits for room
			good = 2
		}
		if at > 0 && d.seen["nothing"] != good {
			t.Errorf("%v at commit %d, power loss %v: %v", fault, at, powerLoss, d.seen)
		}
		return d.disk.Commits()
	}
	commits := try(0, faultydisk.None, false) / 2
	if commits < 25 {
		t.Fatalf("%d commits; want those of all parts", commits)
	}
	for at := 1; at <= commits; at++ {
		for fault := faultydisk.CrashBefore; fault <= faultydisk.SyncFails; fault++ {
			try(at, fault, false)
			try(at, fault, true)
		}
	}
}

// C-LOG-2, C-LOG-3: on a disk whose writes tear, fail, and find no room, whose syncs fail, under a process
// that is killed at any moment and a machine that loses power, nothing acknowledged is lost. Where syncs
// lie, the store holds an earlier state or says that it is damaged; it never holds anything else.
func TestFileOnFaultyDisk(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  float64
		kinds []faultydisk.Fault
		want  []string
	}{
		{"honest", 0.06, nil, []string{"nothing", "crashed", "full", "EIO"}},
		{"lying", 0.7, append(slices.Repeat([]faultydisk.Fault{faultydisk.SyncLies}, 20), faultydisk.CrashWithin, faultydisk.CrashAfter),
			[]string{"nothing", "crashed", "damaged"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := make(map[string]int)
			for seed := range uint64(diskSchedules) {
				if err := schedule(t, seed, c.rate, c.kinds, seen); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
			t.Log(seen)
			for _, w := range c.want {
				if seen[w] == 0 {
					t.Errorf("in %d schedules there was never: %s", diskSchedules, w)
				}
			}
		})
	}
}

// diskSchedules is how many of each kind there are: enough to find a stale page that is taken for the last
// one, which one schedule in a hundred leads to.
const diskSchedules = 300
