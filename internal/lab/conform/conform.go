// Package conform holds the stores to what package store promises. It is for tests.
package conform

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// A Rig is a journal under test, that processes open and die with.
type Rig struct {
	// Open opens the store as another process would.
	Open func(t *testing.T) store.Store
	// Kill ends the process that has the store open, without a farewell. Its leadership ends, too, sooner
	// or later.
	Kill func(t *testing.T, st store.Store)
	// Leftovers counts the parts of values and snapshots, whether anything names them or not.
	Leftovers func(t *testing.T) int
	// Alone says that a second process cannot open the store meanwhile.
	Alone bool
	// Whole says that values are not written in parts.
	Whole bool
	// PartBytes is the size above which things are written in parts.
	PartBytes int
}

// Run runs the table of behaviours, each on a new rig. The caller names the clauses that it relies on
// them for: exactly those of the table.
func Run(t *testing.T, clauses []string, rig func(t *testing.T) Rig) {
	held := make(map[string]bool)
	for _, b := range behaviours() {
		clause, _, _ := strings.Cut(b.name, " ")
		held[clause] = true
		t.Run(b.name, func(t *testing.T) { b.run(t, rig(t)) })
	}
	if got := slices.Sorted(maps.Keys(held)); !slices.Equal(got, clauses) {
		t.Errorf("the behaviours are those of %q; want %q", got, clauses)
	}
}

// A behaviour is something that every store does.
type behaviour struct {
	name string // the clause, and what it shows
	run  func(t *testing.T, r Rig)
}

func behaviours() []behaviour {
	return []behaviour{
		{"C-LOG-3 a new journal is empty", empty},
		{"C-LOG-2 what was appended is loaded in order", appended},
		{"C-LOG-3 what was appended outlives a crash", crash},
		{"C-LOG-4 a snapshot takes the place of the batches before it", snapshot},
		{"C-LOG-4 a journal goes on while a snapshot is saved", meanwhile},
		{"C-LOG-4 a crash while a snapshot is saved", halfSaved},
		{"C-LOG-5 batches and snapshots in parts", large},
		{"C-TERM-1 terms ascend", terms},
		{"C-TERM-1 a store keeps its number", numbered},
		{"C-TERM-2 who was deposed can do nothing", fence},
		{"C-TERM-2 who resigned can do nothing", resigned},
		{"C-TERM-3 one leads, the others wait", waiting},
		{"C-TERM-3 news of who leads", news},
		{"C-LOG-5 values aside", values},
		{"C-LOG-5 garbage goes, what may be needed stays", garbage},
		{"NEW-53 a crash between parts and commit", torn},
		{"NEW-45 an append that failed is the last", failed},
		{"C-LOG-3 export", exported},
		{"C-LIM-2 a value over the limit", limit},
		{"C-TERM-2 a closed store does nothing", closed},
	}
}

// Campaign leads, or fails the test.
func Campaign(t *testing.T, st store.Store, address string) store.Reign {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	r, err := st.Campaign(ctx, store.Candidate{Address: address})
	if err != nil {
		t.Fatalf("Campaign(%q) = %v", address, err)
	}
	return r
}

// A Loaded is what Load has found.
type Loaded struct {
	Snapshot string
	Saved    bool // there was a snapshot
	Batches  []string
}

// Load reads all of a journal, or fails the test.
func Load(t *testing.T, j store.Journal) Loaded {
	t.Helper()
	snapshot, batches, err := j.Load(t.Context())
	if err != nil {
		t.Fatalf("Load() = %v", err)
	}
	l := Loaded{Snapshot: string(snapshot), Saved: snapshot != nil}
	for b, err := range batches {
		if err != nil {
			t.Fatalf("Load(): batch %d: %v", len(l.Batches), err)
		}
		l.Batches = append(l.Batches, string(b))
	}
	return l
}

