package coord_test

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// TestEveryChangeIsJournaled: there is no event that changes the bytes of a snapshot and leaves no record. The
// machine marks its state as changed by hand, in many places; this test shows that no place is missing.
func TestEveryChangeIsJournaled(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "C-TIME-1")
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 50, 1200).Draw(t, "story")
		if err := journalsEveryChange(data, func(coord.Kind) {}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEveryKindIsJournaled is the same over stories that are always the same. In them each kind of event that
// can change state does so, and no kind that cannot is journaled.
func TestEveryKindIsJournaled(t *testing.T) {
	lab.Clause(t, "C-LOG-1")
	records := make(map[coord.Kind]int)
	for seed := range uint64(150) {
		err := journalsEveryChange(randomBytes(seed, 1200), func(k coord.Kind) { records[k]++ })
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for _, ev := range recorded() {
		if records[coord.KindOf(ev)] == 0 {
			t.Errorf("no %T was journaled", ev)
		}
	}
	for _, ev := range reads() {
		if records[coord.KindOf(ev)] > 0 {
			t.Errorf("%T was journaled; want it to change nothing", ev)
		}
	}
}

// journalsEveryChange plays a story. After each event it compares the snapshot with what the record of the
// event, and nothing else, makes of the snapshot before: where there is no record the two must be equal.
func journalsEveryChange(data []byte, journaled func(coord.Kind)) error {
	l := newLegend(data)
	before := l.machine.Snapshot(nil)
	for len(l.bytes) > 0 {
		ev := l.next()
		effects := l.machine.Step(l.now, ev)
		if err := l.check(ev, effects); err != nil {
			return err
		}
		l.count(ev, effects)
		after, want := l.machine.Snapshot(nil), before
		record, ok := l.machine.Journaled()
		if ok {
			journaled(coord.KindOf(record))
			m, err := coord.Restore(l.cfg, before, nil)
			if err != nil {
				return err
			}
			m.Step(l.now, record)
			want = m.Snapshot(nil)
		}
		if !bytes.Equal(after, want) {
			return fmt.Errorf("%T%+v left the record %T, which does not lead to the snapshot after it", ev, ev, record)
		}
		before = after
	}
	return nil
}
