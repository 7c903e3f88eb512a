package server

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// This file reads journals. A journal is a snapshot, perhaps, and batches of records after it. Each record is an
// event with the time at which it was stepped; the machine is deterministic, so stepping it through the
// records gives the state that the service had, and the effects that it had.

// A Step is one event of a recorded history and what followed from it.
type Step struct {
	At      coord.Time
	Event   coord.Event
	Effects []coord.Effect // valid until the next step

	// The size of the record: what it adds to the journal.
	bytes int
}

// A Beginning is where a recorded history begins: what the machine was when its journal was last
// replaced by a snapshot.
type Beginning struct {
	View  coord.View // of the machine, before the first event
	Fresh bool       // the service had not begun yet

	header header
	bytes  int // of the snapshot
}

// Replay runs a recorded history through a machine again: it calls begin with where that begins, then each with
// every event. The machine has the settings under which the history was made, so it says again what it said
// then. Republished is as in [coord.Config]; it is a function, the only setting that a journal cannot hold.
func Replay(ctx context.Context, j store.Journal, republished func(key string, stored, offered []byte) bool,
	begin func(Beginning), each func(Step)) error {
	// The number of the service is never used. Where there are records there is a snapshot before them, which
	// has the true one.
	cfg := coord.Config{Service: 1, Republished: republished}
	return replay(ctx, j, cfg, make(refs), func(m *coord.Machine, b Beginning) {
		b.View = m.View()
		begin(b)
	}, each)
}

// replay is Replay for callers that go on with the machine. Where the journal is empty the machine has the
// settings of cfg. refs gets the digests of all large values that are read, so that the next snapshot need not
// hash them again.
func replay(ctx context.Context, j store.Journal, cfg coord.Config, refs refs,
	begin func(*coord.Machine, Beginning), each func(Step)) error {
	t, b, err := openTape(ctx, j, cfg, refs)
	if err != nil {
		return err
	}
	defer t.close()
	begin(t.machine, b)
	for {
		step, ok, err := t.next()
		if !ok {
			return err
		}
		each(step)
	}
}

// A tape plays a recorded history one event at a time.
//
// A tape reads one record ahead of its machine (see peek). A reader that must stop at a given time has to know
// the time of an event before the machine is stepped, because a step cannot be taken back.
type tape struct {
	machine *coord.Machine
	fresh   bool // the journal has no snapshot
	fetch   func(coord.Ref) ([]byte, error)
	pull    func() ([]byte, error, bool) // the next batch
	close   func()

	batch  []byte // what is left of it
	loaded bool   // at, event and bytes are those of the next record
	at     coord.Time
	event  coord.Event
	bytes  int
}

// openTape loads a journal. The context is that of all that is read later, too.
func openTape(ctx context.Context, j store.Journal, cfg coord.Config, refs refs) (*tape, Beginning, error) {
	// Records and snapshots name large values by their digest. The digest is remembered with the value.
	// Otherwise the first snapshot of the next leader would hash every large value again, within the owner's
	// turn.
	fetch := func(ref coord.Ref) ([]byte, error) {
		value, err := j.Get(ctx, ref)
		if err == nil && len(value) > 0 {
			refs[&value[0]] = ref
		}
		return value, err
	}
	snapshot, batches, err := j.Load(ctx)
	if err != nil {
		return nil, Beginning{}, err
	}
	m, b, err := restore(cfg, snapshot, fetch)
	if err != nil {
		return nil, b, err
	}
	t := &tape{machine: m, fresh: b.Fresh, fetch: fetch}
	t.pull, t.close = iter.Pull2(batches)
	return t, b, nil
}

// peek says when the next event happened. It is false at the end, and where there is an error.
func (t *tape) peek() (coord.Time, bool, error) {
	for !t.loaded && len(t.batch) == 0 {
		batch, err, ok := t.pull()
		if err != nil || !ok {
			return 0, false, err
		}
		// A server saves a snapshot before its first record, because the settings are in there.
		if t.fresh {
			return 0, false, fmt.Errorf("%w: records without a snapshot before them", store.ErrDamaged)
		}
		t.batch = batch
	}
	if !t.loaded {
		at, event, rest, err := t.machine.ReadRecord(t.batch, t.fetch)
		if err != nil {
			return 0, false, err
		}
		t.at, t.event, t.bytes, t.batch, t.loaded = at, event, len(t.batch)-len(rest), rest, true
	}
	return t.at, true, nil
}

// next steps the machine by one event. It is false at the end, and where there is an error.
func (t *tape) next() (Step, bool, error) {
	if _, ok, err := t.peek(); !ok {
		return Step{}, false, err
	}
	t.loaded = false
	return Step{At: t.at, Event: t.event, Effects: t.machine.Step(t.at, t.event), bytes: t.bytes}, true, nil
}

// restore makes the machine that a snapshot shows, or a new one if there is no snapshot.
func restore(cfg coord.Config, snapshot []byte, fetch func(coord.Ref) ([]byte, error)) (*coord.Machine, Beginning, error) {
	// A server has jobs, and begins a service on an empty journal. Readers of a history have none, and there is
	// nothing for them to read.
	if snapshot == nil && len(cfg.Jobs) == 0 {
		return nil, Beginning{}, errors.New("there is nothing in it")
	}
	if snapshot == nil {
		return coord.New(cfg), Beginning{Fresh: true}, nil
	}
	h, machine, err := readHeader(snapshot)
	if err != nil {
		return nil, Beginning{}, err
	}
	m, err := coord.Restore(h.apply(cfg), machine, fetch)
	return m, Beginning{header: h, bytes: len(snapshot)}, err
}