func want(t *testing.T, j store.Journal, w Loaded) {
	t.Helper()
	if diff := cmp.Diff(w, Load(t, j)); diff != "" {
		if len(diff) > 2000 {
			diff = diff[:2000]
		}
		t.Fatalf("Load() differs (-want +got):\n%s", diff)
	}
}

// Append appends, or fails the test.
func Append(t *testing.T, r store.Reign, batches ...string) {
	t.Helper()
	for _, b := range batches {
		if err := r.Append(t.Context(), []byte(b)); err != nil {
			t.Fatalf("Append(%d bytes) = %v", len(b), err)
		}
	}
}

func save(t *testing.T, r store.Reign, snapshot string, keep ...coord.Ref) {
	t.Helper()
	if err := r.Save(t.Context(), r.Mark(), []byte(snapshot), keep); err != nil {
		t.Fatalf("Save(%d bytes) = %v", len(snapshot), err)
	}
}

// Bytes are n bytes that look like nothing else.
func Bytes(seed string, n int) []byte {
	out := make([]byte, 0, n+32)
	for sum := sha256.Sum256([]byte(seed)); len(out) < n; sum = sha256.Sum256(sum[:]) {
		out = append(out, sum[:]...)
	}
	return out[:n]
}

// Put puts a value, or fails the test.
func Put(t *testing.T, r store.Reign, value []byte) coord.Ref {
	t.Helper()
	ref := Ref(value)
	if err := r.Put(t.Context(), ref, value); err != nil {
		t.Fatalf("Put(%d bytes) = %v", len(value), err)
	}
	return ref
}

// Ref is what stands for a value.
func Ref(value []byte) coord.Ref {
	return coord.Ref{Digest: sha256.Sum256(value), Size: int64(len(value))}
}

func got(t *testing.T, j store.Journal, value []byte) {
	t.Helper()
	b, err := j.Get(t.Context(), Ref(value))
	if err != nil || !bytes.Equal(b, value) {
		t.Fatalf("Get() = %d bytes, %v; want the %d bytes that were put", len(b), err, len(value))
	}
}

func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s = %v; want %v", what, err, want)
	}
}

func empty(t *testing.T, rig Rig) {
	r := Campaign(t, rig.Open(t), "a")
	want(t, r, Loaded{})
	if err := r.Confirm(t.Context()); err != nil {
		t.Fatalf("Confirm() = %v", err)
	}
	for ref, err := range r.Values(t.Context()) {
		t.Fatalf("Values() yields %v, %v; want nothing", ref, err)
	}
}

func appended(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	var all []string
	for i := range 100 {
		all = append(all, fmt.Sprint("batch ", i))
	}
	all[50] = "" // a batch may be empty, and is one
	Append(t, r, all...)
	want(t, r, Loaded{Batches: all})
	if err := r.Resign(t.Context()); err != nil {
		t.Fatalf("Resign() = %v", err)
	}
	r = Campaign(t, st, "a")
	Append(t, r, "one more")
	want(t, r, Loaded{Batches: append(all, "one more")})
}

func crash(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	Append(t, r, "one", "two")
	rig.Kill(t, st)
	st = rig.Open(t)
	r = Campaign(t, st, "b")
	want(t, r, Loaded{Batches: []string{"one", "two"}})
	save(t, r, "both")
	Append(t, r, "three")
	rig.Kill(t, st)
	want(t, Campaign(t, rig.Open(t), "c"), Loaded{Snapshot: "both", Saved: true, Batches: []string{"three"}})
}

func snapshot(t *testing.T, rig Rig) {
	r := Campaign(t, rig.Open(t), "a")
	save(t, r, "") // of nothing
	want(t, r, Loaded{Saved: true})
	Append(t, r, "one", "two")
	save(t, r, "one and two")
	want(t, r, Loaded{Snapshot: "one and two", Saved: true})
	Append(t, r, "three")
	want(t, r, Loaded{Snapshot: "one and two", Saved: true, Batches: []string{"three"}})
	save(t, r, "all")
	save(t, r, "all again")
	Append(t, r, "four", "five")
	want(t, r, Loaded{Snapshot: "all again", Saved: true, Batches: []string{"four", "five"}})
}

