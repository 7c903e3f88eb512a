package collective_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// key makes a key of devices, each of the task of its number, in incarnations that follow first.
func key(first uint64, devices ...int) *collective.Key {
	k := new(collective.Key)
	for _, d := range devices {
		k.Ranks = append(k.Ranks, collective.Place{Device: serry.DeviceID(d), Life: life(d, first+uint64(d))})
	}
	return k
}

func TestKeys(t *testing.T) {
	clause.Cite(t, "CL-KEY-1", "CL-KEY-2", "CL-KEY-3", "CL-KEY-4", "CL-KEY-6", "CL-KEY-13", "CL-KEY-16",
		"CL-KEY-5", "CLT-KEY-1", "CLT-KEY-3", "CLT-KEY-4", "CLT-KEY-6", "CLT-KEY-7", "CLT-KEY-10", "CLT-KEY-11")
	other := func(k *collective.Key, f func(*collective.Key)) *collective.Key { f(k); return k }
	traffic := func(k *collective.Key) { k.Traffic = 1 }
	generation := func(k *collective.Key) { k.Generation = 1 }
	all := key(10, 0, 1, 2, 3)
	for _, row := range []struct {
		name   string
		a      *collective.Key
		within bool
	}{
		{"some", key(10, 0, 1), true},
		{"others", key(10, 2, 3), true},
		{"itself", all, true},
		{"more", key(10, 0, 1, 2, 3, 4), false},
		{"disjoint", key(10, 7), false},
		{"traffic", other(key(10, 0, 1), traffic), false},
		{"generation", other(key(10, 0, 1), generation), false},
		{"restarted", key(20, 0, 1), false},
	} {
		if got := row.a.Within(all); got != row.within {
			t.Errorf("%s: Within() = %v; want %v", row.name, got, row.within)
		}
	}
	ascending := []*collective.Key{
		key(10, 0, 1), key(20, 0, 1), other(key(10, 0, 1), traffic), key(10, 1, 0), key(10, 0, 1, 2), other(key(10, 0, 1, 2), generation), key(10, 1, 2, 3),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.Compare(b), i-j; (got < 0) != (want < 0) || (got == 0) != (want == 0) {
				t.Errorf("Compare(%v, %v) = %d", a, b, got)
			}
			if (a.Fingerprint() == b.Fingerprint()) != (i == j) {
				t.Errorf("fingerprints of %v and %v", a, b)
			}
		}
	}
	if r, ok := all.Rank(2); r != 2 || !ok {
		t.Errorf("Rank(2) = %d, %v", r, ok)
	}
	if _, ok := all.Rank(4); ok {
		t.Error("Rank(4) was found")
	}
}

func TestKeyText(t *testing.T) {
	clause.Cite(t, "CL-KEY-9", "CL-KEY-8", "CL-KEY-14", "CLT-KEY-5", "CLT-KEY-8")
	k := key(10, 1, 0)
	k.Generation = 1
	if got, want := k.String(), "devices=2:[1,0]; traffic=0; incarnations=[10,11]; generation=1"; got != want {
		t.Errorf("String() = %q; want %q", got, want)
	}
	many := new(collective.Key)
	for d := range 100 {
		many.Ranks = append(many.Ranks, collective.Place{Device: serry.DeviceID(d), Life: life(0, 5)})
	}
	if got, want := many.String(), "devices=100:[0,1,2,3,4,5,6,7...98,99]; traffic=0; incarnations=[5]"; got != want {
		t.Errorf("String() = %q; want %q", got, want)
	}
	if got, want := k.Fingerprint(), uint64(0x6a146b864f961dd4); got != want {
		t.Errorf("Fingerprint() = %#x; want %#x: it is the same in all versions", got, want)
	}
}

// Keys and notices come back as they were, and other bytes are refused.
func FuzzWire(f *testing.F) {
	clause.Cite(f, "CL-KEY-14", "CL-ABT-15")
	f.Add(key(10, 0, 1, 2).Bytes())
	f.Add((&collective.Error{Ranks: []int{2}, Life: life(2, 12), Origin: 1, Seq: 7, Detail: "gone", Err: collective.ErrPeerFailed}).Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := collective.ParseKey(b); err == nil {
			if !bytes.Equal(k.Bytes(), b) {
				t.Fatalf("key %v has other bytes", k)
			}
		}
		if e, err := collective.ParseError(b); err == nil {
			again, err := collective.ParseError(e.Bytes())
			if err != nil || !reflect.DeepEqual(e, again) && len(e.Detail) <= 1024 {
				t.Fatalf("notice %+v came back as %+v, %v", e, again, err)
			}
			_ = e.Error()
		}
	})
}

func TestNoticesKeepTheirFacts(t *testing.T) {
	clause.Cite(t, "CL-ABT-15", "CL-ERR-7")
	for _, e := range []*collective.Error{
		{Ranks: []int{2}, Life: life(2, 12), Origin: 1, Seq: 7, Detail: "connection refused", Err: collective.ErrPeerFailed},
		{Ranks: []int{0, 3}, Origin: 3, Detail: "reset", Err: collective.ErrTransport},
		{Ranks: []int{1, 4, 5}, Origin: 0, Seq: 1, Err: collective.ErrTimeout},
		{Origin: 2, Detail: "enough", Err: collective.ErrCancelled},
	} {
		got, err := collective.ParseError(e.Bytes())
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("notice %+v came back as %+v, %v", e, got, err)
		}
	}
}

// Roots are the ranks that begin parts of nearly equal size.
func TestRoots(t *testing.T) {
	clause.Cite(t, "CL-KEY-12", "CLT-KEY-2")
	k := key(10, 0, 1, 2, 3)
	for n, want := range map[int][]serry.DeviceID{1: {0}, 2: {0, 2}, 3: {0, 2, 3}, 4: {0, 1, 2, 3}} {
		if got, err := k.Roots(n); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Roots(%d) = %v, %v; want %v", n, got, err, want)
		}
	}
	if got, err := key(10, 7, 5, 9, 1, 3).Roots(2); err != nil || !reflect.DeepEqual(got, []serry.DeviceID{7, 1}) {
		t.Errorf("Roots(2) of five = %v, %v; want 7 and 1", got, err)
	}
	for _, n := range []int{-1, 0, 5} {
		if got, err := k.Roots(n); !errors.Is(err, collective.ErrInvalid) {
			t.Errorf("Roots(%d) = %v, %v; want ErrInvalid", n, got, err)
		}
	}
}
