package pystack

import "sync"

// pageSize is that of the smallest pages: what is readable at one byte of such a page is readable in all of it.
const pageSize = 4 << 10

// Limits of what is read at once before anything of it is asked for.
const (
	mostAhead = 64 // parts of pages
	lineSize  = 64 // bytes of memory that a processor moves at once: parts begin and end at multiples
)

// Pages are the memory of a process. While they are open each page is read once: what is read then does not change, or would be worth nothing
// if it did. A stack has a hundred small objects in a few pages, and a read costs much more than its bytes.
//
// Threads that run the same program have most of these objects in common. So what was of use the last time is read at once, with the little that
// each thread has for itself. Of this only the parts that were of use are read: to copy whole pages would take longer than all else about
// a walk.
type pages struct {
	memory Memory
	open   bool
	known  map[uint64]*page // by address
	usual  []part
	ahead  []*page
}

// A page is what is known of one.
type page struct {
	bytes [pageSize]byte
	has   span // that was read
	used  span // that was of use; empty: nothing
}

// A span is some bytes of a page.
type span struct{ from, to int }

func (s span) empty() bool { return s.from >= s.to }

func (s span) contains(o span) bool { return s.from <= o.from && o.to <= s.to }

// with is the span that has both.
func (s span) with(o span) span {
	if s.empty() {
		return o
	}
	return span{min(s.from, o.from), max(s.to, o.to)}
}

// A part is some bytes of the page at an address.
type part struct {
	at uint64
	span
}

// An area is memory from one address to another.
type area struct{ from, to uint64 }

var sparePages = sync.Pool{New: func() any { return new(page) }}

// A bulkReader is memory of which many parts can be read at once, each to its place in a page. It returns how many of the first ones it has read.
type bulkReader interface {
	readParts(parts []part, into []*page) int
}

// begin opens the pages, and reads these areas ahead, too, if there was a walk before this one.
func (p *pages) begin(areas ...area) {
	if p.known == nil {
		p.known = make(map[uint64]*page)
	}
	p.open = true
	bulk, ok := p.memory.(bulkReader)
	if !ok || len(p.usual) == 0 {
		return
	}
	for _, a := range areas {
		p.addUsual(a)
	}
	p.ahead = p.ahead[:0]
	for range p.usual {
		p.ahead = append(p.ahead, sparePages.Get().(*page))
	}
	n := bulk.readParts(p.usual, p.ahead)
	for i, page := range p.ahead {
		if i < n {
			page.has = p.usual[i].span
			p.known[p.usual[i].at] = page
		} else {
			sparePages.Put(page)
		}
	}
}

// addUsual adds an area to what is read at once. A process may lie about where it has what.
func (p *pages) addUsual(a area) {
	if a.to > 1<<63 {
		return // no process has memory there
	}
	for at := a.from &^ (pageSize - 1); at < a.to; at += pageSize {
		s := span{int(max(a.from, at) - at), int(min(a.to, at+pageSize) - at)}.lines()
		found := false
		for i := range p.usual {
			if found = p.usual[i].at == at; found {
				p.usual[i].span = p.usual[i].with(s)
				break
			}
		}
		if !found {
			p.usual = append(p.usual, part{at, s})
		}
	}
}

// lines is the span in whole lines of memory.
func (s span) lines() span {
	return span{s.from &^ (lineSize - 1), (s.to + lineSize - 1) &^ (lineSize - 1)}
}

// end closes the pages, and forgets what was read.
func (p *pages) end() {
	p.open, p.usual = false, p.usual[:0]
	for at, page := range p.known {
		if !page.used.empty() && len(p.usual) < mostAhead {
			p.usual = append(p.usual, part{at, page.used.lines()})
		}
		page.has, page.used = span{}, span{}
		sparePages.Put(page)
		delete(p.known, at)
	}
}

// Read implements [Memory].
func (p *pages) Read(address uint64, b []byte) error {
	from := int(address % pageSize)
	s := span{from, from + len(b)}
	if !p.open || s.to > pageSize {
		return p.memory.Read(address, b)
	}
	if page := p.page(address-uint64(from), s); page != nil {
		copy(b, page.bytes[from:])
		return nil
	}
	return p.memory.Read(address, b)
}

// page is the one at an address, which has a span, or nil.
func (p *pages) page(at uint64, s span) *page {
	known := p.known[at]
	if known == nil || !known.has.contains(s) {
		fresh := known
		if fresh == nil {
			fresh = sparePages.Get().(*page)
		}
		if p.memory.Read(at, fresh.bytes[:]) != nil {
			delete(p.known, at)
			fresh.has, fresh.used = span{}, span{}
			sparePages.Put(fresh)
			return nil
		}
		fresh.has = span{0, pageSize}
		p.known[at], known = fresh, fresh
	}
	known.used = known.used.with(s)
	return known
}