func meanwhile(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	Append(t, r, "one", string(Bytes("covered", 2*rig.PartBytes)), "three")
	for round := range 3 { // the second and third find what the one before left
		at := r.Mark()
		after := []string{"small", string(Bytes(fmt.Sprint("large", round), 2*rig.PartBytes+1))}
		Append(t, r, after...)
		big := string(Bytes(fmt.Sprint("snapshot", round), 5*rig.PartBytes+5))
		saved := make(chan error, 1)
		go func() { saved <- r.Save(t.Context(), at, []byte(big), nil) }()
		for i := 0; ; i++ {
			select {
			case err := <-saved:
				if err != nil {
					t.Fatalf("Save() of round %d = %v", round, err)
				}
				Append(t, r, "last")
				after = append(after, "last")
				want(t, r, Loaded{Snapshot: big, Saved: true, Batches: after})
			default:
				after = append(after, fmt.Sprint("batch ", i))
				Append(t, r, after[len(after)-1])
				continue
			}
			break
		}
		if round == 2 {
			rig.Kill(t, st)
			want(t, Campaign(t, rig.Open(t), "b"), Loaded{Snapshot: big, Saved: true, Batches: after})
		}
	}
}

func halfSaved(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	save(t, r, "nothing")
	Append(t, r, "one", "two")
	before := Loaded{Snapshot: "nothing", Saved: true, Batches: []string{"one", "two"}}
	if !rig.Whole {
		interrupt(t, rig, "Save()", func(ctx context.Context, i int) error {
			big := Bytes(fmt.Sprint("snapshot", i), 200*rig.PartBytes)
			err := r.Save(ctx, r.Mark(), big, nil)
			if err == nil { // too fast
				before = Loaded{Snapshot: string(big), Saved: true}
			}
			return err
		})
	}
	want(t, r, before)
	rig.Kill(t, st)
	r = Campaign(t, rig.Open(t), "b")
	want(t, r, before)
	Append(t, r, "three")
	save(t, r, "small")
	want(t, r, Loaded{Snapshot: "small", Saved: true})
	if left := rig.Leftovers(t); left > 1 {
		t.Errorf("%d parts are left after a snapshot of one", left)
	}
}

func large(t *testing.T, rig Rig) {
	r := Campaign(t, rig.Open(t), "a")
	n := rig.PartBytes
	var all []string
	for i, size := range []int{n - 1, n, n + 1, 3*n + 7} {
		all = append(all, string(Bytes(fmt.Sprint("batch", i), size)), "small")
	}
	Append(t, r, all...)
	want(t, r, Loaded{Batches: all})
	big := string(Bytes("snapshot", 2*n+5))
	save(t, r, big)
	Append(t, r, all[7], all[6])
	want(t, r, Loaded{Snapshot: big, Saved: true, Batches: []string{all[7], all[6]}})
	save(t, r, "small")
	if left := rig.Leftovers(t); left > 1 {
		t.Errorf("%d parts are left after a snapshot of one", left)
	}
}

func terms(t *testing.T, rig Rig) {
	last := uint64(0)
	for range 3 {
		st := rig.Open(t)
		for range 2 {
			r := Campaign(t, st, "a")
			if r.Term() <= last {
				t.Fatalf("Term() = %d after %d", r.Term(), last)
			}
			last = r.Term()
			if l, err := st.Leader(t.Context()); err != nil || l != (store.Leader{Address: "a", Term: last}) {
				t.Fatalf("Leader() = %v, %v; want a of term %d", l, err, last)
			}
			if err := r.Resign(t.Context()); err != nil {
				t.Fatalf("Resign() = %v", err)
			}
		}
		if _, err := st.Leader(t.Context()); !errors.Is(err, store.ErrNoLeader) {
			t.Fatalf("Leader() = %v; want %v", err, store.ErrNoLeader)
		}
		if err := st.Close(); err != nil {
			t.Fatalf("Close() = %v", err)
		}
	}
}

