package pystack

import (
	"slices"
	"sync"
)

// pageSize is that of the smallest pages: what is readable at one byte of such a page is readable in all of it.
const pageSize = 4 << 10

// mostAhead is how many pages are read at once before anything of them is asked for.
const mostAhead = 64

// Pages are the memory of a process. While they are open each page is read once: what is read then does not change, or would be worth nothing
// if it did. A stack has a hundred small objects in a few pages, and a read costs much more than its bytes.
//
// Threads that run the same program have most of these pages in common. So those that were of use the last time are read at once, with the few
// that each thread has for itself.
type pages struct {
	memory Memory
	open   bool
	known  map[uint64]*page // by address
	usual  []uint64
	ahead  []*page
}

type page struct {
	bytes [pageSize]byte
	used  bool
}

var sparePages = sync.Pool{New: func() any { return new(page) }}

// A bulkReader is memory of which many pages can be read at once. It returns how many of the first ones it has read.
type bulkReader interface {
	readPages(at []uint64, into []*page) int
}

// begin opens the pages, and reads those of some addresses ahead, too, if there was a walk before this one.
func (p *pages) begin(addresses ...uint64) {
	if p.known == nil {
		p.known = make(map[uint64]*page)
	}
	p.open = true
	bulk, ok := p.memory.(bulkReader)
	if !ok || len(p.usual) == 0 {
		return
	}
	for _, at := range addresses {
		if at &^= pageSize - 1; at != 0 && !slices.Contains(p.usual, at) {
			p.usual = append(p.usual, at)
		}
	}
	p.ahead = p.ahead[:0]
	for range p.usual {
		p.ahead = append(p.ahead, sparePages.Get().(*page))
	}
	n := bulk.readPages(p.usual, p.ahead)
	for i, page := range p.ahead {
		if i < n {
			p.known[p.usual[i]] = page
		} else {
			sparePages.Put(page)
		}
	}
}

// end closes the pages, and forgets what was read.
func (p *pages) end() {
	p.open, p.usual = false, p.usual[:0]
	for at, page := range p.known {
		if page.used && len(p.usual) < mostAhead {
			p.usual = append(p.usual, at)
		}
		page.used = false
		sparePages.Put(page)
		delete(p.known, at)
	}
}

// Read implements [Memory].
func (p *pages) Read(address uint64, b []byte) error {
	from := address % pageSize
	if !p.open || from+uint64(len(b)) > pageSize {
		return p.memory.Read(address, b)
	}
	if page := p.page(address - from); page != nil {
		copy(b, page.bytes[from:])
		return nil
	}
	return p.memory.Read(address, b)
}

// page is the one at an address, or nil.
func (p *pages) page(at uint64) *page {
	known := p.known[at]
	if known == nil {
		known = sparePages.Get().(*page)
		if p.memory.Read(at, known.bytes[:]) != nil {
			sparePages.Put(known)
			return nil
		}
		p.known[at] = known
	}
	known.used = true
	return known
}
