package coord_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// recorded is one event of each kind that can be in a journal, with all fields set.
func recorded() []coord.Event {
	call := coord.Call{
		Req: 7, ID: coord.RequestID{Requester: 1 << 63, Number: 3, Watermark: 2}, Service: 100,
		Task: serry.TaskID{Job: "worker", Index: 1}, Incarnation: 1<<64 - 1, Replayed: true,
	}
	some := []serry.TaskID{{Job: "worker", Index: 3}, {Job: "worker", Index: 4}, {Job: "ps", Index: -1}, {Job: "worker", Index: 4}, {}}
	gone := []serry.Life{{Task: call.Task, Incarnation: 11}}
	return []coord.Event{
		coord.RegisterTask{Call: call, Recoverable: true, Next: 200},
		coord.Heartbeat{Call: call},
		coord.ShutdownTask{Call: call, Recoverable: true},
		coord.ResetTask{Call: call},
		coord.ReportError{Call: call, Code: 13, Text: "bad"},
		coord.PollForError{Call: call},
		coord.InsertKeyValue{Call: call, Key: "k", Value: []byte{}, Overwrite: true},
		coord.IncrementKeyValue{Call: call, Key: "k", By: -5},
		coord.DeleteKeyValue{Call: call, Key: "k"},
		coord.SwapKeyValue{Call: call, Key: "k", New: []byte("new")},
		coord.Barrier{Call: call, ID: "b", Counter: -1, Timeout: time.Hour, Tasks: some, Recoverable: true},
		coord.CancelBarrier{Call: call, ID: "b", Counter: 4},
		coord.GetAliveTasks{Call: call, Tasks: some, Word: []byte("w")},
		coord.Suspect{Call: call, Peer: serry.Life{Task: some[0], Incarnation: 12}, Hard: true, Evidence: "signal 9", DropsResults: true},
		coord.WaitForAllTasks{Call: call, Devices: []byte("d")},
		coord.Tick{},
		coord.Cancel{Req: 9},
		coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: call.Task, Incarnation: 11}, Evidence: "signal 9"}}, DropsResults: true},
		coord.Exited{Tasks: gone},
		coord.Departed{Tasks: gone, DropsResults: true},
		coord.Acknowledge{Requester: 5, Watermark: 6, Farewell: true},
		coord.OpenEpoch{Service: 200, Jobs: []coord.Job{{Name: "worker", Tasks: 2}}},
		coord.Stop{},
		coord.Resume{},
	}
}

// TestRecords holds every event to come back from its record, and the record to be the same again.
func TestRecords(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "C-LOG-4")
	var journal []byte
	for i, ev := range recorded() {
		filled(t, ev)
		journal = coord.AppendRecord(journal, coord.Time(i), ev, nil)
	}
	rest := journal
	for i, want := range recorded() {
		at, got, after, err := coord.ReadRecord(rest, nil)
		if err != nil {
			t.Fatalf("ReadRecord() of %T: %v", want, err)
		}
		if diff := gocmp.Diff(want, got); diff != "" || at != coord.Time(i) {
			t.Errorf("ReadRecord() of %T at %d, want %d (-want +got):\n%s", want, at, i, diff)
		}
		if record := rest[:len(rest)-len(after)]; !bytes.Equal(coord.AppendRecord(nil, at, got, nil), record) {
			t.Errorf("%T is written in another way after it was read", want)
		}
		rest = after
	}
}

// filled checks that a test sets every field of a call's event, so that none is forgotten in records.
func filled(t *testing.T, ev coord.Event) {
	t.Helper()
	v := reflect.ValueOf(ev)
	for i := range v.NumField() {
		if _, swap := ev.(coord.SwapKeyValue); v.Field(i).IsZero() && !swap {
			t.Errorf("%T: field %s is not set", ev, v.Type().Field(i).Name)
		}
	}
}