// numbered checks that the number of a store is drawn once, and outlives its processes.
func numbered(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	id := r.Store()
	if err := r.Resign(t.Context()); err != nil || id == 0 {
		t.Fatalf("Store() = %d, Resign() = %v; want a number", id, err)
	}
	if got := Campaign(t, st, "a").Store(); got != id {
		t.Fatalf("Store() = %d in the second reign; want %d, as in the first", got, id)
	}
	rig.Kill(t, st)
	if got := Campaign(t, rig.Open(t), "b").Store(); got != id {
		t.Fatalf("Store() = %d after a crash; want %d, as before", got, id)
	}
}

// powerless checks that a reign that is over can write nothing, and confirm nothing.
func powerless(t *testing.T, r store.Reign) {
	t.Helper()
	ctx := t.Context()
	is(t, "Append()", r.Append(ctx, []byte("too late")), store.ErrDeposed)
	is(t, "Confirm()", r.Confirm(ctx), store.ErrDeposed)
	is(t, "Put()", r.Put(ctx, Ref([]byte("late")), []byte("late")), store.ErrDeposed)
	is(t, "Save()", r.Save(ctx, r.Mark(), []byte("too late"), nil), store.ErrDeposed)
	<-r.Deposed()
}

func fence(t *testing.T, rig Rig) {
	a := rig.Open(t)
	old := Campaign(t, a, "a")
	Append(t, old, "one")
	if rig.Alone {
		err := a.Depose(t.Context(), store.Leader{Address: "a", Term: old.Term()})
		is(t, "Depose()", err, errors.ErrUnsupported)
		return
	}
	b := rig.Open(t)
	if err := b.Depose(t.Context(), store.Leader{Address: "a", Term: old.Term() + 1000}); err != nil { // of nobody
		t.Fatalf("Depose() = %v", err)
	}
	Append(t, old, "two")
	if err := b.Depose(t.Context(), store.Leader{Address: "a", Term: old.Term()}); err != nil {
		t.Fatalf("Depose() = %v", err)
	}
	r := Campaign(t, b, "b")
	Append(t, r, "three")
	powerless(t, old)
	want(t, r, Loaded{Batches: []string{"one", "two", "three"}})
	if err := r.Confirm(t.Context()); err != nil {
		t.Fatalf("Confirm() = %v", err)
	}
}

func resigned(t *testing.T, rig Rig) {
	st := rig.Open(t)
	old := Campaign(t, st, "a")
	Append(t, old, "one")
	for range 2 {
		if err := old.Resign(t.Context()); err != nil {
			t.Fatalf("Resign() = %v", err)
		}
	}
	powerless(t, old)
	r := Campaign(t, st, "a")
	powerless(t, old)
	want(t, r, Loaded{Batches: []string{"one"}})
}

func waiting(t *testing.T, rig Rig) {
	a := rig.Open(t)
	r := Campaign(t, a, "a")
	b := a
	if !rig.Alone {
		b = rig.Open(t)
	}
	gaveUp := errors.New("gave up")
	ctx, cancel := context.WithCancelCause(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := b.Campaign(ctx, store.Candidate{Address: "b"})
		answer <- err
	}()
	cancel(gaveUp)
	is(t, "Campaign()", <-answer, gaveUp)

	won := make(chan store.Reign, 1)
	go func() {
		r, _ := b.Campaign(context.WithoutCancel(ctx), store.Candidate{Address: "b"})
		won <- r
	}()
	Append(t, r, "while another waits")
	if err := r.Confirm(t.Context()); err != nil {
		t.Fatalf("Confirm() = %v", err)
	}
	if err := r.Resign(t.Context()); err != nil {
		t.Fatalf("Resign() = %v", err)
	}
	next := <-won
	if next == nil || next.Term() <= r.Term() {
		t.Fatalf("Campaign() after Resign() = %v", next)
	}
	want(t, next, Loaded{Batches: []string{"while another waits"}})
}

