package match_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/internal/match"
)

// Ranges are compared with a list of booleans.
func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 24
		var ranges match.Ranges
		var model [size]bool
		for range rapid.IntRange(0, 12).Draw(t, "adds") {
			from := rapid.Int64Range(0, size).Draw(t, "from")
			r := match.Range{From: from, To: rapid.Int64Range(from, size).Draw(t, "to")}
			ranges = ranges.Add(r)
			for i := r.From; i < r.To; i++ {
				model[i] = true
			}
		}
		missing := ranges.Missing(size)
		if !ranges.Within(size) || !missing.Within(size) {
			t.Fatalf("%v and what is missing, %v, are not in order", ranges, missing)
		}
		for i := range int64(size) {
			if has(ranges, i) != model[i] || has(missing, i) == model[i] {
				t.Fatalf("byte %d of %v, missing %v; want it there: %v", i, ranges, missing, model[i])
			}
		}
		if ranges.Bytes()+missing.Bytes() != size {
			t.Fatalf("%v has %d bytes, missing are %d", ranges, ranges.Bytes(), missing.Bytes())
		}
	})
	var many match.Ranges
	for i := range int64(3 * match.MaxRanges) {
		many = many.Add(match.Range{From: 2 * i, To: 2*i + 1})
	}
	if m := many.Missing(1 << 20); len(m) != match.MaxRanges || !m.Within(1<<20) || m[len(m)-1].To != 1<<20 {
		t.Errorf("many gaps are named by %d ranges, the last up to %d", len(m), m[len(m)-1].To)
	}
}

func has(s match.Ranges, i int64) bool {
	for _, r := range s {
		if i >= r.From && i < r.To {
			return true
		}
	}
	return false
}

// Whatever the order in which the two sides post, and become ready, every transfer ends well with its own data.
func TestAnyOrder(t *testing.T) {
	clause.Cite(t, "TR-MAT-2", "TR-ORD-4", "TRT-180", "TRT-186")
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Uint64().Draw(t, "seed"), 0)
		w.loss = 0
		w.present.up()
		n := rapid.IntRange(1, 30).Draw(t, "transfers")
		halves := make([]int, 2*n)
		for i := range halves {
			halves[i] = i
		}
		for _, i := range rapid.Permutation(halves).Draw(t, "order") {
			id := match.ID{Key: uint64(i / 2), Dst: 1}
			from := i / 2 % 2
			if from == 1 {
				id.Src, id.Dst = 1, 0
			}
			e := w.present.ends[(from+i)%2]
			o := match.Op{Send: i%2 == 0, ID: id, Shape: match.Shape{Bytes: int64(i / 2 % 20)}, Deadline: match.Never,
				Ready: rapid.Bool().Draw(t, "ready"), Carried: rapid.Bool().Draw(t, "carried")}
			state, err := e.post(o)
			if err != nil {
				t.Fatal(err)
			}
			if !o.Ready {
				w.after(time.Second, func() {
					state.readied = true
					e.m.Ready(w.now, state.Ref)
					e.perform()
				})
			}
		}
		w.run(time.Hour)
		w.judge()
		for _, o := range w.all() {
			if len(o.ends) != 1 || o.ends[0].Code != match.OK {
				w.breaks("transfer %v (send: %v) ended %v", o.ID, o.Send, o.ends)
			}
		}
		if w.broken != nil {
			t.Fatal(w.broken)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	clause.Cite(t, "TR-MAT-3", "TR-BPR-5", "TRT-194")
	const window, count = 512, 20000
	a := match.New(match.Config{Odd: true, Window: window, Offers: 64})
	a.Up(0)
	for i := range uint64(count) { // all kinds of ends: without contact, refused, by a peer that floods
		o := match.Op{Ref: match.Ref(2 * i), Send: true, ID: match.ID{Key: i}, Deadline: match.Never}
		if err := a.Post(0, o); err != nil {
			t.Fatal(err)
		}
		a.Fail(0, o.Ref, match.Verdict{Code: match.Internal})
		for _, kind := range []match.Kind{match.Offer, match.Cancel, match.Accept, match.Done, 77} {
			a.Receive(0, match.Message{Kind: kind, Number: match.Number(2 * i), ID: match.ID{Key: i, Src: 1, Namespace: uint64(kind)}})
		}
		a.Take()
	}
	past, offers, unagreed, alarms := a.Held()
	if past != window || offers != 64 || unagreed > window || alarms > window {
		t.Errorf("a machine holds %d records, %d offers, %d ends that are not agreed, %d alarms", past, offers, unagreed, alarms)
	}
}

// A million transfers with fresh keys leave as much behind as the window has. A key in the window is known; one that has left it is not:
// its post finds no partner, and ends by its deadline.
func TestKeysLeaveTheWindow(t *testing.T) {
	clause.Cite(t, "TR-MAT-3", "TRT-194")
	const window = 65_536 // the default
	count := uint64(1_000_000)
	if testing.Short() {
		count = 3 * window
	}
	m := match.New(match.Config{Odd: true})
	m.Up(0)
	post := func(key uint64, at, deadline match.Time) error {
		ref := match.Ref(key + 1)
		if at > 0 {
			ref += match.Ref(count)
		}
		return m.Post(at, match.Op{Ref: ref, ID: match.ID{Key: key, Namespace: key % 3}, Deadline: deadline})
	}
	for key := range count {
		if err := post(key, 0, match.Never); err != nil {
			t.Fatal(err)
		}
		m.Fail(0, match.Ref(key+1), match.Verdict{Code: match.Internal})
		m.Take()
	}
	if past, _, _, alarms := m.Held(); past != window || alarms > window {
		t.Errorf("a machine holds %d records and %d alarms after %d transfers; want %d", past, alarms, count, window)
	}
	for _, key := range []uint64{count - 1, count - window} {
		if err := post(key, time.Second, match.Never); !errors.Is(err, match.ErrUsed) {
			t.Errorf("a second transfer with key %d of %d = %v; want ErrUsed", key, count, err)
		}
	}
	if err := post(5, time.Second, 10*time.Second); err != nil {
		t.Errorf("a transfer with a key that has left the window = %v", err)
	}
	m.Advance(10 * time.Second)
	var ended []match.Code
	for _, a := range m.Take() {
		if e, ok := a.(match.End); ok {
			ended = append(ended, e.Verdict.Code)
		}
	}
	if len(ended) != 1 || ended[0] != match.Late {
		t.Errorf("it ended as %v; want late", ended)
	}
}
