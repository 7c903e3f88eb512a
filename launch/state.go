package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/mesh/restore"
	"github.com/serry-dev/serry/topo"
)

// The state directory of a job holds a manifest of its last run: which task was on which machine. It
// is how ranks outlive every service (P-RMP-8). Only the first launcher reads and writes it, so hosts
// that may be the first share the directory.

// PreviousManifest is the file in a state directory with the manifest of the run before the last one,
// which is the one before this one while a job runs.
const PreviousManifest = "previous_manifest.json"

// openRanks reads the state directory of a job, if it has one.
func openRanks(cfg Config, f *feed) (*ranks, error) {
	if cfg.StateDir == "" {
		return nil, nil
	}
	last, text, err := readState(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	r := newRanks(cfg, last)
	r.before = text
	r.arrive(0, cfg.identity(), time.Now())
	if len(last) > 0 && len(r.previous) == 0 {
		f.note(Note{Warning: true, Text: fmt.Sprintf("the last run had %d ranks, this one has %d: numbers are given anew", len(last), cfg.total())})
	}
	return r, nil
}

// identity says what this host is.
func (c Config) identity() topo.TaskRecord {
	if c.Identity != nil {
		return *c.Identity
	}
	return client.Identify()
}

// sit gives nodes to hosts by what they are, where that is wanted, and keeps in mind who has which.
func (j *Job) sit() {
	if j.ranks == nil {
		return
	}
	seated, err := j.ranks.assign(j.places.free(), j.places.idle(), time.Now())
	if err != nil {
		j.warn("hosts cannot be told apart, so each has the ranks of its own number: %v", err)
		j.places.byIdentity = false
		for _, host := range j.places.idle() {
			j.places.sit(host)
		}
	}
	for _, s := range seated {
		for _, text := range s.notes {
			j.note("%s", text)
		}
		if s.node >= 0 {
			j.places.hostOf[s.node] = s.host
		}
	}
	if err != nil || len(seated) > 0 {
		j.remember()
	}
}

// remember writes down which task is on which machine, once all have a place.
func (j *Job) remember() {
	if j.ranks == nil || len(j.places.free()) > 0 {
		return
	}
	j.ranks.settle(j.places.hostOf)
	if j.archive.editions.put(edition{run: j.run, tasks: j.ranks.records(), before: j.ranks.before, at: time.Now()}) {
		j.ranks.before = nil
		j.keeping++
	}
}

// kept lets the tasks start that waited for the state to be written: they may read it.
func (j *Job) kept(ev kept) step {
	if ev.err != nil {
		j.warn("%v", ev.err)
	}
	j.keeping--
	return j.release()
}

// An archive writes the state of a job, on a goroutine of its own: the directory may be on a disk of
// another machine. For each edition there is a kept event. A nil archive has nothing to write.
type archive struct {
	dir      string
	inbox    chan<- any
	editions *queue[edition]
	done     chan struct{}
}

// An edition is the state of a job at one time.
type edition struct {
	run    string
	tasks  []topo.TaskRecord
	before []byte // text of the state of the run before, to be kept; or nil
	at     time.Time
}

// A kept event says that an edition has been written, or why not.
type kept struct{ err error }

// archiveBacklog is how many editions wait for a slow disk. There is one for each change of hosts; what
// one that finds no room would say, the next one says.
const archiveBacklog = 64

func newArchive(dir string, inbox chan<- any) *archive {
	a := &archive{dir: dir, inbox: inbox, editions: newQueue[edition](archiveBacklog), done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for {
			e, ok := a.editions.next(nil)
			if !ok {
				return
			}
			a.inbox <- kept{a.write(e)}
		}
	}()
	return a
}

func (a *archive) write(e edition) error {
	if e.before != nil {
		if err := writeWhole(a.dir, PreviousManifest, e.before); err != nil {
			return fmt.Errorf("the state of the run before this one is not kept: %w", err)
		}
	}
	if err := writeState(a.dir, e.run, e.tasks, e.at); err != nil {
		return fmt.Errorf("the state of this run is not kept: %w", err)
	}
	return nil
}

// close returns when all is written, or hurry is closed.
func (a *archive) close(hurry <-chan struct{}) {
	if a == nil {
		return
	}
	a.editions.close()
	select {
	case <-a.done:
	case <-hurry:
	}
}

// readState reads the tasks of the last run, and the text they are in; nothing of a first one.
func readState(dir string) (tasks []topo.TaskRecord, text []byte, err error) {
	name := filepath.Join(dir, restore.ManifestFile)
	text, err = os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, os.MkdirAll(dir, 0o777)
	}
	if err != nil {
		return nil, nil, err
	}
	m, err := restore.ParseManifest(name, text)
	if err != nil {
		return nil, nil, fmt.Errorf("state of the last run: %w", err)
	}
	return m.Tasks, text, nil
}

// writeState puts the tasks of this run in the place of those of the last one.
func writeState(dir, run string, tasks []topo.TaskRecord, now time.Time) error {
	m := &restore.Manifest{Job: run, Created: now.UnixMilli(), Tasks: tasks, Mesh: restore.Mesh{AxisNames: []string{"device"}, Devices: []serry.DeviceID{}}}
	for _, t := range tasks {
		for _, d := range t.Devices {
			m.Mesh.Devices = append(m.Mesh.Devices, d.ID)
		}
	}
	m.Mesh.Shape = []int{len(m.Mesh.Devices)}
	text, err := m.Encode()
	if err != nil {
		return err
	}
	return writeWhole(dir, restore.ManifestFile, append(text, '\n'))
}

// writeWhole writes a file, whole or not at all.
func writeWhole(dir, name string, text []byte) error {
	f, err := os.CreateTemp(dir, ".manifest-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone when all went well
	_, err = f.Write(text)
	if err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
