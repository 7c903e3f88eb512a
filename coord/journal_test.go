package coord_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/coord"
)

// TestJournalIsTheWholeTruth plays stories of every kind of event. The records that a machine asked for,
// and nothing else, must bring another one to the same snapshot, from the first record on and from any
// snapshot in between; and after a restart both must go on alike.
func TestJournalIsTheWholeTruth(t *testing.T) {
	clause(t, "C-LOG-1", "C-LOG-3", "C-REQ-3", "NEW-44", "NEW-46")
	for seed := range uint64(400) {
		if err := retell(randomBytes(seed, 1500)); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// FuzzJournal is the same with any story.
func FuzzJournal(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomBytes(seed, 600))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := retell(data); err != nil {
			t.Fatal(err)
		}
	})
}

// A keeper is a journal: a snapshot, and the records since.
type keeper struct {
	snapshot []byte
	records  []byte
	count    int
}

// retell plays a story with restarts in it.
func retell(data []byte) error {
	s := newStory(data)
	journals := []*keeper{{snapshot: s.machine.Snapshot(nil)}}
	for len(s.bytes) > 0 {
		ev := s.event()
		effects := slices.Clone(s.machine.Step(s.now, ev))
		if err := s.check(ev, effects); err != nil {
			return fmt.Errorf("after %T%+v: %w", ev, ev, err)
		}
		if record, ok := s.machine.Journaled(); ok {
			for _, j := range journals {
				j.records = coord.AppendRecord(j.records, s.machine.Now(), record, nil)
				j.count++
			}
		}
		switch s.byte() {
		case 0:
			journals = append(journals, &keeper{snapshot: s.machine.Snapshot(nil)})
		case 1:
			if err := s.restart(journals); err != nil {
				return err
			}
		}
	}
	return s.restart(journals)
}

// restart replaces the machine by one made from a journal, if all journals agree with it.
func (s *story) restart(journals []*keeper) error {
	var twins []*coord.Machine
	for i, j := range journals {
		twin, err := j.replay(s.cfg)
		if err != nil {
			return fmt.Errorf("journal %d of %d: %w", i, len(journals), err)
		}
		twins = append(twins, twin)
	}
	before := s.machine.Snapshot(nil)
	now := s.now
	for i, twin := range append(twins, s.machine) {
		if i < len(twins) && !bytes.Equal(before, twin.Snapshot(nil)) {
			return fmt.Errorf("journal %d of %d, of %d records, leads to another snapshot:\n%s", i, len(journals), journals[i].count, diffState(s.machine, twin))
		}
		twin.Step(now, coord.Resume{})
	}
	after := s.machine.Snapshot(nil)
	for i, twin := range twins {
		if !bytes.Equal(after, twin.Snapshot(nil)) {
			return fmt.Errorf("journal %d of %d leads to another snapshot after Resume:\n%s", i, len(journals), diffState(s.machine, twin))
		}
	}
	return s.goOn(twins, journals)
}

// diffState shows how two machines differ.
func diffState(a, b *coord.Machine) string {
	return gocmp.Diff(coord.Dump(a), coord.Dump(b))
}

func (j *keeper) replay(cfg coord.Config) (*coord.Machine, error) {
	m, err := coord.Restore(cfg, j.snapshot, nil)
	if err != nil {
		return nil, err
	}
	if again := m.Snapshot(nil); !bytes.Equal(again, j.snapshot) {
		return nil, fmt.Errorf("what was restored is written in another way")
	}
	for rest := j.records; len(rest) > 0; {
		var at coord.Time
		var ev coord.Event
		if at, ev, rest, err = coord.ReadRecord(rest, nil); err != nil {
			return nil, err
		}
		m.Step(at, ev)
		if _, ok := m.Journaled(); !ok {
			return nil, fmt.Errorf("%T%+v was journaled and changes nothing", ev, ev)
		}
	}
	return m, nil
}

func (s *story) goOn(twins []*coord.Machine, journals []*keeper) error {
	clear(s.open)
	s.machine = twins[0]
	for _, j := range journals {
		j.records = coord.AppendRecord(j.records, s.machine.Now(), coord.Resume{}, nil)
		j.count++
	}
	return nil
}