// TestReadsLeaveNoRecord: C-LOG-1, and NEW-44 for the kinds of calls.
func TestReadsLeaveNoRecord(t *testing.T) {
	lab.Clause(t, "C-LOG-1", "NEW-44")
	m := coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, Service: 100})
	call := coord.Call{Req: 1, Task: serry.TaskID{Job: "worker"}, Incarnation: 10, ID: coord.RequestID{Requester: 7, Number: 9}}
	steps := []struct {
		name string
		ev   coord.Event
		want coord.Event
	}{
		{"a registration", coord.RegisterTask{Call: call}, coord.RegisterTask{Call: call}},
		{"a good heartbeat", coord.Heartbeat{Call: call}, nil},
		{"the first poll", coord.PollForError{Call: call}, coord.PollForError{Call: call}},
		{"the second poll", coord.PollForError{Call: call}, nil},
		{"a poll that is given up", coord.Cancel{Req: 1}, nil},
		{"a watch of tasks", coord.WatchTasks{Call: call, Version: -1}, nil},
		{"states", coord.GetTaskState{Call: call, Tasks: []serry.TaskID{call.Task}}, nil},
		{"a get that waits", coord.GetKeyValue{Call: call, Key: "k"}, nil},
		{"a get", coord.TryGetKeyValue{Call: call, Key: "k"}, nil},
		{"a directory", coord.GetKeyValueDir{Call: call, Dir: "k"}, nil},
		{"a watch of keys", coord.WatchKeys{Call: call, After: -1}, nil},
		{"a list of keys", coord.ListKeys{Call: call}, nil},
		{"status", coord.GetStatus{Call: call}, nil},
		{"soft evidence", coord.Suspect{Call: coord.Call{Task: call.Task}, Peer: serry.Life{Task: call.Task}}, nil},
		{"a refused reset", coord.ResetTask{Call: coord.Call{Req: 2, Task: serry.TaskID{Job: "worker", Index: 1}}}, nil},
		{"a loss of nobody", coord.Lost{Tasks: []coord.Loss{{Life: serry.Life{Task: call.Task, Incarnation: 99}}}}, nil},
		{"a tick", coord.Tick{}, nil},
	}
	for _, s := range steps {
		m.Step(0, s.ev)
		if got, ok := m.Journaled(); ok != (s.want != nil) || !gocmp.Equal(got, s.want) {
			t.Errorf("%s: Journaled() = %T%+v; want %+v", s.name, got, got, s.want)
		}
	}
}

// TestTimeIsJournaled: while a deadline is pending the journal knows the time to a second, and a deadline
// that fires during a read leaves a Tick.
func TestTimeIsJournaled(t *testing.T) {
	lab.Clause(t, "C-TIME-1", "C-LOG-1", "NEW-47")
	cfg := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 2}}, Service: 100}
	m := coord.New(cfg)
	call := coord.Call{Req: 1, Task: serry.TaskID{Job: "worker"}, Incarnation: 10}
	read := coord.TryGetKeyValue{Key: "k"}
	second := coord.Time(time.Second)
	steps := []struct {
		at   coord.Time
		ev   coord.Event
		want string
	}{
		{0, coord.RegisterTask{Call: call}, "coord.RegisterTask"},
		{5 * second, coord.Tick{}, "<nil>"}, // nothing is pending
		{5 * second, coord.Barrier{Call: call, ID: "b", Timeout: 10 * time.Second}, "coord.Barrier"},
		{6*second - 1, coord.Tick{}, "<nil>"},
		{6 * second, coord.Tick{}, "coord.Tick"},
		{6*second + 1, coord.Tick{}, "<nil>"},
		{9 * second, read, "coord.Tick"},
		{9*second + 5, read, "<nil>"},
		{15*second + 1, read, "coord.Tick"}, // it fires
		{99 * second, read, "<nil>"},
	}
	for _, s := range steps {
		m.Step(s.at, s.ev)
		if got, _ := m.Journaled(); fmt.Sprintf("%T", got) != s.want {
			t.Errorf("at %v: Journaled() = %T; want %s", time.Duration(s.at), got, s.want)
		}
		heir, err := coord.Restore(cfg, m.Snapshot(nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, pending := m.Deadline(); pending && m.Now()-heir.Now() >= second {
			t.Errorf("at %v: Restore().Now() = %v; want less than a second before", m.Now(), heir.Now())
		}
	}
}

// A shelf keeps values aside.
type shelf map[coord.Ref][]byte

func (s shelf) put(value []byte) coord.Ref {
	ref := coord.Ref{Digest: sha256.Sum256(value), Size: int64(len(value))}
	s[ref] = value
	return ref
}

func (s shelf) get(ref coord.Ref) ([]byte, error) {
	if v, ok := s[ref]; ok {
		return v, nil
	}
	return nil, errors.New("not there")
}

// TestLargeValuesAreKeptAside: records and snapshots stay small, and what was put aside must be there.
func TestLargeValuesAreKeptAside(t *testing.T) {
	lab.Clause(t, "C-LOG-5")
	cfg := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100}
	m, aside := coord.New(cfg), make(shelf)
	small, large := bytes.Repeat([]byte("s"), coord.AsideBytes), bytes.Repeat([]byte("l"), coord.AsideBytes+1)
	m.Step(0, coord.InsertKeyValue{Key: "small", Value: small})
	m.Step(0, coord.InsertKeyValue{Key: "large", Value: large})
	m.Step(0, coord.WaitForAllTasks{Call: coord.Call{Task: serry.TaskID{Job: "worker"}}, Devices: large})

	record := coord.AppendRecord(nil, 0, coord.InsertKeyValue{Key: "large", Value: large}, aside.put)
	snapshot := m.Snapshot(aside.put)
	if len(record) > 200 || len(snapshot) > coord.AsideBytes+400 || len(aside) != 1 {
		t.Errorf("a record of %d bytes, a snapshot of %d, %d values aside; want the large value once, aside", len(record), len(snapshot), len(aside))
	}
	if _, ev, _, err := coord.ReadRecord(record, aside.get); err != nil || !bytes.Equal(ev.(coord.InsertKeyValue).Value, large) {
		t.Errorf("ReadRecord() = %v; want the large value", err)
	}
	heir, err := coord.Restore(cfg, snapshot, aside.get)
	if err != nil || !bytes.Equal(heir.Snapshot(nil), m.Snapshot(nil)) {
		t.Errorf("Restore() = %v; want the same machine", err)
	}
	for name, fetch := range map[string]func(coord.Ref) ([]byte, error){
		"no such value": make(shelf).get,
		"no such place": nil,
		"wrong size":    func(coord.Ref) ([]byte, error) { return small, nil },
	} {
		if _, _, _, err := coord.ReadRecord(record, fetch); err == nil {
			t.Errorf("%s: ReadRecord() succeeds; want an error", name)
		}
		if _, err := coord.Restore(cfg, snapshot, fetch); err == nil {
			t.Errorf("%s: Restore() succeeds; want an error", name)
		}
	}
}

