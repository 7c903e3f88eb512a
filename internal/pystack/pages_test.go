package pystack

import (
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

func (m *paged) readPages(at []uint64, into []*page) int {
	m.ahead++
	for i, address := range at {
		b, ok := m.fill[address]
		if !ok || m.refusesAtOnce {
			return i
		}
		for j := range into[i].bytes {
			into[i].bytes[j] = b
		}
	}
	return len(at)
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

// Pages that are read ahead count.
func TestBudgetOfPages(t *testing.T) {
	clause.Cite(t, "D-ST-4")
	m := &paged{fill: map[uint64]byte{0x1000: 1, 0x2000: 2}}
	into := []*page{new(page), new(page)}
	for _, c := range []struct{ reads, size, want, left int }{
		{5, 3 * pageSize, 2, 4}, {5, 2*pageSize - 1, 0, 5}, {0, 3 * pageSize, 0, 0},
	} {
		b := &budget{memory: m, reads: c.reads, size: c.size}
		if n := b.readPages([]uint64{0x1000, 0x2000}, into); n != c.want || b.reads != c.left || b.size != c.size-n*pageSize {
			t.Errorf("budget of %d reads, %d bytes: %d pages, %d reads and %d bytes left", c.reads, c.size, n, b.reads, b.size)
		}
	}
}
