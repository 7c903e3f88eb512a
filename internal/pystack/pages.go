package pystack

import "sync"

// pageSize is that of the smallest pages: what is readable at one byte of such a page is readable in all of it.
const pageSize = 4 << 10

// Pages are the memory of a process. While they are open each page is read once: what is read then does not change, or would be worth nothing
// if it did. A stack has a hundred small objects in a few pages, and a read costs much more than its bytes.
type pages struct {
	memory Memory
	open   bool
	known  map[uint64]*page // by address
}

type page [pageSize]byte

var sparePages = sync.Pool{New: func() any { return new(page) }}

// begin opens the pages.
func (p *pages) begin() {
	if p.known == nil {
		p.known = make(map[uint64]*page)
	}
	p.open = true
}

// end closes the pages, and forgets what was read.
func (p *pages) end() {
	p.open = false
	for at, page := range p.known {
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
		copy(b, page[from:])
		return nil
	}
	return p.memory.Read(address, b)
}

// page is the one at an address, or nil.
func (p *pages) page(at uint64) *page {
	if page, ok := p.known[at]; ok {
		return page
	}
	page := sparePages.Get().(*page)
	if p.memory.Read(at, page[:]) != nil {
		sparePages.Put(page)
		return nil
	}
	p.known[at] = page
	return page
}