// TestDamage: whichever byte of a record or a snapshot changes, or is missing, it is refused.
func TestDamage(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	l := newLegend(randomBytes(3, 900))
	if err := l.tell(); err != nil {
		t.Fatal(err)
	}
	snapshot := l.machine.Snapshot(nil)
	record := coord.AppendRecord(nil, 5, recorded()[0], nil)
	refuses := func(what string, snapshot, record []byte) {
		t.Helper()
		if _, err := coord.Restore(l.cfg, snapshot, nil); err == nil {
			t.Errorf("Restore() with %s succeeds; want an error", what)
		}
		if _, _, _, err := coord.ReadRecord(record, nil); err == nil {
			t.Errorf("ReadRecord() with %s succeeds; want an error", what)
		}
	}
	for i := range snapshot {
		for _, bit := range []byte{1, 0x80} {
			changed, other := slices.Clone(snapshot), slices.Clone(record)
			changed[i] ^= bit
			other[i%len(record)] ^= bit
			refuses(fmt.Sprintf("byte %d changed", i), changed, other)
		}
		refuses(fmt.Sprintf("%d bytes", i), snapshot[:i], record[:i%len(record)])
	}
	if _, err := coord.Restore(l.cfg, append(snapshot, 0), nil); err == nil {
		t.Error("Restore() with a byte too many succeeds; want an error")
	}
}

