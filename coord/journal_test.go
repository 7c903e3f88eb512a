package coord_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// TestJournalIsTheWholeTruth plays stories of every kind of event. The records that a machine asks for,
// and nothing else, must bring another one to the same snapshot, from the first record on and from any
// snapshot in between; and after a restart both must go on alike.
func TestJournalIsTheWholeTruth(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "C-LOG-3", "C-REQ-2", "C-REQ-3", "C-REQ-4", "NEW-44", "NEW-46")
	for seed := range uint64(160) {
		if err := newLegend(randomBytes(seed, 1800)).tell(); err != nil {
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
		if err := newLegend(data).tell(); err != nil {
			t.Fatal(err)
		}
	})
}

// A legend is a story that is written down while it is told, and read again now and then.
type legend struct {
	*story
	twin     *coord.Machine // made from a journal at the last restart, or nil
	journals []*keeper
	sent     []coord.Event    // calls with request ids
	plan     []coord.Event    // what comes soon
	counters map[string]int64 // of the next instances of barriers
}

// A keeper is a journal: a snapshot, and the records since.
type keeper struct {
	begin    string // the command of a script that made the machine
	snapshot []byte
	records  []byte
	count    int
}

func newLegend(data []byte) *legend {
	l := &legend{story: newStory(data), counters: make(map[string]int64)}
	l.save()
	return l
}

func (l *legend) tell() error {
	for len(l.bytes) > 0 {
		if err := l.step(l.next()); err != nil {
			return err
		}
		switch l.pick(32) {
		case 0:
			l.save()
		case 1, 2:
			if err := l.restart(); err != nil {
				return err
			}
		}
	}
	return l.restart()
}

// next is a new event, a call that is sent again, or one that all tasks make together: by chance alone
// they would hardly ever meet.
func (l *legend) next() coord.Event {
	var ev coord.Event
	switch n := len(l.sent); {
	case n > 0 && l.pick(6) == 0:
		l.req++
		l.open[l.req] = true
		return sentAs(l.sent[max(0, n-1-l.pick(8))], l.req)
	case len(l.plan) > 0 && l.pick(4) > 0:
		c, _ := coord.CallOf(l.plan[0])
		l.open[c.Req] = c.ID.Requester != 0
		ev, l.plan = l.plan[0], l.plan[1:]
	case l.pick(6) == 0:
		l.meet()
		return coord.Tick{}
	case len(l.open) > 0 && l.pick(8) == 0:
		waiting := slices.Sorted(maps.Keys(l.open))
		return coord.Cancel{Req: waiting[l.pick(len(waiting))]}
	default:
		ev = l.event()
	}
	if c, ok := coord.CallOf(ev); ok && c.ID.Requester != 0 {
		l.sent = append(l.sent, ev)
	}
	return ev
}

// meet plans one call of every task.
func (l *legend) meet() {
	kind, id, inc := l.pick(8), []string{"a", "b"}[l.pick(2)], l.inc()
	all := []serry.TaskID{{Job: "ps", Index: 0}, {Job: "worker", Index: 0}, {Job: "worker", Index: 1}, {Job: "worker", Index: 2}}
	for i, task := range all {
		c := l.call()
		delete(l.open, c.Req) // until it is made
		c.Task, c.Incarnation, c.Service = task, 0, 0
		var ev coord.Event = coord.Barrier{Call: c, ID: id, Counter: l.counters[id], Timeout: 9 * time.Second}
		switch kind {
		case 0, 1:
			c.Incarnation = inc + serry.Incarnation(10*i)
			ev = coord.RegisterTask{Call: c, Next: l.service + 100}
		case 2:
			ev = coord.GetAliveTasks{Call: c, Tasks: all, Word: []byte{byte(i)}}
		case 3:
			ev = coord.WaitForAllTasks{Call: c, Devices: []byte{byte(i)}}
		case 4:
			ev = coord.ShutdownTask{Call: c}
		}
		l.plan = append(l.plan, ev)
	}
}

// sentAs is a call with another handle.
func sentAs(ev coord.Event, req coord.Req) coord.Event {
	v := reflect.New(reflect.TypeOf(ev)).Elem()
	v.Set(reflect.ValueOf(ev))
	v.FieldByName("Call").FieldByName("Req").Set(reflect.ValueOf(req))
	return v.Interface().(coord.Event)
}

