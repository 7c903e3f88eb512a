package pystack

import (
	"errors"
	"slices"
	"testing"

	"github.com/serry-dev/serry/internal/lab/clause"
)

// A paged memory has pages that are filled with one byte each.
type paged struct {
	fill          map[uint64]byte
	reads, ahead  int
	readsOfAPage  []uint64
	refusesAtOnce bool
}

func (m *paged) Read(address uint64, p []byte) error {
	m.reads++
	at := address &^ (pageSize - 1)
	b, ok := m.fill[at]
	if !ok {
		return torn("no memory at %#x", address)
	}
	m.readsOfAPage = append(m.readsOfAPage, at)
	for i := range p {
		p[i] = b
	}
	return nil
}

func (m *paged) readParts(parts []part, into []*page) int {
	m.ahead++
	for i, p := range parts {
		b, ok := m.fill[p.at]
		if !ok || m.refusesAtOnce {
			return i
		}
		for j := p.from; j < p.to; j++ {
			into[i].bytes[j] = b
		}
	}
	return len(parts)
}

// What was of use for one walk is read at once for the next, as it is then. What cannot be read any more is no error before it is asked for.
func TestPagesAhead(t *testing.T) {
	clause.Cite(t, "D-ST-2", "D-ST-4")
	m := &paged{fill: map[uint64]byte{0x1000: 1, 0x2000: 2, 0x3000: 3}}
	p := &pages{memory: newBudget(m)}
	walk := func(want ...int) {
		t.Helper()
		p.begin()
		defer p.end()
		for i, n := range want {
			var b [8]byte
			err := p.Read(uint64(i+1)*pageSize+16, b[:])
			if n < 0 && err == nil || n >= 0 && (err != nil || int(b[7]) != n) {
				t.Errorf("page %d: %v, %v; want %d", i+1, b, err, n)
			}
		}
	}
	walk(1, 2)
	if m.ahead != 0 || m.reads != 2 {
		t.Fatalf("%d reads, %d at once; want 2, 0", m.reads, m.ahead)
	}
	m.fill[0x2000] = 7
	walk(1, 7)
	if m.ahead != 1 || m.reads != 2 {
		t.Errorf("%d reads, %d at once; want 2, 1", m.reads, m.ahead)
	}
	delete(m.fill, 0x1000)
	walk(-1, 7, 3)
	m.refusesAtOnce = true
	walk(-1, 7, 3)
	walk() // nothing of it is of use
	m.readsOfAPage, m.ahead = nil, 0
	walk(-1, 7)
	if m.ahead != 0 || !slices.Equal(m.readsOfAPage, []uint64{0x2000}) {
		t.Errorf("%d at once, and then %x; want none, and page 2", m.ahead, m.readsOfAPage)
	}
}

// Only what was of use is read ahead, in whole lines, and what a caller asks for. What lies beyond is read when it is asked for.
func TestPartsAhead(t *testing.T) {
	clause.Cite(t, "D-ST-2")
	m := &paged{fill: map[uint64]byte{0x1000: 1, 0x2000: 2, 0x3000: 3}}
	p := &pages{memory: newBudget(m)}
	var b [8]byte
	p.begin()
	if err := errors.Join(p.Read(0x1064, b[:]), p.Read(0x10c4, b[:])); err != nil {
		t.Fatal(err)
	}
	p.end()
	m.reads = 0
	p.begin(area{0x1ff0, 0x2010})
	want := map[uint64]span{0x1000: {64, 4096}, 0x2000: {0, 64}}
	for at, page := range p.known {
		if page.has != want[at] {
			t.Errorf("of the page at %#x it has read %v; want %v", at, page.has, want[at])
		}
	}
	if err := p.Read(0x2008, b[:]); err != nil || m.reads != 0 || b[0] != 2 {
		t.Errorf("Read() = %v, %v after %d reads; want page 2 without any", b, err, m.reads)
	}
	if err := p.Read(0x2040, b[:]); err != nil || m.reads != 1 || b[0] != 2 || p.known[0x2000].has != (span{0, pageSize}) {
		t.Errorf("Read() = %v, %v after %d reads; want page 2 after one", b, err, m.reads)
	}
	delete(m.fill, 0x1000)
	if err := p.Read(0x1000, b[:]); err == nil {
		t.Error("Read() of a page that is there no more = nil; want an error")
	}
	p.end()
}

// Parts that are read ahead count.
func TestBudgetOfParts(t *testing.T) {
	clause.Cite(t, "D-ST-4")
	m := &paged{fill: map[uint64]byte{0x1000: 1, 0x2000: 2}}
	into := []*page{new(page), new(page)}
	parts := []part{{0x1000, span{0, 64}}, {0x2000, span{64, 256}}, {0x3000, span{0, 64}}}
	for _, c := range []struct{ reads, size, parts, want, left, bytes int }{
		{5, 1024, 2, 2, 4, 768}, {5, 255, 2, 0, 5, 255}, {0, 1024, 2, 0, 0, 1024}, {5, 1024, 3, 2, 4, 768},
	} {
		b := &budget{memory: m, reads: c.reads, size: c.size}
		if n := b.readParts(parts[:c.parts], append(into, new(page))); n != c.want || b.reads != c.left || b.size != c.bytes {
			t.Errorf("budget of %d reads, %d bytes: %d parts, %d reads and %d bytes left; want %d, %d, %d", c.reads, c.size, n, b.reads, b.size, c.want, c.left, c.bytes)
		}
	}
}