func news(t *testing.T, rig Rig) {
	st := rig.Open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leaders := st.Watch(ctx)
	if l := <-leaders; l != (store.Leader{}) {
		t.Fatalf("Watch() sends %v; want nobody", l)
	}
	r := Campaign(t, st, "a")
	if l := <-leaders; l != (store.Leader{Address: "a", Term: r.Term()}) {
		t.Fatalf("Watch() sends %v; want a of term %d", l, r.Term())
	}
	if err := r.Resign(ctx); err != nil {
		t.Fatalf("Resign() = %v", err)
	}
	r = Campaign(t, st, "c")
	for l := range leaders { // a reader may miss what is over
		if l == (store.Leader{Address: "c", Term: r.Term()}) {
			break
		}
	}
	cancel()
	for range leaders {
	}
}

func values(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	all := [][]byte{Bytes("v", rig.PartBytes), Bytes("w", 3*rig.PartBytes+1), {}, []byte("short")}
	var refs []coord.Ref
	for _, v := range all {
		refs = append(refs, Put(t, r, v))
		Put(t, r, v) // once more is not too much
	}
	rig.Kill(t, st)
	r = Campaign(t, rig.Open(t), "b")
	for _, v := range all {
		got(t, r, v)
	}
	_, err := r.Get(t.Context(), Ref([]byte("never put")))
	is(t, "Get()", err, store.ErrNoValue)
	if err := r.Put(t.Context(), refs[0], []byte("another size")); err == nil {
		t.Error("Put() takes a value that is not as long as its ref says")
	}
	var listed []coord.Ref
	for ref, err := range r.Values(t.Context()) {
		if err != nil {
			t.Fatalf("Values() = %v", err)
		}
		listed = append(listed, ref)
	}
	slices.SortFunc(refs, func(a, b coord.Ref) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
	if diff := cmp.Diff(refs, listed); diff != "" {
		t.Errorf("Values() differ (-want +got):\n%s", diff)
	}
}

func garbage(t *testing.T, rig Rig) {
	st := rig.Open(t)
	old := []byte("of an earlier reign")
	Put(t, Campaign(t, st, "a"), old)
	kept := []byte("of an earlier reign, and named")
	rig.Kill(t, st)
	r := Campaign(t, rig.Open(t), "b")
	Put(t, r, kept)
	young := Bytes("young", rig.PartBytes+1)
	Put(t, r, young)
	save(t, r, "first", Ref(kept)) // the batch that names young is yet to come
	_, err := r.Get(t.Context(), Ref(old))
	is(t, "Get() of what nothing names", err, store.ErrNoValue)
	got(t, r, young)
	again := []byte("put in time")
	Put(t, r, again)
	save(t, r, "second", Ref(kept))
	got(t, r, kept)
	got(t, r, again)
	_, err = r.Get(t.Context(), Ref(young))
	is(t, "Get() of what nothing has come to name", err, store.ErrNoValue)
	Put(t, r, again) // is there, and young again
	save(t, r, "third")
	got(t, r, again)
	save(t, r, "fourth")
	save(t, r, "fifth")
	for ref := range r.Values(t.Context()) {
		t.Errorf("value %x is left", ref.Digest)
	}
	if left := rig.Leftovers(t); left > 1 {
		t.Errorf("%d parts are left; want those of a snapshot", left)
	}
}

// interrupt tries something that writes parts until it has ended in the midst of it: with some parts
// written, not all.
func interrupt(t *testing.T, rig Rig, what string, try func(ctx context.Context, i int) error) {
	t.Helper()
	for i := range 100 {
		before := rig.Leftovers(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- try(ctx, i) }()
		for rig.Leftovers(t) == before {
		}
		cancel()
		if err := <-done; err != nil {
			return
		}
	}
	t.Fatalf("%s cannot be interrupted", what)
}

func torn(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	Append(t, r, "before")
	value := []byte("never put")
	if !rig.Whole {
		interrupt(t, rig, "Put()", func(ctx context.Context, i int) error {
			value = Bytes(fmt.Sprint("torn", i), 200*rig.PartBytes)
			return r.Put(ctx, Ref(value), value)
		})
	}
	rig.Kill(t, st)
	r = Campaign(t, rig.Open(t), "b")
	want(t, r, Loaded{Batches: []string{"before"}})
	_, err := r.Get(t.Context(), Ref(value))
	is(t, "Get() of what was never complete", err, store.ErrNoValue)
	save(t, r, "after")
	if left := rig.Leftovers(t); left > 1 {
		t.Errorf("%d parts are left; want those of a snapshot", left)
	}
	Put(t, r, value)
	got(t, r, value)
}

func failed(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	Append(t, r, "one")
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	is(t, "Append()", r.Append(ctx, []byte("two")), stopped)
	is(t, "Append()", r.Append(t.Context(), []byte("three")), stopped)
	is(t, "Save()", r.Save(t.Context(), r.Mark(), []byte("all"), nil), stopped)
	rig.Kill(t, st)
	l := Load(t, Campaign(t, rig.Open(t), "b"))
	if len(l.Batches) == 0 || l.Batches[0] != "one" || slices.Contains(l.Batches, "three") {
		t.Fatalf("Load() = %v; want one, and two or not", l)
	}
}

func exported(t *testing.T, rig Rig) {
	r := Campaign(t, rig.Open(t), "a")
	value := Bytes("value", rig.PartBytes+3)
	Append(t, r, "one")
	save(t, r, "snapshot")
	Put(t, r, value)
	Append(t, r, "two", "", "three")
	name := t.TempDir() + "/history"
	Export(t, r, name)
	h, err := store.Read(name)
	if err != nil {
		t.Fatalf("Read() = %v", err)
	}
	defer h.Close()
	want(t, h, Loaded{Snapshot: "snapshot", Saved: true, Batches: []string{"two", "", "three"}})
	got(t, h, value)
}

func limit(t *testing.T, rig Rig) {
	r := Campaign(t, rig.Open(t), "a")
	over := r.MaxValue() + 1
	err := r.Put(t.Context(), coord.Ref{Size: over}, nil) // refused before anybody looks at the bytes
	se, ok := errors.AsType[*store.SizeError](err)
	if !ok || se.Size != over || se.Limit != over-1 {
		t.Fatalf("Put(%d bytes) = %v; want a SizeError with the limit", over, err)
	}
}

func closed(t *testing.T, rig Rig) {
	st := rig.Open(t)
	r := Campaign(t, st, "a")
	leaders := st.Watch(t.Context())
	Append(t, r, "one")
	waits := make(chan error, 1)
	go func() {
		_, err := st.Campaign(context.WithoutCancel(t.Context()), store.Candidate{Address: "again"})
		waits <- err
	}()
	if err := st.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	if err := <-waits; !errors.Is(err, store.ErrClosed) && err != nil {
		t.Errorf("Campaign() while the store is closed = %v; want %v", err, store.ErrClosed)
	}
	for range leaders {
	}
	<-r.Deposed()
	if err := r.Append(t.Context(), []byte("two")); err == nil {
		t.Fatal("Append() after Close() = nil")
	}
	if err := r.Confirm(t.Context()); err == nil {
		t.Fatal("Confirm() after Close() = nil")
	}
	_, err := st.Campaign(t.Context(), store.Candidate{})
	is(t, "Campaign()", err, store.ErrClosed)
	want(t, Campaign(t, rig.Open(t), "b"), Loaded{Batches: []string{"one"}}) // at once: Close resigns
}

// Export writes a journal to a file, or fails the test.
func Export(t *testing.T, j store.Journal, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.Export(t.Context(), f, j), f.Close()); err != nil {
		t.Fatalf("Export() = %v", err)
	}
}