// step gives the event to both machines, and writes down what they want to be written down.
func (l *legend) step(ev coord.Event) error {
	effects := slices.Clone(l.machine.Step(l.now, ev))
	record, ok := l.machine.Journaled()
	if err := l.check(ev, effects); err != nil {
		return fmt.Errorf("after %T%+v: %w", ev, ev, err)
	}
	l.count(ev, effects)
	if l.twin != nil {
		again := slices.Clone(l.twin.Step(l.now, ev))
		if _, ok := ev.(coord.Resume); ok { // a deadline may end calls first, of which only one of them knows
			reply := func(e coord.Effect) bool { _, ok := e.(coord.Reply); return ok }
			effects, again = slices.DeleteFunc(effects, reply), slices.DeleteFunc(again, reply)
		}
		if diff := gocmp.Diff(effects, again, sentinels()); diff != "" {
			return fmt.Errorf("%T%+v did something else after a restart:\n%s", ev, ev, diff)
		}
		if again, _ := l.twin.Journaled(); fmt.Sprintf("%T", again) != fmt.Sprintf("%T", record) {
			return fmt.Errorf("%T%+v left the record %T; want %T", ev, ev, again, record)
		}
	}
	if !ok {
		return nil
	}
	if _, isTick := record.(coord.Tick); !isTick && !gocmp.Equal(record, ev) {
		return fmt.Errorf("%T%+v left the record %T%+v; want itself, or a Tick", ev, ev, record, record)
	}
	for _, j := range l.journals {
		j.append(l.machine.Now(), record)
	}
	return nil
}

// count notes which instance of a barrier comes next.
func (l *legend) count(ev coord.Event, effects []coord.Effect) {
	b, ok := ev.(coord.Barrier)
	for _, e := range effects {
		if r, isReply := e.(coord.Reply); ok && isReply && r.Req == b.Req {
			if passed, ok := r.Result.(coord.Passed); ok {
				l.counters[b.ID] = passed.Counter + 1
			}
		}
	}
}

// save begins another journal, which holds the present as a snapshot.
func (l *legend) save() {
	l.journals = append(l.journals, &keeper{snapshot: l.machine.Snapshot(nil)})
	if len(l.journals) > 3 { // the oldest and the newest show most
		l.journals = slices.Delete(l.journals, 1, 2)
	}
}

// restart reads every journal. They must lead to the machine's own state; one of them is the twin from
// now on.
func (l *legend) restart() error {
	present := l.machine.Snapshot(nil)
	for i, j := range l.journals {
		m, err := j.replay(l.cfg)
		if err != nil {
			return fmt.Errorf("journal %d of %d: %w", i, len(l.journals), err)
		}
		if got := m.Snapshot(nil); !bytes.Equal(got, present) {
			return fmt.Errorf("journal %d of %d, of %d records, leads to a snapshot of %d bytes; want the machine's own, %d bytes",
				i, len(l.journals), j.count, len(got), len(present))
		}
		l.twin = m
	}
	if err := l.step(coord.Resume{}); err != nil {
		return err
	}
	if got, want := l.twin.Snapshot(nil), l.machine.Snapshot(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("Resume leads to a snapshot of %d bytes; want %d bytes", len(got), len(want))
	}
	if diff := gocmp.Diff(l.machine.View(), l.twin.View(), sentinels()); diff != "" {
		return fmt.Errorf("View() after a restart:\n%s", diff)
	}
	return nil
}

func (j *keeper) append(at coord.Time, ev coord.Event) {
	j.records = coord.AppendRecord(j.records, at, ev, nil)
	j.count++
}

// replay makes a machine from a journal.
func (j *keeper) replay(cfg coord.Config) (*coord.Machine, error) {
	m, err := coord.Restore(cfg, j.snapshot, nil)
	if err != nil {
		return nil, err
	}
	if again := m.Snapshot(nil); !bytes.Equal(again, j.snapshot) {
		return nil, fmt.Errorf("a snapshot is written in %d other bytes after it was read from %d", len(again), len(j.snapshot))
	}
	for rest := j.records; len(rest) > 0; {
		var at coord.Time
		var ev coord.Event
		if at, ev, rest, err = coord.ReadRecord(rest, nil); err != nil {
			return nil, err
		}
		m.Step(at, ev)
		if _, ok := m.Journaled(); !ok || m.Now() != at {
			return nil, fmt.Errorf("%T%+v at %v was journaled, and would not be again, at %v", ev, ev, at, m.Now())
		}
	}
	return m, nil
}
