package server

import (
	"context"
	"errors"
	"fmt"

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
	// Records and snapshots name large values by their digest. The digest is remembered with the value.
	fetch := func(ref coord.Ref) ([]byte, error) {
		value, err := j.Get(ctx, ref)
		if err == nil && len(value) > 0 {
			refs[&value[0]] = ref
		}
		return value, err
	}
	snapshot, batches, err := j.Load(ctx)
	if err != nil {
		return err
	}
	m, b, err := restore(cfg, snapshot, fetch)
	if err != nil {
		return err
	}
	begin(m, b)
	for batch, err := range batches {
		if err != nil {
			return err
		}
		// A server saves a snapshot before its first record, because the settings are in there.
		if b.Fresh {
			return fmt.Errorf("%w: records without a snapshot before them", store.ErrDamaged)
		}
		if err := replayBatch(m, batch, fetch, each); err != nil {
			return err
		}
	}
	return nil
}

// restore makes the machine that a snapshot shows, or a new one if there is no snapshot.
func restore(cfg coord.Config, snapshot []byte, fetch func(coord.Ref) ([]byte, error)) (*coord.Machine, Beginning, error) {
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

// replayBatch steps a machine through the records of one write.
func replayBatch(m *coord.Machine, batch []byte, fetch func(coord.Ref) ([]byte, error), each func(Step)) error {
	for len(batch) > 0 {
		at, ev, rest, err := m.ReadRecord(batch, fetch)
		if err != nil {
			return err
		}
		each(Step{At: at, Event: ev, Effects: m.Step(at, ev), bytes: len(batch) - len(rest)})
		batch = rest
	}
	return nil
}