// C-LOG-4: records and snapshots of the version before are read, also among those of this one, which is
// what an upgrade leaves; those of the next version are refused, and the error says what to do.
func TestVersions(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	l := newLegend(randomBytes(3, 900))
	if err := l.tell(); err != nil {
		t.Fatal(err)
	}
	as := func(b []byte, version uint64) []byte {
		again, err := coord.AsVersion(b, version)
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	snapshot, record := l.machine.Snapshot(nil), coord.AppendRecord(nil, 5, recorded()[0], nil)
	read := func(version uint64) (ofSnapshot, ofRecord error) {
		_, ofSnapshot = coord.Restore(l.cfg, as(snapshot, version), nil)
		_, _, _, ofRecord = coord.ReadRecord(as(record, version), nil)
		return ofSnapshot, ofRecord
	}
	for version := uint64(coord.OldestVersion); version <= coord.Version; version++ {
		if s, r := read(version); s != nil || r != nil {
			t.Errorf("version %d: Restore() = %v, ReadRecord() = %v; want both read", version, s, r)
		}
	}
	if coord.OldestVersion != coord.Version-1 {
		t.Errorf("the oldest version read is %d; want the one before %d", coord.OldestVersion, coord.Version)
	}
	for version, do := range map[uint64]string{coord.Version + 1: "newer serry", coord.OldestVersion - 1: "earlier version"} {
		s, r := read(version)
		for _, err := range []error{s, r} {
			ve, ok := errors.AsType[*coord.VersionError](err)
			if !ok || ve.Version != version || ve.Newest != coord.Version || !strings.Contains(err.Error(), do) {
				t.Errorf("version %d is read with %v; want a VersionError that says %q", version, err, do)
			}
		}
	}
}

// TestNextVersion: a machine that stands for the next version goes on with the journal of this one, and
// this one refuses what it has written.
func TestNextVersion(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	cfg := coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 1}
	next := cfg
	next.NextVersion = true
	m := coord.New(cfg)
	later, err := coord.Restore(next, m.Snapshot(nil), nil)
	if err != nil {
		t.Fatalf("the next version does not read a snapshot of this one: %v", err)
	}
	ev := recorded()[0]
	if _, _, _, err := later.ReadRecord(m.AppendRecord(nil, ev, nil), nil); err != nil {
		t.Errorf("the next version does not read a record of this one: %v", err)
	}
	if _, err := coord.Restore(next, later.Snapshot(nil), nil); err != nil {
		t.Errorf("the next version does not read its own snapshot: %v", err)
	}
	if _, err := coord.Restore(cfg, later.Snapshot(nil), nil); !newerVersion(err) {
		t.Errorf("Restore() of a snapshot of the next version = %v; want a VersionError", err)
	}
	if _, _, _, err := m.ReadRecord(later.AppendRecord(nil, ev, nil), nil); !newerVersion(err) {
		t.Errorf("ReadRecord() of a record of the next version = %v; want a VersionError", err)
	}
}

// newerVersion says whether an error names the next version as the one that is not read.
func newerVersion(err error) bool {
	ve, ok := errors.AsType[*coord.VersionError](err)
	return ok && ve.Version == coord.Version+1
}

// FuzzReadRecord: any bytes are a record or an error, and what was read is written the same.
func FuzzReadRecord(f *testing.F) {
	for _, ev := range recorded() {
		body, err := coord.Unseal(coord.AppendRecord(nil, 5, ev, nil))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		at, ev, _, err := coord.ReadRecord(coord.Seal(body), nil)
		if err != nil {
			return
		}
		written := coord.AppendRecord(nil, at, ev, nil)
		_, again, _, err := coord.ReadRecord(written, nil)
		if err != nil || !gocmp.Equal(ev, again) {
			t.Errorf("%T%+v comes back as %T%+v, %v", ev, ev, again, again, err)
		}
	})
}

// FuzzRestore: any bytes are a machine or an error. A machine can be written down again, and does not
// break when it goes on, whatever it was told of its past.
func FuzzRestore(f *testing.F) {
	for seed := range uint64(8) {
		l := newLegend(randomBytes(seed, 400))
		if err := l.tell(); err != nil {
			f.Fatal(err)
		}
		for _, j := range l.journals {
			body, err := coord.Unseal(j.snapshot)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	cfg := newStory(nil).cfg
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := coord.Restore(cfg, coord.Seal(body), nil)
		if err != nil {
			return
		}
		written := m.Snapshot(nil)
		again, err := coord.Restore(cfg, written, nil)
		if err != nil || !bytes.Equal(again.Snapshot(nil), written) {
			t.Errorf("a machine that was restored cannot be again: %v", err)
		}
		for _, ev := range []coord.Event{coord.Resume{}, coord.Tick{}, coord.Stop{}, coord.OpenEpoch{Service: 7}} {
			m.Step(m.Now()+coord.Time(time.Hour), ev)
		}
	})
}

// TestEveryErrorHasANumber: what a machine answers must fit into a snapshot.
func TestEveryErrorHasANumber(t *testing.T) {
	lab.Clause(t, "C-LOG-4")
	source, err := os.ReadFile("../errors.go")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(coord.Sentinels()), strings.Count(string(source), "= errors.New("); got != want {
		t.Errorf("%d plain errors have a number; want all %d of package serry", got, want)
	}
}

// TestNoBrokenSnapshot: what cannot be written down is a fault of the program, which ends it as it does
// for a record. A snapshot with a hole in it would be found only after the next restart.
func TestNoBrokenSnapshot(t *testing.T) {
	lab.Clause(t, "C-LOG-3", "C-LOG-4")
	m := coord.New(coord.Config{Jobs: []coord.Job{{Name: "worker", Tasks: 1}}, Service: 100})
	m.Step(math.MaxInt64, coord.InsertKeyValue{Key: "k"}) // no service lives that long
	defer func() {
		if recover() == nil {
			t.Error("Snapshot() of a time that no reader takes returned; want a panic")
		}
	}()
	m.Snapshot(nil)
}
