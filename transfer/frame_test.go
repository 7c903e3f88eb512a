package transfer

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/serry-dev/serry/transfer/internal/match"
)

// What a peer sends is read without a panic, and what was read is written as it came.
func FuzzMessages(f *testing.F) {
	id := match.ID{Namespace: 1, Key: 2, Src: 3, Dst: 4}
	for _, m := range []match.Message{
		{Kind: match.Offer, Number: 7, ID: id, Shape: match.Shape{Bytes: 1 << 40, Digest: 9, Text: "f32[2]"}, Class: 2, Ready: true},
		{Kind: match.Offer, Number: 7, ID: id, Shape: match.Shape{Bytes: 1, Digest: 9, Text: "u8[1]"}, Class: 2, Ready: true, Place: match.Place{Arena: 3, Offset: 64}},
		{Kind: match.Offer, Number: 7, ID: id, Shape: match.Shape{Bytes: 3, Digest: 9, Text: "u8[3]"}, Ready: true, Carried: true, Data: []byte("abc")},
		{Kind: match.Accept, Number: 8, ID: id, Missing: match.Ranges{{From: 0, To: 3}}, Carried: true},
		{Kind: match.Accept, Number: 8, ID: id, Missing: match.Ranges{{From: 0, To: 5}, {From: 9, To: 1 << 50}}},
		{Kind: match.Cancel, Number: 9, ID: id, Verdict: match.Verdict{Code: match.Cancelled, Text: "enough"}},
		{Kind: match.Done, Number: 10, ID: id},
	} {
		b := appendMessage(nil, m)
		f.Add(byte(m.Kind), b)
		f.Add(byte(m.Kind), append(b, b...))
		if got, err := parseMessages(m.Kind, b); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], m) {
			f.Errorf("%v is read as %v, %v", m, got, err)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		list, err := parseMessages(match.Kind(kind), b)
		if err != nil {
			return
		}
		var again []byte
		for _, m := range list {
			again = appendMessage(again, m)
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}

func FuzzRequests(f *testing.F) {
	q := request{id: match.ID{Namespace: pullNamespace, Key: 2, Src: 3, Dst: 4}, offer: 1 << 63, token: Token{1}, index: 7, class: 2, within: 5}
	q.view = View{Offset: 1, Run: 2, Counts: []int64{3, 4}, Strides: []int64{5, 6}}
	for _, q := range []request{q, {forget: true, id: q.id}} {
		b := appendRequest(nil, q)
		f.Add(b)
		f.Add(append(b, b...))
		if got, err := parseRequests(b); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], q) {
			f.Errorf("%v is read as %v, %v", q, got, err)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseRequests(b)
		if err != nil {
			return
		}
		var again []byte
		for _, q := range list {
			again = appendRequest(again, q)
			if n, err := q.view.measure(1 << 20); err == nil && (n < 0 || n > 1<<20) {
				t.Errorf("%v has %d bytes", q.view, n)
			}
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}
